import { assertTopicName } from '../core/names.js';
import { asTexts } from '../redis/reply.js';
import { call } from '../redis/script.js';
import { finishDeletion, markDeleted } from '../redis/scripts/topic-change.script.js';
import { valueOf } from '../redis/spread.js';
import { checkTimeout, forEachOf, partitionsOf, topicNotFound, type AdminDeps } from './admin-deps.js';
import type { Pausing } from './pausing.js';

/** How a topic is deleted. */
export interface TopicDeletionOptions {
  /** How long running handlers may take to end, in milliseconds; what they do after that is refused. @defaultValue 30000 */
  readonly timeoutMs?: number;
}

/** What went with a deleted topic. */
export interface TopicDeletionReport {
  readonly topic: string;
  readonly partitions: number;
  /** Messages that the partitions held, handled ones that were retained included. */
  readonly messages: number;
  readonly deadLetters: number;
  /** False when handlers still ran after `timeoutMs`. */
  readonly stoppedInOrder: boolean;
}

/** Keys of one partition that one command deletes. */
const KEYS_PER_COMMAND = 500;

/** Deleting topics. A deletion that broke off is gone on with by calling again. */
export class TopicDeletion {
  constructor(
    private readonly deps: AdminDeps,
    private readonly pausing: Pausing,
  ) {}

  /** @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, also for one that is deleted already; `MQ_INVALID_ARGUMENT` */
  async delete(topic: string, { timeoutMs = 30_000 }: TopicDeletionOptions = {}): Promise<TopicDeletionReport> {
    assertTopicName(topic);
    checkTimeout(timeoutMs);
    const { connection, keys, topics, clock, announce } = this.deps;
    const deadline = clock.monotonic() + timeoutMs;
    const marked = await connection.run(call(markDeleted, keys.topic(topic), {}));
    if (marked.status === 'gone') throw topicNotFound(topic);
    topics.forget(topic);
    await connection.send('SREM', keys.topics, topic);
    const partitions = partitionsOf(marked);
    const groups = await this.pausing.flagAll(topic, partitions);
    announce({ type: 'topic', topic, change: 'deleted' });
    const stoppedInOrder = await this.pausing.areFreeBy(topic, groups, deadline);
    const sizes = await forEachOf(partitions, (partition) =>
      this.deletePartition(topic, partition, [...marked.groups, ...groups[partition]!]),
    );
    await connection.run(call(finishDeletion, keys.topic(topic), {}));
    return {
      topic,
      partitions: partitions.length,
      messages: sizes.reduce((sum, of) => sum + of.messages, 0),
      deadLetters: sizes.reduce((sum, of) => sum + of.deadLetters, 0),
      stoppedInOrder,
    };
  }

  /** What the groups are known by goes last, so that a second call finds what is left of them. */
  private async deletePartition(
    topic: string,
    partition: number,
    groups: readonly string[],
  ): Promise<{ readonly messages: number; readonly deadLetters: number }> {
    const { keys, connection, statistics } = this.deps;
    const [stats] = (await statistics.ofPartitions([{ topic, partition }], { countLimit: 0 })).map(valueOf);
    const known = new Set([...groups, ...stats!.groups.map(({ group }) => group)]);
    const ofGroups = [...known].flatMap((group) => {
      const of = keys.groupPartition(topic, partition, group);
      return [of.retryStream, of.lease, of.epoch, of.retry, of.retryItems, of.held, of.crash, of.paused];
    });
    for (let i = 0; i < ofGroups.length; i += KEYS_PER_COMMAND) {
      await connection.send('UNLINK', ...ofGroups.slice(i, i + KEYS_PER_COMMAND));
    }
    const of = keys.partition(topic, partition);
    await connection.send('UNLINK', of.delayed, of.delayedItems, of.delayedSeq, of.dlq, of.imports);
    await this.deleteLetterGroups(topic, partition);
    await connection.send('UNLINK', of.stream, of.commit, of.activity, of.pausedAll);
    return { messages: stats!.length, deadLetters: stats!.deadLetters };
  }

  /** The groups that consumed the partition's dead letters; their activity names them. */
  private async deleteLetterGroups(topic: string, partition: number): Promise<void> {
    const { connection } = this.deps;
    const keys = this.deps.keys.ofDeadLetters();
    const of = keys.partition(topic, partition);
    const groups = asTexts(await connection.send('HGETALL', of.activity)).filter((_, i) => i % 2 === 0);
    for (const group of groups) {
      const { retryStream, lease, epoch, retry, retryItems, crash, paused } = keys.groupPartition(
        topic,
        partition,
        group,
      );
      await connection.send('UNLINK', retryStream, lease, epoch, retry, retryItems, crash, paused);
    }
    await connection.send('UNLINK', of.commit, of.activity, of.pausedAll);
  }
}
