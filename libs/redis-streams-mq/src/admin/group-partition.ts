import type { GroupPartitionRef } from '../core/events.js';
import type { GroupStats } from '../redis/scripts/stats.script.js';
import { valueOf } from '../redis/spread.js';
import { lagOf, type Lag } from '../redis/statistics.js';
import type { AdminDeps } from './admin-deps.js';

/** Who holds the lease of a partition for a group. */
export interface PartitionOwner {
  readonly instance: string;
  /** Fencing number of this ownership. */
  readonly epoch: number;
  /** What is left of the lease, in milliseconds. */
  readonly leaseMs: number;
}

export interface GroupReading {
  readonly ref: GroupPartitionRef;
  readonly stats: GroupStats;
  readonly lag: Lag;
}

/** Entries counted for a group that is behind where Redis cannot say how far. */
const COUNT_LIMIT = 1_000;

/** What these groups have to do on these partitions, in the order of `refs`. */
export async function readGroups(
  { statistics }: AdminDeps,
  refs: readonly GroupPartitionRef[],
): Promise<GroupReading[]> {
  const outcomes = await statistics.ofGroups(refs, { countLimit: COUNT_LIMIT });
  return outcomes.map((outcome, i) => {
    const stats = valueOf(outcome);
    return { ref: refs[i]!, stats, lag: lagOf(stats) };
  });
}

export function ownerOf({ token, leaseMs }: GroupStats): PartitionOwner | null {
  const [, instance, epoch] = /^(.*)#(\d+)$/.exec(token ?? '') ?? [];
  if (instance === undefined) return null;
  return { instance, epoch: Number(epoch), leaseMs: Math.max(0, leaseMs ?? 0) };
}
