import { MqAdminError } from '../core/errors.js';
import { assertGroupName } from '../core/names.js';
import { parseRetryEntry } from '../core/retry-entry.js';
import { compareStreamIds, isStreamId } from '../core/stream-id.js';
import type { Command } from '../redis/connection.js';
import { replyCode } from '../redis/redis-errors.js';
import { asArray, asEntries, asNumber, asText, type Reply } from '../redis/reply.js';
import { valueOf } from '../redis/spread.js';
import { invalidArgument, partitionsOf, requirePartition, requireTopic, type AdminDeps } from './admin-deps.js';
import { badCursor, limitOf, type Page, type PageOptions } from './paging.js';
import { toRetainedMessage, type RetainedMessage } from './retained-message.js';

/** Which pending messages are listed. */
export interface PendingListOptions extends PageOptions {
  /** Only of this partition. */
  readonly partition?: number;
  /** Only those that nobody has been given for this long, in milliseconds. @defaultValue 0 */
  readonly minIdleMs?: number;
  /** Oldest id first, longest idle first, or most deliveries first. @defaultValue 'id' */
  readonly sortBy?: 'id' | 'idle' | 'deliveries';
  /** Read the messages, too. @defaultValue false */
  readonly messages?: boolean;
}

/** A message that a consumer was given and that is not settled. */
export interface PendingEntry {
  readonly partition: number;
  /** Where it is pending: the partition's stream, or the group's retry stream. */
  readonly source: 'stream' | 'retry';
  /** Id on that source. */
  readonly id: string;
  readonly consumer: string;
  /** Since it was given to that consumer, in milliseconds. */
  readonly idleMs: number;
  /** How often it was given out. Attempts of a handler are counted elsewhere; see `attemptsMade`. */
  readonly deliveries: number;
  /** With `messages`: the message, `null` when it is no longer in the stream. Its `id` is that of the original entry. */
  readonly message?: RetainedMessage | null;
  /** With `messages`, of a retry: handler calls made before this one. */
  readonly attemptsMade?: number;
}

/** A page of what a group has taken and not settled. */
export interface PendingPage extends Page<PendingEntry> {
  /** False when more entries are pending than were sorted (10000), so that some are in no page. Always true by id. */
  readonly isComplete: boolean;
}

interface Source {
  readonly partition: number;
  readonly source: 'stream' | 'retry';
  readonly key: string;
}

/** Entries that are read to be sorted by anything but their ids. */
const SORTED = 10_000;

/** The pending entries lists of a group, over the partitions of a topic. */
export class PendingEntries {
  constructor(private readonly deps: AdminDeps) {}

  async list(topic: string, group: string, options: PendingListOptions = {}): Promise<PendingPage> {
    const limit = limitOf(options.limit);
    const { partition, minIdleMs = 0, sortBy = 'id', cursor, messages = false } = options;
    assertGroupName(group);
    if (!Number.isSafeInteger(minIdleMs) || minIdleMs < 0) {
      throw invalidArgument('minIdleMs must be a whole number of milliseconds, 0 or more');
    }
    if (!['id', 'idle', 'deliveries'].includes(sortBy)) {
      throw invalidArgument("sortBy must be 'id', 'idle' or 'deliveries'");
    }
    const meta = await requireTopic(this.deps, topic);
    if (partition !== undefined) await requirePartition(this.deps, topic, partition);
    const sources = (partition === undefined ? partitionsOf(meta) : [partition]).flatMap((of): Source[] => {
      const { stream, retryStream } = this.deps.keys.groupPartition(topic, of, group);
      return [
        { partition: of, source: 'stream', key: stream },
        { partition: of, source: 'retry', key: retryStream },
      ];
    });
    const read = (
      at: readonly Source[],
      starts: (source: Source) => string,
      count: number,
    ): Promise<PendingEntry[][]> => this.read(topic, group, at, minIdleMs, starts, count);
    const page = sortBy === 'id' ? byId(sources, cursor, limit, read) : sorted(sources, cursor, limit, sortBy, read);
    const { items, ...rest } = await page;
    return { ...rest, items: messages ? await this.withMessages(topic, group, items) : items };
  }

  /** Of each source the first `count` entries from where it starts. */
  private async read(
    topic: string,
    group: string,
    sources: readonly Source[],
    minIdleMs: number,
    starts: (source: Source) => string,
    count: number,
  ): Promise<PendingEntry[][]> {
    const replies = await this.deps.spread.send(
      sources.map((source): Command => {
        const idle = minIdleMs > 0 ? ['IDLE', minIdleMs] : [];
        return ['XPENDING', source.key, group, ...idle, starts(source), '+', count];
      }),
    );
    let isKnown = false;
    const entries = replies.map((reply, i) => {
      // A retry stream is made with the group, and a partition may not have met the group yet.
      if (!reply.ok && replyCode(reply.error) === 'NOGROUP') return [];
      isKnown = true;
      return asArray(valueOf(reply)).map((item) => toPendingEntry(sources[i]!, item));
    });
    if (isKnown || sources.length === 0) return entries;
    throw new MqAdminError('MQ_GROUP_NOT_FOUND', `topic ${topic} has no group ${group}`, { context: { topic, group } });
  }

