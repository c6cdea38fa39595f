import type { Clock } from '../core/clock.js';
import { MqAdminError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Keys } from '../core/keys.js';
import { assertGroupName, assertTopicName } from '../core/names.js';
import type { Serializer } from '../core/serializer.js';
import type { Announcement } from '../redis/announcements.js';
import type { Connection } from '../redis/connection.js';
import type { RetentionSettings } from '../redis/retention-settings.js';
import { valueOf, type Spread } from '../redis/spread.js';
import type { Statistics } from '../redis/statistics.js';
import type { TopicMeta, TopicRegistry } from '../redis/topic-registry.js';

/** What every operation of the administration needs. */
export interface AdminDeps {
  /** One that waits for a connection: people call at any time. */
  readonly connection: Connection;
  readonly keys: Keys;
  readonly topics: TopicRegistry;
  /** On the same patient connection. */
  readonly statistics: Statistics;
  readonly events: MqEvents;
  readonly clock: Clock;
  readonly defaultPartitionCount: number;
  /** For keys of any slots. */
  readonly spread: Spread;
  readonly serializer: Serializer;
  readonly retention: RetentionSettings;
  /** Something became due in a bucket: its owner's mover should look. */
  readonly onDue: (topic: string, partition: number, group: string) => void;
  /** Tells all instances; best effort. */
  readonly announce: (announcement: Announcement) => void;
}

/** The topic as Redis has it now. @throws MqInvalidNameError, MqAdminError `MQ_TOPIC_NOT_FOUND` */
export async function requireTopic({ topics }: AdminDeps, topic: string): Promise<TopicMeta> {
  assertTopicName(topic);
  // Not from the cache: it may have been raised elsewhere, or deleted.
  const meta = await topics.refresh(topic);
  if (meta === null) throw topicNotFound(topic);
  return meta;
}

/** @throws MqAdminError `MQ_GROUP_NOT_FOUND` when no partition of the topic knows the group */
export async function requireGroup(
  { statistics }: AdminDeps,
  { topic, partitionCount }: TopicMeta,
  group: string,
): Promise<void> {
  assertGroupName(group);
  const refs = partitionsOf({ partitionCount }).map((partition) => ({ topic, partition, group }));
  const known = (await statistics.ofGroups(refs, { countLimit: 0 })).map(valueOf);
  if (known.some(({ isPresent, committed }) => isPresent || committed !== null)) return;
  throw groupNotFound(topic, group);
}

/** `topic` null: on no topic at all. */
export function groupNotFound(
  topic: string | null,
  group: string,
  context: Readonly<Record<string, unknown>> = {},
): MqAdminError {
  const message = topic === null ? `no topic has a group ${group}` : `topic ${topic} has no group ${group}`;
  return new MqAdminError('MQ_GROUP_NOT_FOUND', message, { context: { topic, group, ...context } });
}

/** @throws MqInvalidNameError, MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT` */
export async function requirePartition(deps: AdminDeps, topic: string, partition: number): Promise<TopicMeta> {
  const meta = await requireTopic(deps, topic);
  if (Number.isInteger(partition) && partition >= 0 && partition < meta.partitionCount) return meta;
  throw new MqAdminError(
    'MQ_INVALID_ARGUMENT',
    `partition must be an integer from 0 to ${meta.partitionCount - 1}: topic ${topic} has ${meta.partitionCount} partitions`,
    { context: { topic, partition } },
  );
}

export function topicNotFound(topic: string): MqAdminError {
  return new MqAdminError('MQ_TOPIC_NOT_FOUND', `topic ${topic} does not exist`, { context: { topic } });
}

export function invalidArgument(message: string): MqAdminError {
  return new MqAdminError('MQ_INVALID_ARGUMENT', message);
}

/** @throws MqAdminError `MQ_INVALID_ARGUMENT` */
export function checkTimeout(timeoutMs: unknown): void {
  if (Number.isFinite(timeoutMs) && (timeoutMs as number) >= 0) return;
  throw invalidArgument('timeoutMs must be a number of milliseconds, 0 or more');
}

/** At most that many commands are under way at once, so that a topic of a thousand partitions is no burst. */
const AT_ONCE = 32;

/**
 * `work` for each of these, some of them at a time; the results in their order. What was begun has ended also when it rejects,
 * with the first error.
 */
export async function forEachOf<I, R>(items: readonly I[], work: (item: I) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let i = 0; i < items.length; i += AT_ONCE) {
    for (const outcome of await Promise.allSettled(items.slice(i, i + AT_ONCE).map(work))) {
      if (outcome.status === 'rejected') throw outcome.reason;
      results.push(outcome.value);
    }
  }
  return results;
}

export function partitionsOf({ partitionCount }: { readonly partitionCount: number }): number[] {
  return Array.from({ length: partitionCount }, (_, partition) => partition);
}

/** The partitions asked for, each once; all when none are named. @throws MqAdminError `MQ_INVALID_ARGUMENT` */
export function chosen(given: readonly number[] | undefined, partitionCount: number): readonly number[] {
  const all = partitionsOf({ partitionCount });
  if (given === undefined) return all;
  const unknown = given.filter((partition) => !all.includes(partition));
  if (unknown.length > 0) {
    throw invalidArgument(`there is no partition ${unknown.join(', ')}: the topic has ${partitionCount}`);
  }
  return [...new Set(given)];
}
