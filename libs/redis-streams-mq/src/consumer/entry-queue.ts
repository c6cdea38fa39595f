import type { Entry } from './entry.js';

/**
 * Entries of one partition that may be handled next, in order, between whoever fetches them and whoever handles them.
 * While it is held nothing can be taken: what comes before its head is being fetched.
 */
export class EntryQueue {
  private entries: Entry[] = [];
  /** Index of the head: shifting an array of thousands for each message would copy it each time. */
  private head = 0;
  private held = false;
  private wake: (() => void) | undefined;

  /** `lowMark`: `onLow` is called when an entry is taken and fewer than this many are left. */
  constructor(
    private readonly lowMark: number,
    private readonly onLow: () => void,
  ) {}

  get length(): number {
    return this.entries.length - this.head;
  }

  push(entries: readonly Entry[]): void {
    for (const entry of entries) this.entries.push(entry);
    this.notify();
  }

  /** The next entry; `undefined` when there is none or the queue is held. */
  take(): Entry | undefined {
    if (this.held || this.length === 0) return undefined;
    const entry = this.entries[this.head++];
    if (this.head === this.entries.length) {
      this.entries = [];
      this.head = 0;
    } else if (this.head === 1_024) {
      this.entries = this.entries.slice(this.head);
      this.head = 0;
    }
    if (this.length === this.lowMark - 1) this.onLow();
    return entry;
  }

  /** Whether `take` would give an entry. */
  get isReady(): boolean {
    return !this.held && this.length > 0;
  }

  replace(entries: readonly Entry[]): void {
    this.entries = [...entries];
    this.head = 0;
    this.notify();
  }

  clear(): void {
    this.replace([]);
  }

  hold(): void {
    this.held = true;
  }

  unhold(): void {
    this.held = false;
    this.notify();
  }

  /** Resolves when something has changed: look again. */
  changed(): Promise<void> {
    return new Promise((resolve) => (this.wake = resolve));
  }

  notify(): void {
    const { wake } = this;
    this.wake = undefined;
    wake?.();
  }
}
