/** A number of things that may be in use at once. First come, first served; a free one is taken without waiting a turn. */
export class Slots {
  private free: number;
  private readonly queue: (() => void)[] = [];

  constructor(count: number) {
    this.free = count;
  }

  tryTake(): boolean {
    if (this.free === 0) return false;
    this.free--;
    return true;
  }

  /** Resolves true with a slot taken, or false when `signal` aborted first. */
  take(signal: AbortSignal): Promise<boolean> {
    if (signal.aborted) return Promise.resolve(false);
    if (this.tryTake()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const leave = (): void => {
        this.queue.splice(this.queue.indexOf(taken), 1);
        resolve(false);
      };
      const taken = (): void => {
        signal.removeEventListener('abort', leave);
        resolve(true);
      };
      signal.addEventListener('abort', leave, { once: true });
      this.queue.push(taken);
    });
  }

  give(): void {
    const next = this.queue.shift();
    if (next === undefined) this.free++;
    else next();
  }
}
