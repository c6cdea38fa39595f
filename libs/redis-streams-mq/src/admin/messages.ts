import { compareStreamIds, isStreamId } from '../core/stream-id.js';
import type { Command } from '../redis/connection.js';
import { asEntries, type RawEntry } from '../redis/reply.js';
import { valueOf } from '../redis/spread.js';
import { invalidArgument, partitionsOf, requirePartition, requireTopic, type AdminDeps } from './admin-deps.js';
import { badCursor, limitOf, type Page, type PageOptions } from './paging.js';
import { toRetainedMessage, type RetainedMessage } from './retained-message.js';

/** A place in a partition: a stream id, or a point in time by the server's clock (milliseconds or Date). */
export type StreamBound = string | number | Date;

/** Which retained messages are read. */
export interface MessageRangeOptions extends PageOptions {
  /** The oldest to return, itself included. @defaultValue the oldest there is */
  readonly from?: StreamBound;
  /** The newest to return, itself included. @defaultValue the newest there is */
  readonly to?: StreamBound;
  /** @defaultValue 'oldest-first' */
  readonly order?: 'oldest-first' | 'newest-first';
}

/** A page ends after this many bytes, however many messages were asked for. */
const PAGE_BYTES = 16 * 1024 * 1024;

/** Reads what is retained. Handled or not does not matter, and reading changes nothing. */
export class Messages {
  constructor(private readonly deps: AdminDeps) {}

  async range(topic: string, partition: number, options: MessageRangeOptions = {}): Promise<Page<RetainedMessage>> {
    const limit = limitOf(options.limit);
    const { order = 'oldest-first', cursor } = options;
    if (order !== 'oldest-first' && order !== 'newest-first') {
      throw invalidArgument("order must be 'oldest-first' or 'newest-first'");
    }
    let start = options.from === undefined ? '-' : boundOf(options.from, 'from');
    let stop = options.to === undefined ? '+' : boundOf(options.to, 'to');
    if (cursor !== undefined && !isStreamId(cursor)) throw badCursor(cursor);
    await requirePartition(this.deps, topic, partition);
    const stream = this.deps.keys.stream(topic, partition);
    const entries: RawEntry[] = [];
    let last = cursor;
    for (let bytes = 0, count = 10; entries.length < limit && bytes < PAGE_BYTES; count *= 4) {
      if (last !== undefined && order === 'oldest-first') start = `(${last}`;
      else if (last !== undefined) stop = `(${last}`;
      const asked = Math.min(count, limit - entries.length);
      const command: Command =
        order === 'oldest-first'
          ? ['XRANGE', stream, start, stop, 'COUNT', asked]
          : ['XREVRANGE', stream, stop, start, 'COUNT', asked];
      const [name, ...args] = command;
      const page = asEntries(await this.deps.connection.send(name, ...args));
      entries.push(...page);
      if (page.length < asked) return { items: this.decode(topic, partition, entries), cursor: null };
      last = page.at(-1)!.id;
      bytes += page.reduce((sum, entry) => sum + bytesOf(entry), 0);
    }
    return { items: this.decode(topic, partition, entries), cursor: last ?? null };
  }

  /** The newest `count` of all partitions together, newest first. */
  async newest(topic: string, count: number): Promise<RetainedMessage[]> {
    const wanted = limitOf(count, 'count');
    const partitions = partitionsOf(await requireTopic(this.deps, topic));
    // A partition gives a little more than its share, and more only when all of that was taken.
    const share = Math.max(1, Math.ceil((2 * wanted) / partitions.length));
    const sources = partitions.map((partition) => ({ partition, entries: [] as RawEntry[], taken: 0, isDry: false }));
    const taken: RetainedMessage[] = [];
    while (taken.length < wanted) {
      const empty = sources.filter((source) => source.taken === source.entries.length && !source.isDry);
      const replies = await this.deps.spread.send(
        empty.map(({ partition, entries }): Command => {
          const last = entries.at(-1);
          const end = last === undefined ? '+' : `(${last.id}`;
          return ['XREVRANGE', this.deps.keys.stream(topic, partition), end, '-', 'COUNT', share];
        }),
      );
      for (const [i, source] of empty.entries()) {
        const page = asEntries(valueOf(replies[i]!));
        source.entries = page;
        source.taken = 0;
        source.isDry = page.length < share;
      }
      while (taken.length < wanted) {
        const first = sources.reduce<(typeof sources)[number] | undefined>((best, source) => {
          const entry = source.entries[source.taken];
          if (entry === undefined) return best;
          const known = best?.entries[best.taken];
          return known === undefined || compareStreamIds(entry.id, known.id) > 0 ? source : best;
        }, undefined);
        if (first === undefined) return taken;
        taken.push(...this.decode(topic, first.partition, [first.entries[first.taken++]!]));
        if (first.taken === first.entries.length && !first.isDry) break;
      }
    }
    return taken;
  }

  async get(topic: string, partition: number, id: string): Promise<RetainedMessage | null> {
    if (!isStreamId(id)) throw invalidArgument(`${JSON.stringify(id)} is not a stream id (<milliseconds>-<sequence>)`);
    await requirePartition(this.deps, topic, partition);
    const stream = this.deps.keys.stream(topic, partition);
    const entries = asEntries(await this.deps.connection.send('XRANGE', stream, id, id));
    return this.decode(topic, partition, entries)[0] ?? null;
  }

  private decode(topic: string, partition: number, entries: readonly RawEntry[]): RetainedMessage[] {
    const { serializer } = this.deps;
    return entries.map(({ id, fields }) => toRetainedMessage({ topic, partition, id }, fields ?? [], serializer));
  }
}

function boundOf(bound: StreamBound, name: string): string {
  if (isStreamId(bound)) return bound;
  const ms = bound instanceof Date ? bound.getTime() : bound;
  // Of an id without its second part Redis takes the first or last of that millisecond, as the end is.
  if (typeof ms === 'number' && Number.isSafeInteger(ms) && ms >= 0) return String(ms);
  throw invalidArgument(`${name} must be a stream id, a Date or a whole number of milliseconds`);
}

function bytesOf({ fields }: RawEntry): number {
  return (fields ?? []).reduce((sum, field) => sum + field.length, 0);
}
