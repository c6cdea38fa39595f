import type { Clock, Timer } from '../core/clock.js';
import type { RateLimit } from '../core/handler.js';

/** How long those who were woken have to begin before others are woken in their place: they may have been stopped. */
const SECOND_LOOK_MS = 5;

/**
 * Lets a handler begin at most `count` times in any `perMs` milliseconds, whatever partition the message is of. Who has to
 * wait does so without holding anything; first come, first served.
 */
export class RateLimiter {
  /** When the calls of the window began, oldest first: a ring of `size` from `head` on. */
  private readonly starts: number[] = [];
  private head = 0;
  private size = 0;
  private readonly waiting: (() => void)[] = [];
  private timer: Timer | undefined;

  constructor(
    private readonly limit: RateLimit,
    private readonly clock: Clock,
  ) {}

  /** Whether somebody who comes now may go on, without passing those who wait. */
  get isFree(): boolean {
    return this.waiting.length === 0 && this.left() > 0;
  }

  /** Counts a beginning, or says that none is left at present. */
  tryTake(): boolean {
    if (this.left() === 0) return false;
    this.starts[(this.head + this.size) % this.limit.count] = this.clock.monotonic();
    this.size++;
    return true;
  }

  /** Resolves when it is worth another try, or when `signal` aborts. */
  free(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const leave = (): void => {
        this.waiting.splice(this.waiting.indexOf(woken), 1);
        resolve();
      };
      const woken = (): void => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      signal.addEventListener('abort', leave, { once: true });
      this.waiting.push(woken);
      this.watch();
    });
  }

  private left(): number {
    const { count, perMs } = this.limit;
    const until = this.clock.monotonic() - perMs;
    while (this.size > 0 && this.starts[this.head]! <= until) {
      this.head = (this.head + 1) % count;
      this.size--;
    }
    return count - this.size;
  }

  private watch(): void {
    if (this.timer !== undefined || this.waiting.length === 0) return;
    const dueMs =
      this.left() > 0 ? SECOND_LOOK_MS : this.starts[this.head]! + this.limit.perMs - this.clock.monotonic();
    this.timer = this.clock.setTimer(
      () => {
        this.timer = undefined;
        for (const woken of this.waiting.splice(0, this.left())) woken();
        this.watch();
      },
      Math.max(1, Math.ceil(dueMs)),
    );
  }
}
