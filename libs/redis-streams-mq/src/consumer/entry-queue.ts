import type { Entry } from './entry.js';
import type { LaneRule } from './lane-rule.js';
import { Lanes, type LanesDeps } from './lanes.js';

export interface EntryQueueDeps extends Omit<LanesDeps, 'ready'> {
  /** Called when fewer entries than `lowMark` are left. */
  readonly onLow: () => void;
  readonly lowMark: number;
  readonly laneOf: LaneRule | null;
  /** Nothing more is wanted while so many wait behind failing ones. */
  readonly maxShelved: number;
  /** Called when so many wait. */
  readonly onFull: () => void;
}

/**
 * Entries of one partition that may be handled next, in order, between whoever fetches them and whoever handles them.
 * With lanes, what shares the lane of an entry that was taken waits until that lane is freed; everything else passes.
 * While it is frozen nothing can be taken: what comes before its head is being fetched.
 */
export class EntryQueue {
  private entries: (Entry | undefined)[] = [];
  /** Index of the head: shifting an array of thousands for each message would copy it each time. */
  private head = 0;
  /** Those whose lane came free: they are older than all that nobody has looked at. */
  private freed: Entry[] = [];
  private readonly lanes: Lanes;
  private isLow = true;
  private wasFull = false;
  private frozen = false;
  private wake: (() => void) | undefined;

  constructor(private readonly deps: EntryQueueDeps) {
    const ready = (entry: Entry): void => {
      this.freed.push(entry);
      this.notify();
    };
    this.lanes = new Lanes({ ...deps, ready });
  }

  /** With their fields in memory. */
  get length(): number {
    return this.entries.length - this.head + this.freed.length + this.lanes.waiting;
  }

  /** As many as may be wait behind failing ones. */
  get isFull(): boolean {
    return this.deps.ledger.shelved >= this.deps.maxShelved;
  }

  get hasRoom(): boolean {
    return this.length < this.deps.lowMark && !this.isFull;
  }

  push(entries: readonly Entry[]): void {
    const { laneOf } = this.deps;
    for (const entry of entries) {
      if (laneOf !== null && entry.fields !== null) entry.lane = laneOf(entry.fields);
      this.entries.push(entry);
    }
    this.isLow = this.hasRoom;
    this.notify();
  }

  /** What `take` would give. */
  peek(): Entry | undefined {
    return this.frozen ? undefined : this.next();
  }

  /** The next entry; `undefined` when there is none or the queue is frozen. Its lane is taken until it is freed. */
  take(): Entry | undefined {
    const entry = this.peek();
    if (entry === undefined) return undefined;
    if (this.freed[0] === entry) this.freed.shift();
    else this.passHead();
    this.lanes.take(entry);
    this.lookForRoom();
    return entry;
  }

  /** What comes next, as long as owners may have died on it and it is not marked; at most `limit`. */
  suspects(limit: number): Entry[] {
    const found: Entry[] = [];
    for (let at = this.head; at < this.entries.length && found.length < limit; at++) {
      const entry = this.entries[at]!;
      if (!entry.suspect || entry.isMarked) break;
      found.push(entry);
    }
    return found;
  }

  /** An entry that was taken, or held back, is out of the way of what shares its lane. */
  free(entry: Entry): void {
    if (entry.lane === undefined) return;
    this.lanes.free(entry);
    this.lookForRoom();
    this.notify();
  }

  /** An entry that was taken is to be taken again after `ms`, before what shares its lane. */
  holdBack(entry: Entry, ms: number): void {
    this.lanes.holdBack(entry, ms);
    this.lookForRoom();
  }

  recalled(entry: Entry, fields: readonly Buffer[]): void {
    this.lanes.recalled(entry, fields);
    this.lookForRoom();
  }

  missing(entry: Entry): void {
    this.lanes.missing(entry);
    this.lookForRoom();
  }

  /** Puts these in the place of all that waits. What has been taken keeps its lane, and so does what is held back. */
  replace(entries: readonly Entry[]): void {
    this.empty(true);
    this.push(entries);
  }

  /** Only what has been taken keeps its lane. */
  clear(): void {
    this.empty(false);
    this.push([]);
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

  /** Says what has changed. To be called also when the ledger gives up what was shelved. */
  lookForRoom(): void {
    const { hasRoom, isFull } = this;
    if (isFull && !this.wasFull) this.deps.onFull();
    this.wasFull = isFull;
    if (hasRoom === this.isLow) return;
    this.isLow = hasRoom;
    if (hasRoom) this.deps.onLow();
  }

  /** The first entry whose lane is free; those before it have gone to wait in theirs. */
  private next(): Entry | undefined {
    if (this.freed.length > 0) return this.freed[0];
    let hasPassed = false;
    for (;;) {
      const entry = this.entries[this.head];
      const isFree = entry === undefined || (entry.lane === undefined && entry.notBefore === 0);
      if (isFree || this.lanes.admits(entry)) {
        if (hasPassed) this.lookForRoom();
        return this.freed[0] ?? entry;
      }
      this.passHead();
      hasPassed = true;
    }
  }

  private passHead(): void {
    // An array that has grown old keeps what is in it from being collected, even when nobody has the array any more.
    this.entries[this.head] = undefined;
    this.head++;
    if (this.head === this.entries.length) {
      this.entries = [];
      this.head = 0;
    } else if (this.head === 1_024) {
      this.entries = this.entries.slice(this.head);
      this.head = 0;
    }
  }

  private empty(keepHeld: boolean): void {
    this.entries = [];
    this.head = 0;
    this.freed = [];
    this.lanes.reset(keepHeld);
  }
}
