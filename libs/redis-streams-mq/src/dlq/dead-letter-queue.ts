import type { Clock } from '../core/clock.js';
import { MqAdminError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Keys } from '../core/keys.js';
import { assertGroupName, assertTopicName } from '../core/names.js';
import { compareStreamIds, isStreamId } from '../core/stream-id.js';
import type { Connection } from '../redis/connection.js';
import { asNumber } from '../redis/reply.js';
import { call } from '../redis/script.js';
import { dlqPage, replay, type RawDeadLetter, type ReplayReply } from '../redis/scripts/dlq.script.js';
import type { TopicRegistry } from '../redis/topic-registry.js';
import { toDeadLetter, type DeadLetter } from './dead-letter.js';

export interface DeadLetterFilter {
  /** Only those of this group. */
  readonly group?: string;
}

export interface DeadLetterListOptions extends DeadLetterFilter {
  /** Letters a page. @defaultValue 50 */
  readonly limit?: number;
  /** The `cursor` of the page before. */
  readonly cursor?: string;
}

export interface DeadLetterPage {
  /** Oldest first, over all partitions. */
  readonly items: readonly DeadLetter[];
  /** For the next page; `null` after the last. */
  readonly cursor: string | null;
}

export interface ReplayReport {
  readonly replayed: number;
  /** Gone meanwhile: replayed or deleted by someone else. */
  readonly gone: number;
  /** Their fields cannot be read back; they stay. */
  readonly failed: number;
}

export interface DeadLetterQueueDeps {
  readonly connection: Connection;
  readonly keys: Keys;
  readonly topics: TopicRegistry;
  readonly clock: Clock;
  readonly events: MqEvents;
  /** Something became due in a bucket: its owner's mover should look. */
  readonly onDue: (topic: string, partition: number, group: string) => void;
}

interface Place {
  readonly partition: number;
  readonly id: string;
}

const PAGE = 100;

/**
 * The dead letters of all topics. A replay puts a letter back before its own group, with its attempts reset and its event id
 * kept, and takes it out of the DLQ in the same step.
 */
export class DeadLetterQueue {
  constructor(private readonly deps: DeadLetterQueueDeps) {}

  /** One page, oldest first over all partitions of the topic. */
  async list(topic: string, options: DeadLetterListOptions = {}): Promise<DeadLetterPage> {
    const limit = options.limit ?? 50;
    if (!Number.isInteger(limit) || limit < 1 || limit > 1_000) {
      throw new MqAdminError('MQ_INVALID_ARGUMENT', 'limit must be an integer from 1 to 1000');
    }
    if (options.group !== undefined) assertGroupName(options.group);
    let after = options.cursor === undefined ? null : parsePlace(options.cursor);
    const ends = Array<string>(await this.partitionCount(topic)).fill('+');
    const items: DeadLetter[] = [];
    for (;;) {
      const page = await this.page(topic, after, limit, ends);
      for (const letter of page) {
        after = parsePlace(letter.id);
        if (options.group !== undefined && letter.group !== options.group) continue;
        items.push(letter);
        if (items.length === limit) return { items, cursor: letter.id };
      }
      if (page.length < limit) return { items, cursor: null };
    }
  }

  /** How many letters the topic has; with `group`, how many of that group (which reads them all). */
  async size(topic: string, filter: DeadLetterFilter = {}): Promise<number> {
    if (filter.group !== undefined) {
      let count = 0;
      for await (const letters of this.pages(topic, filter)) count += letters.length;
      return count;
    }
    let sum = 0;
    const partitionCount = await this.partitionCount(topic);
    for (let partition = 0; partition < partitionCount; partition++) {
      sum += asNumber(await this.deps.connection.send('XLEN', this.deps.keys.partition(topic, partition).dlq));
    }
    return sum;
  }

  /** One letter, or `null` when it is not there. */
  async get(topic: string, id: string): Promise<DeadLetter | null> {
    const place = parsePlace(id);
    await this.checkPartition(topic, place.partition);
    const [raw] = await this.read(topic, place.partition, { start: place.id, stop: place.id, count: 1 });
    return raw === undefined ? null : toDeadLetter(topic, place.partition, raw);
  }

  /**
   * Puts one letter back before its group. False when it is not there any more: of two calls at once one gets true.
   * @throws MqAdminError `MQ_DEAD_LETTER_UNREADABLE`
   */
  async replay(topic: string, id: string): Promise<boolean> {
    const letter = await this.get(topic, id);
    if (letter === null) return false;
    const result = await this.replayLetter(letter);
    if (result === 'unreadable' || result === 'other-group') {
      throw new MqAdminError(
        'MQ_DEAD_LETTER_UNREADABLE',
        `dead letter ${id} of ${topic} cannot be put back: its fields cannot be read`,
        {
          context: { topic, id },
        },
      );
    }
    return result === 'replayed';
  }

