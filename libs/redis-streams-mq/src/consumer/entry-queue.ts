import type { Entry } from './entry.js';
import type { LaneRule } from './lane.js';

/** A lane that is taken: by an entry that is being handled, or that is to be handled next. */
interface Lane {
  takenBy: Entry;
  /** In the order of the partition. */
  waiting: Entry[];
}

/**
 * Entries of one partition that may be handled next, in order, between whoever fetches them and whoever handles them.
 * With lanes, what shares the lane of an entry that was taken waits until that lane is freed; everything else passes.
 * While it is frozen nothing can be taken: what comes before its head is being fetched.
 */
export class EntryQueue {
  private entries: Entry[] = [];
  /** Index of the head: shifting an array of thousands for each message would copy it each time. */
  private head = 0;
  /** Their lanes came free: they are older than all that nobody has looked at. */
  private freed: Entry[] = [];
  private readonly lanes = new Map<string, Lane>();
  private waitingInLanes = 0;
  private isLow = true;
  private frozen = false;
  private wake: (() => void) | undefined;

  /** `lowMark`: `onLow` is called when fewer than this many are left. */
  constructor(
    private readonly lowMark: number,
    private readonly onLow: () => void,
    private readonly laneOf: LaneRule | null = null,
  ) {}

  get length(): number {
    return this.entries.length - this.head + this.freed.length + this.waitingInLanes;
  }

  push(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (this.laneOf !== null) entry.lane = this.laneOf(entry);
      this.entries.push(entry);
    }
    this.isLow = this.length < this.lowMark;
    this.notify();
  }

  /** What `take` would give. */
  peek(): Entry | undefined {
    return this.frozen ? undefined : this.next();
  }

  /** The next entry; `undefined` when there is none or the queue is frozen. Its lane is taken until `free`. */
  take(): Entry | undefined {
    const entry = this.peek();
    if (entry === undefined) return undefined;
    if (this.freed[0] === entry) this.freed.shift();
    else this.passHead();
    if (entry.lane !== undefined && !this.lanes.has(entry.lane)) {
      this.lanes.set(entry.lane, { takenBy: entry, waiting: [] });
    }
    this.lowered();
    return entry;
  }

  /** An entry that was taken is out of the way of what shares its lane. */
  free(entry: Entry): void {
    const lane = entry.lane === undefined ? undefined : this.lanes.get(entry.lane);
    if (lane?.takenBy !== entry) return;
    const next = lane.waiting.shift();
    if (next === undefined) {
      this.lanes.delete(entry.lane!);
    } else {
      this.waitingInLanes--;
      lane.takenBy = next;
      this.freed.push(next);
    }
    this.notify();
  }

  /** Puts these in the place of all that waits. What has been taken keeps its lane. */
  replace(entries: readonly Entry[]): void {
    this.entries = [];
    this.head = 0;
    this.waitingInLanes = 0;
    const freed = new Set(this.freed);
    this.freed = [];
    for (const [name, lane] of this.lanes) {
      if (freed.has(lane.takenBy)) this.lanes.delete(name);
      else lane.waiting = [];
    }
    this.push(entries);
  }

  clear(): void {
    this.replace([]);
  }

  freeze(): void {
    this.frozen = true;
  }

  thaw(): void {
    this.frozen = false;
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

  /** The first entry whose lane is free; those before it have gone to wait in theirs. */
  private next(): Entry | undefined {
    if (this.freed.length > 0) return this.freed[0];
    for (;;) {
      const entry = this.entries[this.head];
      if (entry?.lane === undefined) return entry;
      const lane = this.lanes.get(entry.lane);
      if (lane === undefined) return entry;
      lane.waiting.push(entry);
      this.waitingInLanes++;
      this.passHead();
    }
  }

  private passHead(): void {
    this.head++;
    if (this.head === this.entries.length) {
      this.entries = [];
      this.head = 0;
    } else if (this.head === 1_024) {
      this.entries = this.entries.slice(this.head);
      this.head = 0;
    }
  }

  private lowered(): void {
    if (this.isLow || this.length >= this.lowMark) return;
    this.isLow = true;
    this.onLow();
  }
}
