/** Bounds of the delay between two attempts, in whole milliseconds, each at least 1. */
export interface BackoffBounds {
  readonly baseMs: number;
  readonly maxMs: number;
}

/** Bounds of the pause between two rounds of a loop, in whole milliseconds, each at least 1. */
export interface BackoffRange {
  readonly minMs: number;
  readonly maxMs: number;
}

/** Past this exponent `2 ** n` is infinite, and infinity times zero is no number. */
const MAX_EXPONENT = 1023;

/**
 * The delay before the next attempt after `attempt` (1 is the first, and anything below counts as it) failed:
 * `d = min(baseMs * 2^(attempt - 1), maxMs)`, then a random part of its second half, so from `d / 2` to `d`. Always an
 * integer from 1 to `maxMs`. Half of the delay stays fixed, so that a handler's pause is never next to nothing ("equal
 * jitter" in the AWS article "Exponential Backoff And Jitter").
 */
export function backoffMs(attempt: number, { baseMs, maxMs }: BackoffBounds, random: () => number): number {
  const exponent = attempt > 1 ? Math.min(Math.floor(attempt) - 1, MAX_EXPONENT) : 0;
  const delay = Math.min(baseMs * 2 ** exponent, maxMs);
  return Math.max(1, Math.round(delay / 2 + (random() * delay) / 2));
}

/**
 * Pauses of a loop that meets errors: each is a random integer from `minMs` to a ceiling that doubles from call to call
 * up to `maxMs`, so that instances that failed together do not come back together ("full jitter").
 */
export class Backoff {
  private failures = 0;

  constructor(
    private readonly range: BackoffRange,
    private readonly random: () => number = Math.random,
  ) {}

  /** Milliseconds to wait before the next try. */
  next(): number {
    const { minMs, maxMs } = this.range;
    this.failures = Math.min(this.failures + 1, MAX_EXPONENT);
    const ceiling = Math.min(minMs * 2 ** this.failures, maxMs);
    return Math.round(minMs + this.random() * Math.max(0, ceiling - minMs));
  }

  /** To be called after a success: the next pause is a short one again. */
  reset(): void {
    this.failures = 0;
  }
}
