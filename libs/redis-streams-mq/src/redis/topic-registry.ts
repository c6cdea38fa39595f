import { randomBytes } from 'node:crypto';
import { MqAdminError, MqError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Keys, PartitionKeys } from '../core/keys.js';
import type { Connection } from './connection.js';
import { classifyRedisError } from './redis-errors.js';
import { asArray, asNumber, asText, asTextOrNull, asTexts } from './reply.js';
import { call } from './script.js';
import { partitionCreate, partitionUnmake, topicCreate } from './scripts/topic-create.script.js';

/** What is kept about a topic. */
export interface TopicMeta {
  readonly topic: string;
  readonly partitionCount: number;
  /** Changes when a topic is made again after its deletion or after the server lost it. */
  readonly incarnation: string;
  readonly createdAt: number;
}

export interface TopicRegistryDeps {
  readonly connection: Connection;
  readonly keys: Keys;
  readonly events: MqEvents;
}

/** The topics' meta, read through a cache that its users invalidate when Redis contradicts it. */
export class TopicRegistry {
  private readonly cache = new Map<string, TopicMeta>();
  private readonly loading = new Map<string, Promise<TopicMeta | null>>();
  private readonly creating = new Map<string, Promise<TopicMeta>>();
  private readonly registered = new Set<string>();
  /** Topics that were there, those forgotten since included: a deletion is told once of each. */
  private readonly seen = new Set<string>();

  constructor(private readonly deps: TopicRegistryDeps) {}

  cached(topic: string): TopicMeta | undefined {
    return this.cache.get(topic);
  }

  /** `null` when the topic does not exist or was deleted. */
  async find(topic: string): Promise<TopicMeta | null> {
    return this.cache.get(topic) ?? (await this.refresh(topic));
  }

  /** Reads the meta again; concurrent calls share one read. */
  refresh(topic: string): Promise<TopicMeta | null> {
    let pending = this.loading.get(topic);
    if (pending === undefined) {
      pending = this.load(topic).finally(() => this.loading.delete(topic));
      this.loading.set(topic, pending);
    }
    return pending;
  }

  /**
   * The topic's meta, made with `partitionCount` partitions when there is none; its streams are there afterwards.
   * @throws MqError `MQ_TOPIC_DELETED` when it was deleted on purpose: making it again takes `anew`; MqAdminError
   * `MQ_TOPIC_BEING_DELETED` when that deletion is not finished.
   */
  ensure(topic: string, partitionCount: number, options: { readonly anew?: boolean } = {}): Promise<TopicMeta> {
    const anew = options.anew === true;
    // One that may not make it anew cannot answer for one that may.
    const name = anew ? `anew ${topic}` : topic;
    let pending = this.creating.get(name);
    if (pending === undefined) {
      pending = this.create(topic, partitionCount, anew).finally(() => this.creating.delete(name));
      this.creating.set(name, pending);
    }
    return pending;
  }

  /**
   * Makes the streams of a topic's partitions where they are missing.
   * @throws MqError `MQ_TOPIC_DELETED` when it was deleted since its meta was read: a stream made then would take messages
   */
  async ensureStreams({ topic, partitionCount }: TopicMeta): Promise<void> {
    const { connection, keys } = this.deps;
    const made: PartitionKeys[] = [];
    for (let partition = 0; partition < partitionCount; partition++) {
      const of = keys.partition(topic, partition);
      if (await connection.run(call(partitionCreate, of, {}))) made.push(of);
    }
    if (made.length === 0 || !(await this.isDeleted(topic))) return;
    for (const of of made) await connection.run(call(partitionUnmake, of, {}));
    this.forget(topic);
    throw new MqError('MQ_TOPIC_DELETED', `topic ${topic} was deleted meanwhile`, { context: { topic } });
  }

  forget(topic: string): void {
    this.cache.delete(topic);
    this.registered.delete(topic);
  }

