import { pause, type Clock } from '../core/clock.js';
import { invalid } from './dead-letter-filter.js';

/** What every operation over many letters can be told. */
export interface BulkOptions<Report> {
  /** At most so many letters. @defaultValue no limit */
  readonly limit?: number;
  /** Called after each step with what was done so far; what it throws ends the operation. */
  readonly onProgress?: (report: Report) => void;
  /** Ends the operation after the step that is under way. */
  readonly signal?: AbortSignal;
}

export const BULK_OPTIONS: readonly string[] = ['limit', 'onProgress', 'signal'];

/** @throws MqAdminError `MQ_INVALID_ARGUMENT` */
export function checkBulk({ limit, onProgress, signal }: BulkOptions<never>): number {
  if (limit !== undefined && limit !== Infinity && !(Number.isInteger(limit) && limit >= 0))
    throw invalid('limit must be an integer of at least 0');
  if (onProgress !== undefined && typeof onProgress !== 'function') throw invalid('onProgress must be a function');
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw invalid('signal must be an AbortSignal');
  return limit ?? Infinity;
}

const STEP_MS = 200;

/** Spreads letters over time: so many a second, in steps of a fifth of a second. */
export class Pace {
  private nextAt: number;

  /** @param perSecond - `undefined` is as fast as it goes */
  constructor(
    private readonly clock: Clock,
    private readonly perSecond: number | undefined,
  ) {
    if (perSecond !== undefined && !(typeof perSecond === 'number' && perSecond > 0 && perSecond <= 1_000_000))
      throw invalid('ratePerSecond must be a number above 0 and at most 1000000');
    this.nextAt = clock.monotonic();
  }

  /** How many letters one step may take. */
  get stepSize(): number {
    return this.perSecond === undefined ? Infinity : Math.max(1, Math.floor((this.perSecond * STEP_MS) / 1_000));
  }

  /** Resolves when the next step may begin, or when `signal` aborts. */
  async turn(signal: AbortSignal | undefined): Promise<void> {
    const waitMs = this.nextAt - this.clock.monotonic();
    if (waitMs > 0) await pause(this.clock, waitMs, signal);
  }

  took(letters: number): void {
    if (this.perSecond === undefined) return;
    // What was missed while Redis was slow is not caught up with.
    this.nextAt = Math.max(this.nextAt, this.clock.monotonic()) + (letters * 1_000) / this.perSecond;
  }
}
