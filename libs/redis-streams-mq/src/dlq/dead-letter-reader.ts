import type { DeadLetter } from '../core/dead-letter.js';
import type { Keys } from '../core/keys.js';
import type { Connection } from '../redis/connection.js';
import { asNumber } from '../redis/reply.js';
import { call } from '../redis/script.js';
import {
  dlqCount,
  dlqPage,
  type DeadLetterCountReply,
  type DeadLetterPageReply,
  type RawDeadLetter,
} from '../redis/scripts/dlq.script.js';
import type { CheckedFilter } from './dead-letter-filter.js';
import { toDeadLetter } from './dead-letter.js';
import { comparePlaces, type Place } from './dead-letter-place.js';

export interface DeadLetterReaderDeps {
  readonly connection: Connection;
  readonly keys: Keys;
}

export type ReadOrder = 'oldest-first' | 'newest-first';

export interface ReadRequest {
  readonly topic: string;
  readonly filter: CheckedFilter;
  readonly order: ReadOrder;
  readonly limit: number;
  /** Letters looked at before the page ends, full or not. */
  readonly mostLooked: number;
  readonly after: Place | null;
  /** Per partition the last id to be read, or `null` where none is. */
  readonly ends: readonly (string | null)[];
  /** Without fields, stack and history. */
  readonly heads: boolean;
}

export interface ReadPage {
  readonly letters: readonly DeadLetter[];
  /** Everything up to here was looked at; `null` after the end. */
  readonly reached: Place | null;
}

/** Entries looked at by one script: a millisecond or two of the server's time. */
const SCAN = 250;
/** Letters asked for from a partition at least. */
const LEAST = 10;
const HEADS = 200;

const NEWEST = { low: '-', high: '+', count: 1, scan: 1, newestFirst: 1, heads: 1 } as const;
const NO_FILTER: CheckedFilter = { group: undefined, failedFrom: '', failedTo: '', conditions: [] };

/** Reads the dead letters of a topic's partitions as one list in the order of time. Every script looks at a bounded number. */
export class DeadLetterReader {
  constructor(private readonly deps: DeadLetterReaderDeps) {}

  async get(topic: string, { partition, id }: Place): Promise<DeadLetter | null> {
    const { letters } = await this.script(topic, partition, { low: id, high: id, count: 1, scan: 1 });
    return letters[0] === undefined ? null : toDeadLetter(topic, partition, letters[0]);
  }

  /** One page. Letters are merged as far as every partition has been looked at. */
  async page(request: ReadRequest): Promise<ReadPage> {
    const { topic, limit, mostLooked, order } = request;
    const isBefore = (a: Place, b: Place): boolean =>
      order === 'oldest-first' ? comparePlaces(a, b) < 0 : comparePlaces(a, b) > 0;
    const found: DeadLetter[] = [];
    let { after } = request;
    for (let looked = 0; ;) {
      const pages = await this.round({ ...request, after, limit: limit - found.length });
      const letters: { readonly place: Place; readonly raw: RawDeadLetter }[] = [];
      let horizon: Place | null = null;
      for (const [partition, page] of pages.entries()) {
        if (page === null) continue;
        looked += page.looked;
        for (const raw of page.letters) letters.push({ place: { partition, id: raw.id }, raw });
        if (page.isEnd || page.lastId === null) continue;
        const reached = { partition, id: page.lastId };
        if (horizon === null || isBefore(reached, horizon)) horizon = reached;
      }
      letters.sort((a, b) => (isBefore(a.place, b.place) ? -1 : 1));
      for (const { place, raw } of letters) {
        if (horizon !== null && isBefore(horizon, place)) break;
        found.push(toDeadLetter(topic, place.partition, raw));
        if (found.length < limit) continue;
        const isLast = horizon === null && place === letters.at(-1)!.place;
        return { letters: found, reached: isLast ? null : place };
      }
      if (horizon === null || looked >= mostLooked) return { letters: found, reached: horizon };
      after = horizon;
    }
  }

