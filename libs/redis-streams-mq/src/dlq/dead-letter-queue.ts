import type { Clock } from '../core/clock.js';
import type { DeadLetter, DeadLetterEdit } from '../core/dead-letter.js';
import { MqAdminError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Keys } from '../core/keys.js';
import { assertTopicName } from '../core/names.js';
import type { Serializer } from '../core/serializer.js';
import type { Connection } from '../redis/connection.js';
import { asNumber } from '../redis/reply.js';
import type { TopicRegistry } from '../redis/topic-registry.js';
import { countLetters, type DeadLetterCounts } from './dead-letter-counts.js';
import { editArgs } from './dead-letter-edit.js';
import { checkFilter, invalid, type DeadLetterFilter } from './dead-letter-filter.js';
import { parsePlace, placeText } from './dead-letter-place.js';
import { DeadLetterReader } from './dead-letter-reader.js';
import { DeadLetterTransfer, type ImportReport } from './dead-letter-transfer.js';
import { DeadLetterReplay, type ReplayOptions, type ReplayReport } from './dead-letter-replay.js';
import { BULK_OPTIONS, checkBulk, type BulkOptions } from './pace.js';

/** Which dead letters are listed. */
export interface DeadLetterListOptions extends DeadLetterFilter {
  /** Letters a page, at most 1000. @defaultValue 50 */
  readonly limit?: number;
  /** The `cursor` of the page before. */
  readonly cursor?: string;
  /** @defaultValue 'oldest-first' */
  readonly order?: 'oldest-first' | 'newest-first';
}

/** A page of dead letters. */
export interface DeadLetterPage {
  /** In the order asked for, over all partitions. With a filter it may be short, or empty, before the end. */
  readonly items: readonly DeadLetter[];
  /** For the next page; `null` after the last. */
  readonly cursor: string | null;
}

/** A topic that has dead letters. */
export interface DeadLetterTopic {
  readonly topic: string;
  readonly size: number;
  /** Letters of each partition. */
  readonly partitions: readonly number[];
}

/** A page of topics that have dead letters. */
export interface DeadLetterTopicPage {
  /** In the order of their names. May be empty before the end. */
  readonly items: readonly DeadLetterTopic[];
  /** For the next page; `null` after the last. */
  readonly cursor: string | null;
}

/** Which dead letters are deleted, and in what steps. */
export interface ClearOptions extends DeadLetterFilter, BulkOptions<{ readonly deleted: number }> {}

export interface DeadLetterQueueDeps {
  readonly connection: Connection;
  readonly keys: Keys;
  readonly topics: TopicRegistry;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly serializer: Serializer;
  readonly maxPayloadBytes: number;
  /** Something became due in a bucket: its owner's mover should look. */
  readonly onDue: (topic: string, partition: number, group: string) => void;
}

const MAX_PAGE = 1_000;
/** Letters that one page looks at before it ends without being full: a filter that matches nothing stays cheap. */
const MOST_LOOKED = 10_000;
const COUNT_LIMIT = 1_000_000;

/**
 * The dead letters of all topics. A replay puts a letter back before its own group, with its attempts reset and its event id
 * kept, and takes it out of the DLQ in the same step.
 */
export class DeadLetterQueue {
  private readonly reader: DeadLetterReader;
  private readonly replaying: DeadLetterReplay;
  private readonly transfer: DeadLetterTransfer;

  constructor(private readonly deps: DeadLetterQueueDeps) {
    this.reader = new DeadLetterReader(deps);
    this.replaying = new DeadLetterReplay({ ...deps, reader: this.reader });
    this.transfer = new DeadLetterTransfer({ ...deps, reader: this.reader });
  }

