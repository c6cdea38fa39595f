interface Waiting {
  readonly holder: object;
  readonly resolve: () => void;
}

/**
 * Passed around by workers whose handlers wait for nothing: they handle one after the other what each of them has. In step
 * with each other, a message each in turn, they would gain nothing, and all of them would settle in small pieces.
 *
 * A holder that makes no step between two turns of the event loop waits for something after all, and loses it.
 */
export class Baton {
  private holder: object | null = null;
  private readonly waiting: Waiting[] = [];
  private steps = 0;
  private isWatching = false;

  /** True when `holder` has it now; each call is a step. */
  tryTake(holder: object): boolean {
    if (this.holder !== null && this.holder !== holder) return false;
    this.holder = holder;
    this.steps++;
    return true;
  }

  /** Resolves when `holder` has it: in the order of the calls, and in any case after some turns of the event loop. */
  take(holder: object): Promise<void> {
    if (this.tryTake(holder)) return Promise.resolve();
    this.watch(this.steps);
    return new Promise((resolve) => this.waiting.push({ holder, resolve }));
  }

  /** Nothing happens unless `holder` has it. */
  give(holder: object): void {
    if (this.holder === holder) this.pass();
  }

  private pass(): void {
    const next = this.waiting.shift();
    this.holder = next?.holder ?? null;
    this.steps++;
    next?.resolve();
  }

  private watch(steps: number): void {
    if (this.isWatching) return;
    this.isWatching = true;
    setImmediate(() => {
      this.isWatching = false;
      if (this.waiting.length === 0) return;
      if (this.steps === steps) this.pass();
      this.watch(this.steps);
    });
  }
}
