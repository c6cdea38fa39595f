import type { Clock, Timer } from '../core/clock.js';

interface VirtualTimer {
  readonly at: number;
  readonly order: number;
  readonly callback: () => void;
}

/** A clock that stands still until it is told to move; timers fire in the order of their time, and then of their setting. */
export class VirtualClock implements Clock {
  private readonly timers = new Set<VirtualTimer>();
  private readonly startedAt: number;
  private time: number;
  private order = 0;

  /** @param startAt - milliseconds since the epoch. */
  constructor(startAt: number) {
    this.startedAt = this.time = startAt;
  }

  now(): number {
    return this.time;
  }

  monotonic(): number {
    return this.time - this.startedAt;
  }

  setTimer(callback: () => void, ms: number): Timer {
    const timer: VirtualTimer = { at: this.time + Math.max(0, ms), order: this.order++, callback };
    this.timers.add(timer);
    return { cancel: () => void this.timers.delete(timer) };
  }

  /** When the next timer fires; `Infinity` when none is set. */
  get nextAt(): number {
    let next = Infinity;
    for (const { at } of this.timers) next = Math.min(next, at);
    return next;
  }

  /** Moves the time to `at`, never back, and calls what is due by then. */
  moveTo(at: number): void {
    this.time = Math.max(this.time, at);
    const due = [...this.timers].filter((timer) => timer.at <= this.time);
    due.sort((a, b) => a.at - b.at || a.order - b.order);
    for (const timer of due) if (this.timers.delete(timer)) timer.callback();
  }
}
