import type { Clock } from '../core/clock.js';
import { MqAdminError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Keys } from '../core/keys.js';
import { assertTopicName } from '../core/names.js';
import type { Serializer } from '../core/serializer.js';
import type { Announcement } from '../redis/announcements.js';
import type { Connection } from '../redis/connection.js';
import type { Spread } from '../redis/spread.js';
import type { Statistics } from '../redis/statistics.js';
import type { TopicMeta, TopicRegistry } from '../redis/topic-registry.js';
import type { TopicRetention } from './topic-retention.js';

/** What every operation of the administration needs. */
export interface AdminDeps {
  /** One that waits for a connection: people call at any time. */
  readonly connection: Connection;
  readonly keys: Keys;
  readonly topics: TopicRegistry;
  readonly events: MqEvents;
  readonly clock: Clock;
  readonly defaultPartitionCount: number;
  /** For keys of any slots. */
  readonly spread: Spread;
  readonly statistics: Statistics;
  readonly serializer: Serializer;
  /** What is kept of a topic's partitions. */
  readonly retentionOf: (topic: string) => Promise<TopicRetention>;
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

export function topicNotFound(topic: string): MqAdminError {
  return new MqAdminError('MQ_TOPIC_NOT_FOUND', `topic ${topic} does not exist`, { context: { topic } });
}

export function invalidArgument(message: string): MqAdminError {
  return new MqAdminError('MQ_INVALID_ARGUMENT', message);
}

/** At most that many commands are under way at once, so that a topic of a thousand partitions is no burst. */
const AT_ONCE = 32;

/** `work` for each of these, some of them at a time; the results in their order. */
export async function forEachOf<I, R>(items: readonly I[], work: (item: I) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let i = 0; i < items.length; i += AT_ONCE) {
    results.push(...(await Promise.all(items.slice(i, i + AT_ONCE).map(work))));
  }
  return results;
}

export function partitionsOf({ partitionCount }: { readonly partitionCount: number }): number[] {
  return Array.from({ length: partitionCount }, (_, partition) => partition);
}
