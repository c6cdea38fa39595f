import type { Clock } from '../../libs/redis-streams-mq/src/core/clock.js';

/** Timers fire only when the test says so. */
export class ManualClock implements Clock {
  private time = 0;
  private readonly timers = new Set<{ at: number; callback: () => void }>();

  now(): number {
    return this.time;
  }

  monotonic(): number {
    return this.time;
  }

  setTimer(callback: () => void, ms: number) {
    const timer = { at: this.time + ms, callback };
    this.timers.add(timer);
    return { cancel: () => void this.timers.delete(timer) };
  }

  get pending(): number {
    return this.timers.size;
  }

  advance(ms: number): void {
    this.time += ms;
    for (const timer of [...this.timers].filter(({ at }) => at <= this.time)) {
      this.timers.delete(timer);
      timer.callback();
    }
  }
}
