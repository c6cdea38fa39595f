import { MqAdminError } from '../core/errors.js';
import { assertTopicName } from '../core/names.js';
import { MAX_PARTITION_COUNT } from '../core/options.js';
import { asEntries, asNumber } from '../redis/reply.js';
import type { TopicMeta } from '../redis/topic-registry.js';
import type { AdminDeps } from './admin-deps.js';
import { Pausing, type PauseOptions, type PauseReport } from './pausing.js';

export interface PartitionDescription {
  readonly partition: number;
  /** Entries in the stream, handled ones that are retained included. */
  readonly length: number;
  readonly firstId: string | null;
  readonly lastId: string | null;
}

export interface TopicDescription {
  readonly topic: string;
  readonly createdAt: number;
  readonly partitions: readonly PartitionDescription[];
}

/** What people who run the queue ask of it from code. Reads keys by name and never scans the keyspace. */
export class MqAdmin {
  private readonly pausing: Pausing;

  constructor(private readonly deps: AdminDeps) {
    this.pausing = new Pausing(deps);
  }

  listTopics(): Promise<string[]> {
    return this.deps.topics.list();
  }

  async topicExists(topic: string): Promise<boolean> {
    assertTopicName(topic);
    return (await this.deps.topics.refresh(topic)) !== null;
  }

  /**
   * Makes a topic; one that exists is left as it is and returned with the count it has, with a warning if another was asked for.
   * @throws MqAdminError `MQ_INVALID_ARGUMENT`, MqInvalidNameError
   */
  async createTopic(topic: string, options: { readonly partitionCount?: number } = {}): Promise<TopicMeta> {
    assertTopicName(topic);
    const count = options.partitionCount ?? this.deps.defaultPartitionCount;
    if (!Number.isInteger(count) || count < 1 || count > MAX_PARTITION_COUNT) {
      throw new MqAdminError(
        'MQ_INVALID_ARGUMENT',
        `partitionCount must be an integer from 1 to ${MAX_PARTITION_COUNT}`,
      );
    }
    const meta = await this.deps.topics.ensure(topic, count);
    if (options.partitionCount !== undefined && meta.partitionCount !== count) {
      this.deps.events.emit('warning', {
        message: 'a topic exists with another partition count than was asked for, and keeps it',
        fields: { topic, partitionCount: meta.partitionCount, asked: count },
      });
    }
    return meta;
  }

  /** @throws MqAdminError `MQ_TOPIC_NOT_FOUND` */
  async describeTopic(topic: string): Promise<TopicDescription> {
    assertTopicName(topic);
    const { topics, connection, keys } = this.deps;
    const meta = await topics.refresh(topic);
    if (meta === null)
      throw new MqAdminError('MQ_TOPIC_NOT_FOUND', `topic ${topic} does not exist`, { context: { topic } });
    const partitions = await Promise.all(
      Array.from({ length: meta.partitionCount }, async (_, partition): Promise<PartitionDescription> => {
        const stream = keys.stream(topic, partition);
        const [length, first, last] = await connection.pipeline([
          ['XLEN', stream],
          ['XRANGE', stream, '-', '+', 'COUNT', 1],
          ['XREVRANGE', stream, '+', '-', 'COUNT', 1],
        ]);
        for (const outcome of [length!, first!, last!]) if (!outcome.ok) throw outcome.error;
        const reply = (outcome: typeof length) => (outcome?.ok === true ? outcome.value : null);
        return {
          partition,
          length: asNumber(reply(length) ?? 0),
          firstId: asEntries(reply(first))[0]?.id ?? null,
          lastId: asEntries(reply(last))[0]?.id ?? null,
        };
      }),
    );
    return { topic, createdAt: meta.createdAt, partitions };
  }

  /**
   * Stops handling of a topic, or of one group on it, in all instances, those that start later too, until `resume()`. Resolves when
   * nothing is in flight: no handler runs and everything handled is settled. Publishing goes on.
   * @throws MqAdminError `MQ_PAUSE_TIMEOUT` (handlers still run; it stays paused), `MQ_PAUSE_CHANGED`, `MQ_TOPIC_NOT_FOUND`
   */
  pause(topic: string, options: PauseOptions = {}): Promise<PauseReport> {
    return this.pausing.pause(topic, options);
  }

  /**
   * Ends a pause: with `group` that of the group, else that of the whole topic. Handling goes on at once.
   * @throws MqAdminError `MQ_PAUSE_CHANGED`, `MQ_TOPIC_NOT_FOUND`
   */
  resume(topic: string, options: { readonly group?: string } = {}): Promise<void> {
    return this.pausing.resume(topic, options);
  }

  /** Whether the whole topic is paused, and which of its groups are by themselves. */
  async paused(topic: string): Promise<{ readonly all: boolean; readonly groups: readonly string[] }> {
    const { all, groups } = await this.pausing.state(topic);
    return { all, groups };
  }
}