  /**
   * One page, in the order of time over all partitions of the topic. It looks at some thousand letters at most, also when
   * the filter matches none: the cursor says where to go on.
   */
  async list(topic: string, options: DeadLetterListOptions = {}): Promise<DeadLetterPage> {
    const filter = checkFilter(options, ['limit', 'cursor', 'order']);
    const { limit = 50, cursor, order = 'oldest-first' } = options;
    if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE)
      throw invalid(`limit must be an integer from 1 to ${MAX_PAGE}`);
    if (order !== 'oldest-first' && order !== 'newest-first')
      throw invalid('order must be oldest-first or newest-first');
    const after = cursor === undefined ? null : parsePlace(cursor);
    const ends = Array<string>(await this.partitionCount(topic)).fill('+');
    const request = { topic, filter, order, limit, mostLooked: MOST_LOOKED, after, ends, heads: false };
    const { letters, reached } = await this.reader.page(request);
    return { items: letters, cursor: reached === null ? null : placeText(reached) };
  }

  /** How many letters the topic has; with a filter, how many of these (which looks at them all). */
  async size(topic: string, filter: DeadLetterFilter = {}): Promise<number> {
    const checked = checkFilter(filter);
    const partitionCount = await this.partitionCount(topic);
    if (Object.values(filter).some((condition) => condition !== undefined))
      return (await countLetters(this.reader, topic, partitionCount, checked, Infinity)).total;
    return (await this.reader.lengths(topic, partitionCount)).reduce((sum, length) => sum + length, 0);
  }

  /**
   * Counts by group and reason, from the letters themselves. Looks at a million at most in one call, and says by
   * `isComplete` whether these were all.
   */
  async counts(topic: string, filter: DeadLetterFilter = {}): Promise<DeadLetterCounts> {
    const checked = checkFilter(filter);
    return countLetters(this.reader, topic, await this.partitionCount(topic), checked, COUNT_LIMIT);
  }

  /**
   * Topics that have dead letters. A page looks at about `limit` topics (100 unless given); its cursor is only for the next
   * call. While topics are made or deleted, one may be in two pages.
   */
  async topics(options: { readonly limit?: number; readonly cursor?: string } = {}): Promise<DeadLetterTopicPage> {
    const { limit = 100, cursor = '0' } = options;
    if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE)
      throw invalid(`limit must be an integer from 1 to ${MAX_PAGE}`);
    if (typeof cursor !== 'string' || !/^\d{1,20}$/.test(cursor)) throw invalid('cursor is not that of another page');
    const looked = await this.deps.topics.scan(cursor, '', limit);
    const items: DeadLetterTopic[] = [];
    for (const topic of looked.names) {
      const meta = await this.deps.topics.refresh(topic);
      const partitions = meta === null ? [] : await this.reader.lengths(topic, meta.partitionCount);
      const size = partitions.reduce((sum, length) => sum + length, 0);
      if (size > 0) items.push({ topic, size, partitions });
    }
    return { items, cursor: looked.cursor === '0' ? null : looked.cursor };
  }

  /** One letter with its error, its attempts and its earlier deaths, or `null` when it is not there. */
  async get(topic: string, id: string): Promise<DeadLetter | null> {
    const place = parsePlace(id);
    await this.checkPartition(topic, place.partition);
    return this.reader.get(topic, place);
  }

  /**
   * Puts one letter back before its group, changed by `edit` if that is given. False when it is not there any more: of two
   * calls at once one gets true.
   * @throws MqAdminError `MQ_GROUP_PAUSED`, `MQ_GROUP_NOT_FOUND`, `MQ_RETRY_PENDING`, `MQ_DEAD_LETTER_UNREADABLE`
   */
  async replay(topic: string, id: string, edit?: DeadLetterEdit): Promise<boolean> {
    const edits = editArgs(topic, edit, this.deps);
    const letter = await this.get(topic, id);
    return letter !== null && this.replaying.one(letter, edits);
  }

  /**
   * Replays what is there now and matches, oldest first. Letters that arrive meanwhile are left. What a group refuses is
   * reported; of a group that the filter names it is thrown.
   * @throws MqAdminError `MQ_GROUP_PAUSED`, `MQ_GROUP_NOT_FOUND`
   */
  async replayAll(topic: string, options: ReplayOptions = {}): Promise<ReplayReport> {
    checkFilter(options, [...BULK_OPTIONS, 'ratePerSecond']);
    return this.replaying.all(topic, await this.partitionCount(topic), options);
  }

  /** Deletes one letter for good. False when it was not there. */
  async delete(topic: string, id: string): Promise<boolean> {
    const place = parsePlace(id);
    await this.checkPartition(topic, place.partition);
    return (await this.deleteIds(topic, place.partition, [place.id], 'delete')) === 1;
  }

  /** Deletes the letters that are there now and match, oldest first, for good; returns how many. */
  async clear(topic: string, options: ClearOptions = {}): Promise<number> {
    const filter = checkFilter(options, BULK_OPTIONS);
    const limit = checkBulk(options as BulkOptions<never>);
    const { signal, onProgress } = options;
    let deleted = 0;
    for await (const page of this.reader.heads(topic, await this.partitionCount(topic), filter)) {
      if (signal?.aborted || deleted >= limit) break;
      const byPartition = new Map<number, string[]>();
      for (const { id } of page.slice(0, limit - deleted)) {
        const place = parsePlace(id);
        byPartition.set(place.partition, [...(byPartition.get(place.partition) ?? []), place.id]);
      }
      const counts = [...byPartition].map(([partition, ids]) => this.deleteIds(topic, partition, ids, 'clear'));
      for (const count of await Promise.all(counts)) deleted += count;
      onProgress?.({ deleted });
    }
    return deleted;
  }

  /**
   * What is there now and matches, oldest first, as lines of JSON with their newlines: every field byte for byte. Nothing
   * is taken out of the DLQ.
   */
  async *export(topic: string, filter: DeadLetterFilter = {}): AsyncGenerator<string, void, undefined> {
    const checked = checkFilter(filter);
    yield* this.transfer.lines(topic, await this.partitionCount(topic), checked);
  }

  /**
   * Puts exported letters back into the DLQ, into their partitions, behind what is there. Lines, or a stream of bytes or text.
   * A letter that is still there, or was imported before, is left out: the same lines may be imported any number of times.
   * @throws MqAdminError `MQ_IMPORT_MALFORMED` with the number of the line; the lines before it are imported; `MQ_PARTITION_MISSING`
   * when the topic is deleted meanwhile
   */
  async import(
    topic: string,
    lines: Iterable<string> | AsyncIterable<string | Uint8Array>,
    options: { readonly onProgress?: (report: ImportReport) => void } = {},
  ): Promise<ImportReport> {
    return this.transfer.import(topic, await this.partitionCount(topic), lines, options.onProgress);
  }

  private async deleteIds(
    topic: string,
    partition: number,
    ids: readonly string[],
    by: 'delete' | 'clear',
  ): Promise<number> {
    const { connection, keys, events } = this.deps;
    const count = asNumber(await connection.send('XDEL', keys.partition(topic, partition).dlq, ...ids));
    if (count > 0) events.emit('deadLetterDeleted', { topic, partition, count, by });
    return count;
  }

  private async partitionCount(topic: string): Promise<number> {
    assertTopicName(topic);
    // Not from the cache: the count may have been raised elsewhere, or the topic deleted.
    const meta = await this.deps.topics.refresh(topic);
    if (meta !== null) return meta.partitionCount;
    throw new MqAdminError('MQ_TOPIC_NOT_FOUND', `topic ${topic} does not exist`, { context: { topic } });
  }

  private async checkPartition(topic: string, partition: number): Promise<void> {
    const count = await this.partitionCount(topic);
    if (partition < count) return;
    throw new MqAdminError('MQ_INVALID_ARGUMENT', `topic ${topic} has ${count} partitions`, {
      context: { topic, partition },
    });
  }
}
