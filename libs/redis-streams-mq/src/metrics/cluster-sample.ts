import { streamIdTime, compareStreamIds } from '../core/stream-id.js';
import type { ServerState } from '../redis/server-state.js';
import { lagOf } from '../redis/statistics.js';
import type { GroupStats, PartitionStats } from '../redis/scripts/stats.script.js';
import type { ClusterGaugeName, Reading } from './metric-definitions.js';

export type Readings = Readonly<Partial<Record<ClusterGaugeName, readonly Reading[]>>>;

/** Dead letters of a topic by group and reason. */
export interface DeadLetterCount {
  readonly group: string;
  readonly reason: string;
  readonly count: number;
}

/** What was read of one topic, whole. */
export interface TopicSample {
  readonly topic: string;
  readonly partitions: readonly PartitionStats[];
  /** By group; one for each partition. */
  readonly groups: ReadonlyMap<string, readonly GroupStats[]>;
  readonly deadLetters: readonly DeadLetterCount[];
}

/** What all instances share at one moment. Pure: made of what was read. */
export function readingsOf(topics: readonly TopicSample[], servers: readonly ServerState[]): Readings {
  const list: Partial<Record<ClusterGaugeName, Reading[]>> = {};
  const add = (name: ClusterGaugeName, value: number, ...labels: string[]): void => {
    (list[name] ??= []).push({ labels, value });
  };
  add('topics', topics.length);
  for (const { topic, partitions, groups, deadLetters } of topics) {
    add('partitions', partitions.length, topic);
    add(
      'messages',
      sum(partitions, ({ length }) => length),
      topic,
    );
    add('frontierAge', max(partitions, frontierAgeMs), topic);
    add(
      'delayed',
      sum(partitions, ({ delayed }) => delayed),
      topic,
    );
    add(
      'delayedOverdue',
      max(partitions, ({ now, nextDelayedDue }) => overdueMs(now, nextDelayedDue)),
      topic,
    );
    for (const { group, reason, count } of deadLetters) add('deadLetters', count, topic, group, reason);
    for (const [group, of] of groups) {
      add(
        'lag',
        sum(of, (stats) => lagOf(stats).messages),
        topic,
        group,
      );
      add(
        'lagAge',
        max(of, (stats) => lagOf(stats).ms),
        topic,
        group,
      );
      add(
        'pending',
        sum(of, ({ pending, retryPending }) => pending + retryPending),
        topic,
        group,
      );
      add('oldestPendingIdle', max(of, oldestIdleMs), topic, group);
      add(
        'retryBucket',
        sum(of, ({ bucket }) => bucket),
        topic,
        group,
      );
      add(
        'retryOverdue',
        max(of, ({ now, nextDue }) => overdueMs(now, nextDue)),
        topic,
        group,
      );
      add(
        'unowned',
        sum(of, ({ token, isPaused }) => Number(token === null && !isPaused)),
        topic,
        group,
      );
      add(
        'paused',
        sum(of, ({ isPaused }) => Number(isPaused)),
        topic,
        group,
      );
    }
  }
  if (servers.length > 0) {
    add(
      'memoryUsed',
      sum(servers, ({ usedMemory }) => usedMemory),
    );
    add(
      'memoryRatio',
      max(servers, ({ usedMemory, maxMemory }) => (maxMemory > 0 ? usedMemory / maxMemory : 0)),
    );
    add(
      'evictedKeys',
      sum(servers, ({ evictedKeys }) => evictedKeys),
    );
    add(
      'mayEvict',
      max(servers, ({ policy }) => Number(policy !== '' && policy !== 'noeviction')),
    );
  }
  return list;
}

/** Age of where retention must stop: the oldest entry of the stream that some group has not settled; 0 when all have. */
export function frontierAgeMs({ now, groups, firstId }: PartitionStats): number {
  if (firstId === null) return 0;
  const ages = groups.map(({ oldestPendingId, position, undelivered }) => {
    if (oldestPendingId !== null) return now - streamIdTime(oldestPendingId);
    if (undelivered.count === 0) return 0;
    // The entry behind the position is not known, but it is neither before the position nor before the first.
    const frontier = compareStreamIds(position, firstId) < 0 ? firstId : position;
    return now - streamIdTime(frontier);
  });
  return Math.max(0, ...ages);
}

function oldestIdleMs({ oldestPending, oldestRetryPending }: GroupStats): number {
  return Math.max(oldestPending?.idleMs ?? 0, oldestRetryPending?.idleMs ?? 0);
}

function overdueMs(now: number, due: number | null): number {
  return due === null ? 0 : Math.max(0, now - due);
}

function sum<T>(of: readonly T[], value: (each: T) => number): number {
  return of.reduce((total, each) => total + value(each), 0);
}

function max<T>(of: readonly T[], value: (each: T) => number): number {
  return of.reduce((most, each) => Math.max(most, value(each)), 0);
}
