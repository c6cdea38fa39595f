/** Less room than this is no room: one read asks a partition's stream and the group's retry stream. */
export const LEAST_ROOM = 2;

/** Entries that the instance holds in memory, over all partitions, against `maxInFlight`; 0 means no bound. */
export class InFlight {
  private held = 0;
  private reserved = 0;
  private readers = 0;
  private readonly waiting = new Set<() => void>();
  private readonly fullListeners = new Set<() => void>();

  constructor(readonly max: number) {}

  get count(): number {
    return this.held;
  }

  addReader(): void {
    this.readers++;
  }

  removeReader(): void {
    this.readers--;
  }

  /** How many of `wanted` may be asked for now. What is granted must be given back by `unreserve` after the read. */
  reserve(wanted: number): number {
    if (this.max === 0) return wanted;
    const granted = Math.max(0, Math.min(wanted, this.room));
    this.reserved += granted;
    return granted;
  }

  /**
   * The same for a read that blocks, and so keeps what it was granted although nothing may come: no more than its share,
   * of which one is left for take-overs and for partitions that read by themselves.
   */
  reserveForReader(wanted: number): number {
    if (this.max === 0) return wanted;
    return this.reserve(Math.min(wanted, Math.max(LEAST_ROOM, Math.floor(this.max / (this.readers + 1)))));
  }

  unreserve(count: number): void {
    if (this.max === 0 || count === 0) return;
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

  /** Somebody waits for room: no more may come before something that is held has been settled. */
  get isFull(): boolean {
    return this.waiting.size > 0;
  }

  /** Calls whenever somebody begins to wait for room. */
  onFull(listener: () => void): () => void {
    this.fullListeners.add(listener);
    return () => void this.fullListeners.delete(listener);
  }

  /** Calls once when there is room again. */
  onRoom(listener: () => void): () => void {
    this.waiting.add(listener);
    for (const onFull of this.fullListeners) onFull();
    return () => void this.waiting.delete(listener);
  }

  private get room(): number {
    return this.max - this.held - this.reserved;
  }

  private wake(): void {
    if (this.waiting.size === 0 || this.room < LEAST_ROOM) return;
    const listeners = [...this.waiting];
    this.waiting.clear();
    for (const listener of listeners) listener();
  }
}
