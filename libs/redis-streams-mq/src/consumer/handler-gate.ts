/** Closed while a handler is paused: its partitions are kept, and no call begins. */
export class HandlerGate {
  private closed = false;
  private readonly waiting = new Set<() => void>();

  get isOpen(): boolean {
    return !this.closed;
  }

  close(): void {
    this.closed = true;
  }

  open(): void {
    this.closed = false;
    for (const go of this.waiting) go();
  }

  /** Resolves when it is open, or when `signal` aborts. */
  opened(signal: AbortSignal): Promise<void> {
    if (this.isOpen || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const go = (): void => {
        this.waiting.delete(go);
        signal.removeEventListener('abort', go);
        resolve();
      };
      this.waiting.add(go);
      signal.addEventListener('abort', go, { once: true });
    });
  }
}
