import type { GroupPartitionRef, PartitionRef } from '../core/events.js';
import type { Keys } from '../core/keys.js';
import { streamIdTime } from '../core/stream-id.js';
import type { Outcome } from './reply.js';
import { call } from './script.js';
import {
  groupStats,
  manyGroupStats,
  manyPartitionStats,
  partitionStats,
  type GroupStats,
  type PartitionStats,
  type Undelivered,
} from './scripts/stats.script.js';
import type { Spread } from './spread.js';

export interface StatisticsOptions {
  /** Ask for the memory of the streams as well. @defaultValue false */
  readonly bytes?: boolean;
  /** Entries counted at most per group that is behind; 0: only what Redis knows without counting. @defaultValue 100 */
  readonly countLimit?: number;
}

/** What a group has not settled on one partition, all places together. */
export interface Lag {
  /** Undelivered, pending, in the retry bucket and on the retry stream. */
  readonly messages: number;
  /** Age of the oldest of them, by the server's clock and the time its id says it was stored; 0 when there is none. */
  readonly ms: number;
  /** Whether `messages` is exact; see `Undelivered`. */
  readonly certainty: Undelivered['certainty'];
}

/** Nodes of the stream that MEMORY USAGE looks at; Redis' own default. */
const SAMPLES = 5;

/**
 * The one source of what is counted: admin, metrics and health read it here, so that their figures never disagree.
 * One script for some partitions, or for a group on some; the answers are in the order of what was asked. An error of
 * one, such as that of a shard which is away, hides no other.
 */
export class Statistics {
  constructor(
    private readonly spread: Spread,
    private readonly keys: Keys,
  ) {}

  ofPartitions(refs: readonly PartitionRef[], options: StatisticsOptions = {}): Promise<Outcome<PartitionStats>[]> {
    const { bytes = false, countLimit = 100 } = options;
    const args = { samples: bytes ? SAMPLES : 0, countLimit };
    return this.spread.runMany(
      refs.map(({ topic, partition }) => call(partitionStats, this.keys.partition(topic, partition), args)),
      manyPartitionStats,
    );
  }

  ofGroups(
    refs: readonly GroupPartitionRef[],
    { countLimit = 100 }: Pick<StatisticsOptions, 'countLimit'> = {},
  ): Promise<Outcome<GroupStats>[]> {
    return this.spread.runMany(
      refs.map(({ topic, partition, group }) =>
        call(groupStats, this.keys.groupPartition(topic, partition, group), { group, countLimit }),
      ),
      manyGroupStats,
    );
  }
}

export function lagOf(stats: GroupStats): Lag {
  const { undelivered, pending, bucket, retryLength, oldestId, now } = stats;
  return {
    messages: undelivered.count + pending + bucket + retryLength,
    // An id may lie in the future when a clock was set back.
    ms: oldestId === null ? 0 : Math.max(0, now - streamIdTime(oldestId)),
    certainty: undelivered.certainty,
  };
}