  /** Heads of all letters that match, page by page. Those that arrive meanwhile are not among them, or it might never end. */
  async *heads(
    topic: string,
    partitionCount: number,
    filter: CheckedFilter,
  ): AsyncGenerator<readonly DeadLetter[], void, undefined> {
    const ends = await this.ends(topic, partitionCount);
    let after: Place | null = null;
    do {
      const request = {
        topic,
        filter,
        order: 'oldest-first',
        limit: HEADS,
        mostLooked: 10 * SCAN,
        heads: true,
      } as const;
      const page: ReadPage = await this.page({ ...request, after, ends });
      yield page.letters;
      after = page.reached;
    } while (after !== null);
  }

  /** The newest id of each partition, `null` where there is no letter. */
  async ends(topic: string, partitionCount: number): Promise<(string | null)[]> {
    const pages = await everyPartition(partitionCount, (partition) => this.script(topic, partition, NEWEST));
    return pages.map(({ letters }) => letters[0]?.id ?? null);
  }

  async lengths(topic: string, partitionCount: number): Promise<number[]> {
    const { connection, keys } = this.deps;
    const length = async (partition: number): Promise<number> =>
      asNumber(await connection.send('XLEN', keys.partition(topic, partition).dlq));
    return everyPartition(partitionCount, length);
  }

  /** Counts of a partition's letters by group and reason, script by script, until its end or `most` were looked at. */
  async *counts(
    topic: string,
    partition: number,
    filter: CheckedFilter,
    most: number,
  ): AsyncGenerator<DeadLetterCountReply, void, undefined> {
    const { connection, keys } = this.deps;
    const newest = await this.script(topic, partition, NEWEST);
    const high = newest.letters[0]?.id;
    if (high === undefined) return;
    const { failedFrom, failedTo, conditions } = filter;
    let low = '-';
    for (let looked = 0; ;) {
      const args = { low, high, scan: 2 * SCAN, failedFrom, failedTo };
      const reply = await connection.run(call(dlqCount, keys.partition(topic, partition), args, conditions));
      yield reply;
      looked += reply.looked;
      if (reply.isEnd || reply.lastId === null || looked >= most) return;
      low = `(${reply.lastId}`;
    }
  }

  private async round(request: ReadRequest): Promise<(DeadLetterPageReply | null)[]> {
    const { topic, filter, order, limit, after, ends, heads } = request;
    // More than its share, as letters are not spread evenly; what is missing comes with the next round.
    const count = Math.min(limit, Math.max(LEAST, Math.ceil((2 * limit) / ends.length)));
    return everyPartition(ends.length, async (partition) => {
      const end = ends[partition];
      if (end === null || end === undefined) return null;
      const range = rangeAfter(after, partition, order, end);
      return this.script(topic, partition, {
        ...range,
        count,
        scan: SCAN,
        newestFirst: order === 'newest-first' ? 1 : 0,
        heads: heads ? 1 : 0,
        filter,
      });
    });
  }

  private script(
    topic: string,
    partition: number,
    args: {
      readonly low: string;
      readonly high: string;
      readonly count: number;
      readonly scan: number;
      readonly newestFirst?: 0 | 1;
      readonly heads?: 0 | 1;
      readonly filter?: CheckedFilter;
    },
  ): Promise<DeadLetterPageReply> {
    const { newestFirst = 0, heads = 0, filter = NO_FILTER, ...range } = args;
    const { failedFrom, failedTo, conditions } = filter;
    const all = { ...range, newestFirst, heads, failedFrom, failedTo };
    return this.deps.connection.run(call(dlqPage, this.deps.keys.partition(topic, partition), all, conditions));
  }
}

/** What is left of a partition behind a place of the whole list. */
function rangeAfter(
  after: Place | null,
  partition: number,
  order: ReadOrder,
  end: string,
): { readonly low: string; readonly high: string } {
  if (order === 'oldest-first') {
    if (after === null) return { low: '-', high: end };
    return { low: partition <= after.partition ? `(${after.id}` : after.id, high: end };
  }
  if (after === null) return { low: '-', high: end };
  return { low: '-', high: partition >= after.partition ? `(${after.id}` : after.id };
}

const AT_ONCE = 64;

/** Asks every partition, so many at once. */
async function everyPartition<T>(count: number, ask: (partition: number) => Promise<T>): Promise<T[]> {
  const answers: T[] = [];
  for (let from = 0; from < count; from += AT_ONCE) {
    const size = Math.min(AT_ONCE, count - from);
    answers.push(...(await Promise.all(Array.from({ length: size }, (_, i) => ask(from + i)))));
  }
  return answers;
}
