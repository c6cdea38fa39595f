import { MqAdminError } from '../core/errors.js';
import { assertTopicName } from '../core/names.js';
import { asTextOrNull } from '../redis/reply.js';
import { call, callMulti } from '../redis/script.js';
import { deletePartition, stopPartition } from '../redis/scripts/partition-deletion.script.js';
import { finishDeletion, markDeleted, type DeletionReply } from '../redis/scripts/topic-change.script.js';
import { valueOf } from '../redis/spread.js';
import { checkTimeout, forEachOf, invalidArgument, partitionsOf, topicNotFound, type AdminDeps } from './admin-deps.js';
import type { Pausing } from './pausing.js';

/** How a topic is deleted. */
export interface TopicDeletionOptions {
  /** How long running handlers may take to end, in milliseconds; what they do after that is refused. @defaultValue 30000 */
  readonly timeoutMs?: number;
  /**
   * Only this one, by its `TopicMeta`: a call that may be repeated then takes no topic that was made anew in between.
   * @defaultValue whichever there is
   */
  readonly incarnation?: string;
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

type Marked = Extract<DeletionReply, { status: 'marked' }>;

/** A partition whose groups are stopped. */
interface Stopped {
  readonly noted: string;
  readonly groups: readonly string[];
  /** Those that consumed its dead letters. */
  readonly letterGroups: readonly string[];
}

/** Keys of one partition that one script deletes. */
const KEYS_PER_SCRIPT = 500;
/** A stream that comes back while its partition is deleted makes it look again; nobody makes one that often. */
const ATTEMPTS = 10;

/**
 * Deleting topics. A deletion that broke off is gone on with by calling again. Each step on a partition is refused once the
 * partition is another than the one that was looked at while the topic was still marked: a call that is late, or that was
 * repeated, takes nothing of a topic that was made anew.
 */
export class TopicDeletion {
  constructor(
    private readonly deps: AdminDeps,
    private readonly pausing: Pausing,
  ) {}

  /**
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, also for one that is deleted already; `MQ_TOPIC_MADE_ANEW` when another call deleted
   * it and there is a new one, which was left alone; `MQ_INVALID_ARGUMENT`
   */
  async delete(topic: string, options: TopicDeletionOptions = {}): Promise<TopicDeletionReport> {
    const { timeoutMs = 30_000, incarnation } = options;
    assertTopicName(topic);
    checkTimeout(timeoutMs);
    if (incarnation !== undefined && (typeof incarnation !== 'string' || incarnation === ''))
      throw invalidArgument('incarnation must be that of a TopicMeta');
    const { connection, keys, topics, clock, announce } = this.deps;
    const deadline = clock.monotonic() + timeoutMs;
    const marked = await this.mark(topic, incarnation ?? '');
    if (marked.status !== 'marked') throw marked.status === 'gone' ? topicNotFound(topic) : madeAnew(topic);
    topics.forget(topic);
    await this.unlist(topic, marked);
    const partitions = partitionsOf(marked);
    const stopped = await forEachOf(partitions, (partition) => this.stop(topic, partition, marked));
    announce({ type: 'topic', topic, change: 'deleted' });
    const stoppedInOrder = await this.areFreeBy(topic, stopped, deadline);
    const sizes = await forEachOf(partitions, (partition) =>
      this.deletePartition(topic, partition, marked, stopped[partition] ?? null),
    );
    const isFinished = await connection.run(
      call(finishDeletion, keys.topic(topic), { incarnation: marked.incarnation }),
    );
    if (!isFinished && (await topics.refresh(topic)) !== null) throw madeAnew(topic);
    return {
      topic,
      partitions: partitions.length,
      messages: sizes.reduce((sum, of) => sum + of.messages, 0),
      deadLetters: sizes.reduce((sum, of) => sum + of.deadLetters, 0),
      stoppedInOrder,
    };
  }

  private async areFreeBy(topic: string, stopped: readonly (Stopped | null)[], deadline: number): Promise<boolean> {
    const groups = stopped.map((of) => of?.groups ?? []);
    const areFree = await this.pausing.areFreeBy(this.deps.keys, topic, groups, deadline);
    const letterGroups = stopped.map((of) => of?.letterGroups ?? []);
    return (await this.pausing.areFreeBy(this.deps.keys.ofDeadLetters(), topic, letterGroups, deadline)) && areFree;
  }

  private mark(topic: string, incarnation: string): Promise<DeletionReply> {
    const { connection, keys } = this.deps;
    return connection.run(call(markDeleted, keys.topic(topic), { incarnation }));
  }

  /** A topic made anew meanwhile was listed before that, or will be after this. */
  private async unlist(topic: string, { incarnation }: Marked): Promise<void> {
    const { connection, keys } = this.deps;
    await connection.send('SREM', keys.topics, topic);
    if ((await this.mark(topic, incarnation)).status === 'anew') await connection.send('SADD', keys.topics, topic);
  }

