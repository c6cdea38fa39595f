import { compareStreamIds, nextStreamId } from '../../core/stream-id.js';
import { ReplyError, type Bytes } from './values.js';

export interface StreamEntry {
  readonly id: string;
  /** Names and values in turn. */
  readonly fields: readonly Bytes[];
}

export interface PendingEntry {
  readonly id: string;
  consumer: Bytes;
  deliveredAt: number;
  deliveries: number;
}

/** A consumer group of a stream. */
export class StreamGroup {
  readonly pending: Map<string, PendingEntry> = new Map();
  readonly consumers: Set<Bytes> = new Set();

  constructor(public lastDelivered: string) {}

  /** In the order of ids. */
  pendingInOrder(): PendingEntry[] {
    return [...this.pending.values()].sort((a, b) => compareStreamIds(a.id, b.id));
  }
}

export class Stream {
  entries: StreamEntry[] = [];
  lastId = '0-0';
  entriesAdded = 0;
  maxDeletedId = '0-0';
  readonly groups: Map<Bytes, StreamGroup> = new Map();

  /** @param id - `*`, `ms-*` or an id behind the last one. @throws ReplyError */
  add(id: string, fields: readonly Bytes[], now: number): string {
    const chosen = this.chooseId(id, now);
    this.entries.push({ id: chosen, fields });
    this.lastId = chosen;
    this.entriesAdded++;
    return chosen;
  }

  /** Entries from `start` to `end`, both included. */
  between(start: string, end: string, count: number = Infinity): StreamEntry[] {
    const found: StreamEntry[] = [];
    for (let i = this.indexOf(start); i < this.entries.length && found.length < count; i++) {
      const entry = this.entries[i]!;
      if (compareStreamIds(entry.id, end) > 0) break;
      found.push(entry);
    }
    return found;
  }

  after(id: string, count: number = Infinity): StreamEntry[] {
    const at = this.indexOf(id);
    const from = this.entries[at]?.id === id ? at + 1 : at;
    return this.entries.slice(from, count === Infinity ? undefined : from + count);
  }

  get(id: string): StreamEntry | undefined {
    const entry = this.entries[this.indexOf(id)];
    return entry?.id === id ? entry : undefined;
  }

  delete(id: string): boolean {
    const at = this.indexOf(id);
    if (this.entries[at]?.id !== id) return false;
    this.entries.splice(at, 1);
    if (compareStreamIds(id, this.maxDeletedId) > 0) this.maxDeletedId = id;
    return true;
  }

  /** Removes the oldest `count` entries. */
  dropOldest(count: number): number {
    const dropped = this.entries.splice(0, Math.max(0, count));
    const last = dropped.at(-1);
    if (last !== undefined && compareStreamIds(last.id, this.maxDeletedId) > 0) this.maxDeletedId = last.id;
    return dropped.length;
  }

  /** Where the first entry with this id or a later one stands. */
  indexOf(id: string): number {
    let low = 0;
    let high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareStreamIds(this.entries[middle]!.id, id) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private chooseId(id: string, now: number): string {
    if (id === '*') {
      const fresh = `${Math.floor(now)}-0`;
      return compareStreamIds(fresh, this.lastId) > 0 ? fresh : nextStreamId(this.lastId);
    }
    const whole = id.includes('-') ? id : `${id}-0`;
    if (compareStreamIds(whole, this.lastId) <= 0) {
      throw new ReplyError('ERR The ID specified in XADD is equal or smaller than the target stream top item');
    }
    return whole;
  }
}
