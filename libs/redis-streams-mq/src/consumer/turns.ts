import type { Clock } from '../core/clock.js';

const LONGEST_MS = 5;

/**
 * Turns of the event loop, for everybody who could go on without ever waiting: handlers that wait for nothing would keep
 * timers and sockets, and with them the renewal of leases, from running until all buffers are empty.
 */
export class Turns {
  private since: number;
  private nextTurn: Promise<void> | undefined;

  constructor(private readonly clock: Clock) {
    this.since = clock.monotonic();
  }

  /** Time to let others run: this turn has taken long, or nobody knows when it began. */
  isOverAt(now: number): boolean {
    return this.nextTurn !== undefined || now - this.since > LONGEST_MS;
  }

  /** Resolves when timers and sockets have had their turn; for all who wait, in the order in which they came. */
  next(): Promise<void> {
    this.nextTurn ??= new Promise((resolve) => {
      setImmediate(() => {
        this.nextTurn = undefined;
        this.since = this.clock.monotonic();
        resolve();
      });
    });
    return this.nextTurn;
  }
}