  private async withMessages(topic: string, group: string, items: readonly PendingEntry[]): Promise<PendingEntry[]> {
    const { keys, spread, serializer } = this.deps;
    const replies = await spread.send(
      items.map(({ partition, source, id }): Command => {
        const { stream, retryStream } = keys.groupPartition(topic, partition, group);
        return ['XRANGE', source === 'retry' ? retryStream : stream, id, id];
      }),
    );
    return items.map((item, i) => {
      const fields = asEntries(valueOf(replies[i]!))[0]?.fields;
      if (!fields) return { ...item, message: null };
      const retry = item.source === 'retry' ? parseRetryEntry(fields) : null;
      const place = { topic, partition: item.partition, id: isStreamId(retry?.origin) ? retry.origin : item.id };
      const message = toRetainedMessage(place, retry?.fields ?? fields, serializer);
      return retry === null ? { ...item, message } : { ...item, message, attemptsMade: retry.attemptsMade };
    });
  }
}

type Read = (
  sources: readonly Source[],
  starts: (source: Source) => string,
  count: number,
) => Promise<PendingEntry[][]>;

/** Merged over the sources, oldest first; entries with the same id in the order of their sources. */
async function byId(
  sources: readonly Source[],
  cursor: string | undefined,
  limit: number,
  read: Read,
): Promise<PendingPage> {
  const after = cursor === undefined ? null : parseCursor(cursor);
  const starts = (source: Source): string => {
    if (after === null) return '-';
    return compareSources(source, after) <= 0 ? `(${after.id}` : after.id;
  };
  const entries = (await read(sources, starts, limit)).flat();
  entries.sort((a, b) => compareStreamIds(a.id, b.id) || compareSources(a, b));
  const items = entries.slice(0, limit);
  const last = items.at(-1);
  const isLast = items.length < limit || last === undefined;
  return { items, cursor: isLast ? null : `${last.id}/${last.partition}/${last.source}`, isComplete: true };
}

/** By something that changes while one looks: each page sorts anew, and goes on after as many as were seen. */
async function sorted(
  sources: readonly Source[],
  cursor: string | undefined,
  limit: number,
  sortBy: 'idle' | 'deliveries',
  read: Read,
): Promise<PendingPage> {
  if (cursor !== undefined && !/^\d{1,5}$/.test(cursor)) throw badCursor(cursor);
  const offset = Number(cursor ?? 0);
  const entries: PendingEntry[] = [];
  // The oldest of each partition first, as far as the bound goes.
  let left = new Map<Source, string>(sources.map((source) => [source, '-']));
  while (left.size > 0 && entries.length < SORTED) {
    const count = Math.max(1, Math.min(1_000, Math.ceil((SORTED - entries.length) / left.size)));
    const open = [...left.keys()];
    const known = left;
    const pages = await read(open, (source) => known.get(source)!, count);
    entries.push(...pages.flat());
    left = new Map(
      open.flatMap((source, i): [Source, string][] => {
        const page = pages[i]!;
        return page.length < count ? [] : [[source, `(${page.at(-1)!.id}`]];
      }),
    );
  }
  const value = sortBy === 'idle' ? 'idleMs' : 'deliveries';
  entries.sort((a, b) => b[value] - a[value] || compareStreamIds(a.id, b.id) || compareSources(a, b));
  const end = offset + limit;
  return {
    items: entries.slice(offset, end),
    cursor: entries.length > end ? String(end) : null,
    isComplete: left.size === 0,
  };
}

function compareSources(a: Pick<Source, 'partition' | 'source'>, b: Pick<Source, 'partition' | 'source'>): number {
  return a.partition - b.partition || Number(a.source === 'retry') - Number(b.source === 'retry');
}

function toPendingEntry({ partition, source }: Source, reply: Reply): PendingEntry {
  const [id, consumer, idleMs, deliveries] = asArray(reply);
  return {
    partition,
    source,
    id: asText(id),
    consumer: asText(consumer),
    idleMs: asNumber(idleMs),
    deliveries: asNumber(deliveries),
  };
}

/** `<id>/<partition>/<source>`. */
function parseCursor(cursor: string): Pick<PendingEntry, 'id' | 'partition' | 'source'> {
  const [, id, partition, source] = /^(\d+-\d+)\/(\d{1,4})\/(stream|retry)$/.exec(cursor) ?? [];
  if (!isStreamId(id)) throw badCursor(cursor);
  return { id, partition: Number(partition), source: source as 'stream' | 'retry' };
}
