/** Entries that the instance holds in memory, over all partitions, against `maxInFlight`; 0 means no bound. */
export class InFlight {
  private held = 0;
  private reserved = 0;
  private readonly waiting = new Set<() => void>();

  constructor(readonly max: number) {}

  get count(): number {
    return this.held;
  }

  /** How many of `wanted` may be asked for now. What is granted must be given back by `unreserve` after the read. */
  reserve(wanted: number): number {
    if (this.max === 0) return wanted;
    const granted = Math.max(0, Math.min(wanted, this.max - this.held - this.reserved));
    this.reserved += granted;
    return granted;
  }

  unreserve(count: number): void {
    if (this.max === 0) return;
    this.reserved -= count;
    this.wake();
  }

  took(count: number): void {
    this.held += count;
  }

  gave(count: number): void {
    this.held -= count;
    this.wake();
  }

  /** Calls once when something was given back. */
  onRoom(listener: () => void): () => void {
    this.waiting.add(listener);
    return () => void this.waiting.delete(listener);
  }

  private wake(): void {
    if (this.waiting.size === 0) return;
    const listeners = [...this.waiting];
    this.waiting.clear();
    for (const listener of listeners) listener();
  }
}