  /** Stops all groups on a partition, without a note in the topic's meta; `null` when the deletion was finished by another call. */
  private async stop(topic: string, partition: number, { incarnation }: Marked): Promise<Stopped | null> {
    const { connection, keys } = this.deps;
    const of = keys.partition(topic, partition);
    const ofLetters = { ...keys.ofDeadLetters().partition(topic, partition), incarnation: of.incarnation };
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const noted = asTextOrNull(await connection.send('GET', of.incarnation)) ?? '';
      // After that look: a topic made anew is made after the mark is gone, and its partitions are noted otherwise.
      if ((await this.mark(topic, incarnation)).status !== 'marked') return null;
      const reply = await connection.run(call(stopPartition, of, { noted }));
      if (reply.status === 'anew') continue;
      const letters = await connection.run(call(stopPartition, ofLetters, { noted }));
      if (letters.status === 'anew') continue;
      return { noted, groups: reply.groups, letterGroups: letters.groups };
    }
    throw comesBack(topic, partition);
  }

  private async deletePartition(
    topic: string,
    partition: number,
    marked: Marked,
    first: Stopped | null,
  ): Promise<{ readonly messages: number; readonly deadLetters: number }> {
    const { statistics } = this.deps;
    let stopped = first;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (stopped === null) return { messages: 0, deadLetters: 0 };
      const [stats] = (await statistics.ofPartitions([{ topic, partition }], { countLimit: 0 })).map(valueOf);
      const places = this.keysOf(topic, partition, {
        groups: [...new Set([...marked.groups, ...stopped.groups])],
        letterGroups: stopped.letterGroups,
      });
      if (await this.unlink(topic, partition, stopped, places))
        return { messages: stats!.length, deadLetters: stats!.deadLetters };
      stopped = await this.stop(topic, partition, marked);
    }
    throw comesBack(topic, partition);
  }

  private async unlink(
    topic: string,
    partition: number,
    { noted }: Stopped,
    places: readonly string[],
  ): Promise<boolean> {
    const { incarnation } = this.deps.keys.partition(topic, partition);
    for (let i = 0; i < places.length; i += KEYS_PER_SCRIPT) {
      const some = [incarnation, ...places.slice(i, i + KEYS_PER_SCRIPT)];
      if (!(await this.deps.connection.run(callMulti(deletePartition, some, [noted])))) return false;
    }
    return true;
  }

  /**
   * All keys of a partition, in the order in which they go. The stream is the first: while its messages can be read, nothing that
   * was made of them is lost. What the groups are known by goes last, so that a second call finds what is left of them.
   */
  private keysOf(
    topic: string,
    partition: number,
    { groups, letterGroups }: Pick<Stopped, 'groups' | 'letterGroups'>,
  ): string[] {
    const { keys } = this.deps;
    const of = keys.partition(topic, partition);
    const ofGroups = groups.flatMap((group) => {
      const place = keys.groupPartition(topic, partition, group);
      const { retryStream, lease, epoch, retry, retryItems, held, crash, paused } = place;
      return [retryStream, lease, epoch, retry, retryItems, held, crash, paused];
    });
    const ofLetters = this.keysOfLetterGroups(topic, partition, letterGroups);
    return [
      of.stream,
      ...ofGroups,
      of.delayed,
      of.delayedItems,
      of.delayedSeq,
      of.dlq,
      of.imports,
      ...ofLetters,
      of.commit,
      of.activity,
      of.pausedAll,
      of.pauseChanges,
      of.incarnation,
    ];
  }

  private keysOfLetterGroups(topic: string, partition: number, groups: readonly string[]): string[] {
    const keys = this.deps.keys.ofDeadLetters();
    const of = keys.partition(topic, partition);
    const ofGroups = groups.flatMap((group) => {
      const place = keys.groupPartition(topic, partition, group);
      const { retryStream, lease, epoch, retry, retryItems, held, crash, paused } = place;
      return [retryStream, lease, epoch, retry, retryItems, held, crash, paused];
    });
    return [...ofGroups, of.commit, of.activity, of.pausedAll];
  }
}

function madeAnew(topic: string): MqAdminError {
  const text = `topic ${topic} was deleted by another call and made anew; the new one was left alone`;
  return new MqAdminError('MQ_TOPIC_MADE_ANEW', text, { context: { topic } });
}

function comesBack(topic: string, partition: number): MqAdminError {
  const text = `partition ${partition} of topic ${topic} is made again all the time; delete the topic once more`;
  return new MqAdminError('MQ_TOPIC_BEING_DELETED', text, { retryable: true, context: { topic, partition } });
}
