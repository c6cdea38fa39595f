import type { Clock } from '../core/clock.js';
import type { BatchOptions } from '../core/handler.js';
import type { Entry } from './entry.js';
import type { EntryQueue } from './entry-queue.js';
import type { InFlight } from './in-flight.js';

export interface BatchFillDeps {
  readonly limits: BatchOptions;
  readonly queue: EntryQueue;
  readonly inFlight: InFlight;
  readonly clock: Clock;
}

/**
 * When a batch is begun: once it can be full, or `waitMs` after the handler was free and the first message there. Nothing
 * more is waited for either when nothing more is read, or when an owner may have died on what comes next.
 */
export class BatchFill {
  /** Since when what is at the head of the queue could have been begun, on the monotonic clock. */
  private since: number | null = null;

  constructor(private readonly deps: BatchFillDeps) {}

  /** For how many milliseconds more is waited for. */
  get waitsMs(): number {
    const { limits, queue, inFlight, clock } = this.deps;
    const now = clock.monotonic();
    this.since ??= now;
    const isLast = !queue.hasRoom || inFlight.isFull;
    if (this.canBeFull || isLast || queue.peek()?.suspect === true) return 0;
    return Math.max(0, this.since + limits.waitMs - now);
  }

  /** Resolves when there is something new in the queue, when nothing more may come, or after `ms`. */
  async more(ms: number): Promise<void> {
    const { queue, inFlight, clock } = this.deps;
    const timer = clock.setTimer(() => queue.notify(), Math.ceil(ms));
    const cancel = inFlight.onFull(() => queue.notify());
    await queue.changed();
    cancel();
    timer.cancel();
  }

  /**
   * What comes after the first message of a batch, in the order of the queue. It ends before what an owner may have died
   * on, which is handled alone.
   */
  rest(first: Entry, mayTake: () => boolean): Entry[] {
    const { limits, queue, clock } = this.deps;
    // It was full before its first message was taken.
    const wasFull = queue.length + 1 >= limits.size;
    const rest: Entry[] = [];
    while (!first.suspect && rest.length + 1 < limits.size && queue.peek()?.suspect === false && mayTake()) {
      rest.push(queue.take()!);
    }
    // What waits for its key now has waited its time already.
    if (queue.length === 0) this.since = null;
    else if (wasFull) this.since = clock.monotonic();
    return rest;
  }

  private get canBeFull(): boolean {
    return this.deps.queue.length >= this.deps.limits.size;
  }
}
