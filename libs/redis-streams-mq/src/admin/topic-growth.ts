import { MqAdminError } from '../core/errors.js';
import { MAX_PARTITION_COUNT } from '../core/options.js';
import { replyCode } from '../redis/redis-errors.js';
import { call } from '../redis/script.js';
import { noteRaise, raiseCount } from '../redis/scripts/topic-change.script.js';
import { partitionCreate } from '../redis/scripts/topic-create.script.js';
import { valueOf } from '../redis/spread.js';
import type { TopicMeta } from '../redis/topic-registry.js';
import { forEachOf, invalidArgument, partitionsOf, requireTopic, topicNotFound, type AdminDeps } from './admin-deps.js';
import type { Pausing } from './pausing.js';

/** Pauses that come and go while it works make it look again; nobody pauses that often. */
const ATTEMPTS = 10;

/** Raising partition counts. */
export class TopicGrowth {
  constructor(
    private readonly deps: AdminDeps,
    private readonly pausing: Pausing,
  ) {}

  /**
   * Makes the partitions, with all groups at their beginning and paused where the topic is, and only then counts them.
   * @throws MqAdminError `MQ_PARTITION_COUNT_LOWERED`, `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  async raise(topic: string, partitionCount: number): Promise<TopicMeta> {
    if (!Number.isInteger(partitionCount) || partitionCount < 1 || partitionCount > MAX_PARTITION_COUNT) {
      throw invalidArgument(`partitionCount must be an integer from 1 to ${MAX_PARTITION_COUNT}`);
    }
    const meta = await requireTopic(this.deps, topic);
    if (partitionCount === meta.partitionCount) return meta;
    if (partitionCount < meta.partitionCount) throw lowered(topic, meta.partitionCount, partitionCount);
    const { keys, connection, announce } = this.deps;
    const added = partitionsOf({ partitionCount }).slice(meta.partitionCount);
    const noted = await connection.run(call(noteRaise, keys.topic(topic), { count: partitionCount }));
    if (noted.status === 'gone') throw topicNotFound(topic);
    if (noted.status === 'more') throw lowered(topic, noted.partitionCount, partitionCount);
    const groups = await this.makeStreams(meta, added);
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const paused = await this.pausing.state(topic);
      await this.pausing.applyTo(topic, added, paused, groups);
      const args = { count: partitionCount, pauseChange: paused.change };
      const streams = added.map((partition) => keys.stream(topic, partition));
      const reply = await connection.run(call(raiseCount, keys.topic(topic), args, streams));
      if (reply.status === 'gone') throw topicNotFound(topic);
      if (reply.status === 'more') throw lowered(topic, reply.partitionCount, partitionCount);
      if (reply.status === 'paused') continue;
      announce({ type: 'topic', topic, change: 'raised' });
      return requireTopic(this.deps, topic);
    }
    throw new MqAdminError('MQ_PAUSE_CHANGED', `topic ${topic} is paused and resumed all the time`, {
      retryable: true,
      context: { topic },
    });
  }

  /** Each group there is begins at the first message, whatever it starts from elsewhere: all of them come after it. */
  private async makeStreams(meta: TopicMeta, added: readonly number[]): Promise<readonly string[]> {
    const { topic } = meta;
    const refs = partitionsOf(meta).map((partition) => ({ topic, partition }));
    const stats = (await this.deps.statistics.ofPartitions(refs, { countLimit: 0 })).map(valueOf);
    const groups = [...new Set(stats.flatMap((of) => of.groups.map(({ group }) => group)))];
    await forEachOf(added, async (partition) => {
      const of = this.deps.keys.partition(topic, partition);
      await this.deps.connection.run(call(partitionCreate, of, {}));
      for (const group of groups) await this.makeGroup(of.stream, group);
    });
    return groups;
  }

  /** One that is there is left: the partition is from before a count that was lowered by hand. */
  private async makeGroup(stream: string, group: string): Promise<void> {
    try {
      await this.deps.connection.send('XGROUP', 'CREATE', stream, group, '0');
    } catch (error) {
      if (replyCode(error) !== 'BUSYGROUP') throw error;
    }
  }
}

function lowered(topic: string, has: number, asked: number): MqAdminError {
  return new MqAdminError(
    'MQ_PARTITION_COUNT_LOWERED',
    `topic ${topic} has ${has} partitions; ${asked} would be fewer, and what waits in the others would be lost`,
    { context: { topic, partitionCount: has, asked } },
  );
}