  /**
   * Puts a topic whose meta is there into the registry, once for this process: whoever made it may have died in between,
   * and it would be missing from all lists for ever. It never rejects, since a topic works without being listed; a
   * failure is reported, and the next call tries again.
   */
  async register(topic: string): Promise<void> {
    if (this.registered.has(topic)) return;
    this.registered.add(topic);
    const { connection, keys, events } = this.deps;
    try {
      await connection.send('SADD', keys.topics, topic);
    } catch (error) {
      this.registered.delete(topic);
      events.emit('fault', { component: 'topic-registry', class: classifyRedisError(error), error, retryInMs: 0 });
    }
  }

  /**
   * One step through the registry: names in order, about `count` of them, and the cursor of the next step ('0' after the
   * last). Each name that is there all the time is in some step; while the registry grows or shrinks, one may be in two.
   */
  async scan(
    cursor: string,
    prefix: string,
    count: number,
  ): Promise<{ readonly names: readonly string[]; readonly cursor: string }> {
    const { connection, keys } = this.deps;
    const reply = asArray(await connection.send('SSCAN', keys.topics, cursor, 'MATCH', `${prefix}*`, 'COUNT', count));
    return { names: [...new Set(asTexts(reply[1]))].sort(), cursor: asText(reply[0]) };
  }

  /** Whether its meta is not there because it was deleted on purpose. */
  async isDeleted(topic: string): Promise<boolean> {
    const { connection, keys } = this.deps;
    return asArray(await connection.send('HMGET', keys.topic(topic).meta, 'deletedAt'))[0] !== null;
  }

  private async create(topic: string, partitionCount: number, anew: boolean): Promise<TopicMeta> {
    // What is known here may have been deleted elsewhere.
    const known = (anew ? undefined : this.cache.get(topic)) ?? (await this.load(topic));
    if (known !== null) {
      await this.register(topic);
      return known;
    }
    const { connection, keys, events } = this.deps;
    const streams = Array.from({ length: partitionCount }, (_, i) => keys.stream(topic, i));
    const made = await connection.run(
      call(
        topicCreate,
        keys.topic(topic),
        { count: partitionCount, incarnation: randomBytes(9).toString('base64url'), anew: anew ? 1 : 0 },
        streams,
      ),
    );
    if (anew && made.isBeingDeleted) {
      throw new MqAdminError(
        'MQ_TOPIC_BEING_DELETED',
        `the deletion of topic ${topic} is not finished; delete it once more`,
        {
          context: { topic, deletedAt: made.deletedAt },
        },
      );
    }
    if (made.deletedAt !== null) {
      throw new MqError('MQ_TOPIC_DELETED', `topic ${topic} was deleted; create it again through the admin`, {
        context: { topic, deletedAt: made.deletedAt },
      });
    }
    const meta: TopicMeta = {
      topic,
      partitionCount: made.partitionCount,
      incarnation: made.incarnation,
      createdAt: made.createdAt,
    };
    await this.ensureStreams(meta);
    await connection.send('SADD', keys.topics, topic);
    this.registered.add(topic);
    this.remember(meta);
    if (made.created) events.emit('topicCreated', { topic, partitionCount: meta.partitionCount });
    return meta;
  }

  private remember(meta: TopicMeta): void {
    this.cache.set(meta.topic, meta);
    this.seen.add(meta.topic);
  }

  private async load(topic: string): Promise<TopicMeta | null> {
    const { connection, keys, events } = this.deps;
    const reply = asArray(
      await connection.send('HMGET', keys.topic(topic).meta, 'partitionCount', 'incarnation', 'createdAt', 'deletedAt'),
    );
    const count = asTextOrNull(reply[0]);
    const isDeleted = asTextOrNull(reply[3]) !== null;
    if (count === null || isDeleted) {
      if (isDeleted && this.seen.delete(topic)) events.emit('topicDeleted', { topic });
      this.forget(topic);
      return null;
    }
    const meta: TopicMeta = {
      topic,
      partitionCount: asNumber(reply[0]),
      incarnation: asText(reply[1]),
      createdAt: asNumber(reply[2]),
    };
    this.remember(meta);
    return meta;
  }
}