  /** Replays what is there now, oldest first, at most `limit`. Letters that arrive meanwhile are left. */
  async replayAll(topic: string, options: DeadLetterFilter & { readonly limit?: number } = {}): Promise<ReplayReport> {
    const report = { replayed: 0, gone: 0, failed: 0 };
    const limit = options.limit ?? Infinity;
    for await (const letters of this.pages(topic, options)) {
      for (const letter of letters) {
        if (report.replayed >= limit) return report;
        const result = await this.replayLetter(letter);
        if (result === 'replayed') report.replayed++;
        else if (result === 'gone') report.gone++;
        else report.failed++;
      }
    }
    return report;
  }

  /** Deletes one letter for good. False when it was not there. */
  async delete(topic: string, id: string): Promise<boolean> {
    const place = parsePlace(id);
    await this.checkPartition(topic, place.partition);
    return (await this.deleteIds(topic, place.partition, [place.id], 'delete')) === 1;
  }

  /** Deletes the letters that are there now, all or those of one group, for good; returns how many. */
  async clear(topic: string, filter: DeadLetterFilter = {}): Promise<number> {
    let deleted = 0;
    for await (const letters of this.pages(topic, filter)) {
      const byPartition = new Map<number, string[]>();
      for (const letter of letters) {
        const { partition, id } = parsePlace(letter.id);
        byPartition.set(partition, [...(byPartition.get(partition) ?? []), id]);
      }
      for (const [partition, ids] of byPartition) deleted += await this.deleteIds(topic, partition, ids, 'clear');
    }
    return deleted;
  }

  /** All letters that are there now. Those that arrive meanwhile are not among them, or it might never end. */
  private async *pages(topic: string, { group }: DeadLetterFilter): AsyncGenerator<readonly DeadLetter[]> {
    if (group !== undefined) assertGroupName(group);
    const count = await this.partitionCount(topic);
    const newest = await Promise.all(
      Array.from({ length: count }, (_, partition) => this.read(topic, partition, { newestFirst: '1', count: 1 })),
    );
    const ends = newest.map(([letter]) => letter?.id ?? null);
    let after: Place | null = null;
    for (;;) {
      const page: readonly DeadLetter[] = await this.page(topic, after, PAGE, ends);
      const letters = group === undefined ? page : page.filter((letter) => letter.group === group);
      if (letters.length > 0) yield letters;
      if (page.length < PAGE) return;
      after = parsePlace(page.at(-1)!.id);
    }
  }

  /** Up to `limit` letters behind `after`, merged over the partitions by id; `ends` are the last ids to be read, `null` where none is. */
  private async page(
    topic: string,
    after: Place | null,
    limit: number,
    ends: readonly (string | null)[],
  ): Promise<DeadLetter[]> {
    const pages = await Promise.all(
      ends.map(async (stop, partition) => {
        if (stop === null) return [];
        const start = after === null ? '-' : partition <= after.partition ? `(${after.id}` : after.id;
        const letters = await this.read(topic, partition, { start, stop, count: limit });
        return letters.map((raw) => ({ partition, raw }));
      }),
    );
    return pages
      .flat()
      .sort((a, b) => compareStreamIds(a.raw.id, b.raw.id) || a.partition - b.partition)
      .slice(0, limit)
      .map(({ partition, raw }) => toDeadLetter(topic, partition, raw));
  }

  private read(
    topic: string,
    partition: number,
    range: { readonly start?: string; readonly stop?: string; readonly count: number; readonly newestFirst?: '1' },
  ): Promise<readonly RawDeadLetter[]> {
    const { dlq } = this.deps.keys.partition(topic, partition);
    return this.deps.connection.run(call(dlqPage, { dlq }, { start: '-', stop: '+', newestFirst: '0', ...range }));
  }

  private async replayLetter(letter: DeadLetter): Promise<ReplayReply> {
    const { connection, keys, events, clock, onDue } = this.deps;
    const { topic, partition, group } = letter;
    const { id } = parsePlace(letter.id);
    const startedAt = clock.monotonic();
    const result = await connection.run(call(replay, keys.groupPartition(topic, partition, group), { id, group }));
    if (result === 'replayed') onDue(topic, partition, group);
    const seen = result === 'replayed' || result === 'gone' ? result : 'failed';
    events.emit('replayed', { topic, partition, group, result: seen, durationMs: clock.monotonic() - startedAt });
    return result;
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
    if (meta === null)
      throw new MqAdminError('MQ_TOPIC_NOT_FOUND', `topic ${topic} does not exist`, { context: { topic } });
    return meta.partitionCount;
  }

  private async checkPartition(topic: string, partition: number): Promise<void> {
    const count = await this.partitionCount(topic);
    if (partition < count) return;
    throw new MqAdminError('MQ_INVALID_ARGUMENT', `topic ${topic} has ${count} partitions`, {
      context: { topic, partition },
    });
  }
}

function parsePlace(id: string): Place {
  const [, partition, streamId] = /^(\d{1,9})\/(\d+-\d+)$/.exec(id) ?? [];
  if (partition === undefined || !isStreamId(streamId)) {
    throw new MqAdminError(
      'MQ_INVALID_ARGUMENT',
      `${JSON.stringify(id)} is not the id of a dead letter (<partition>/<stream id>)`,
    );
  }
  return { partition: Number(partition), id: streamId };
}
