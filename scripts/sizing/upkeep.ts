import { LONGEST_IDLE } from '../../libs/redis-streams-mq/src/consumer/reader.js';
import type { ResolvedMqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { costs, inCluster, onOneServer } from './costs.js';

/** One group, all instances alike. */
export interface Fleet {
  readonly instances: number;
  readonly partitions: number;
  readonly topics: number;
  /** Masters of a Cluster; 0 for a single server or Sentinel. */
  readonly masters: number;
}

/** What one group asks of Redis without any message, all its instances together. */
export interface Upkeep {
  /** How often each instance looks at members and owners, in milliseconds. */
  readonly lookEveryMs: number;
  /** Sent to Redis per second, a script counting as one. */
  readonly commandsPerSec: {
    readonly renewals: number;
    readonly heartbeats: number;
    readonly looksAtOwners: number;
    readonly reads: number;
    readonly looksForDue: number;
    readonly rest: number;
    readonly total: number;
  };
  /** Leases prolonged per second. */
  readonly leaseRenewalsPerSec: number;
  /** Leases read per second to see who owns what: instances times partitions. */
  readonly leasesSeenPerSec: number;
  /** Processor time of one look, in milliseconds. */
  readonly look: { readonly redisMs: number; readonly nodeMs: number };
  /** Share of one core of Redis, all masters together. */
  readonly redisLoad: number;
}

/** As in `lease-keeper`, `lease-client`, `retry-mover` and `reader`: how much one call takes on a single node. */
const LEASES_PER_CALL = 250;
const BUCKETS_PER_CALL = 500;
const LONGEST_POLL_MS = 50;
const WAKE_EVERY_MS = 20_000;

/** Members and the owner's heartbeat end before the leases do, and a look has to come three times in that time. */
export function lookEveryMs(options: ResolvedMqOptions): number {
  return Math.min(options.rebalanceIntervalMs, Math.floor((options.leaseTtlMs - options.renewIntervalMs) / 3));
}

/** How long a read of a group without messages waits. */
export function emptyReadMs({ consumerPollTimeoutMs }: ResolvedMqOptions, masters: number): number {
  return consumerPollTimeoutMs * (masters > 0 ? 1 : LONGEST_IDLE);
}

/** Without messages, joins and departures: those are announced and answered by looks of all. */
export function upkeepOf(fleet: Fleet, options: ResolvedMqOptions): Upkeep {
  const { instances, partitions, topics, masters } = fleet;
  const isCluster = masters > 0;
  const everyMs = lookEveryMs(options);
  const looksPerSec = (instances * 1_000) / everyMs;
  const perSec = (intervalMs: number): number => 1_000 / intervalMs;
  const owned = Math.min(partitions, Math.ceil(partitions / instances));
  // Those without a partition renew, move and read nothing.
  const owners = Math.min(instances, partitions);
  const calls = (items: number, perCall: number): number => (isCluster ? items : Math.ceil(items / perCall));

  const renewals = isCluster
    ? partitions * perSec(options.renewIntervalMs)
    : owners * calls(owned, LEASES_PER_CALL) * perSec(options.renewIntervalMs);
  const looksForDue =
    perSec(options.retryMoverIntervalMs) * (isCluster ? partitions : owners * calls(2 * owned, BUCKETS_PER_CALL));
  const blocking = isCluster ? owners * Math.min(owned, options.maxBlockingConnections) : owners;
  const polled = isCluster ? owners * Math.max(0, owned - options.maxBlockingConnections) : 0;
  const reads = blocking * perSec(emptyReadMs(options, masters)) + polled * perSec(LONGEST_POLL_MS);
  const looksAtOwners = looksPerSec * calls(partitions, LEASES_PER_CALL);
  const scans = 2 * partitions * perSec(options.pendingScanIntervalMs);
  const trims = partitions * perSec(options.trimIntervalMs);
  const subscriptions = instances * perSec(options.rebalanceIntervalMs);
  const wakes = isCluster ? 0 : owners * perSec(WAKE_EVERY_MS);
  const rest = scans + trims + subscriptions + wakes + looksPerSec * topics;

  const leaseRenewalsPerSec = partitions * perSec(options.renewIntervalMs);
  const cost = isCluster ? inCluster : onOneServer;
  const redisMs = (partitions * cost.redisUsPerLook + instances * costs.redisUsPerLookedMember) / 1_000;
  const nodeMs = (partitions * cost.nodeUsPerLook + instances * costs.nodeUsPerLookedMember) / 1_000;
  const readsOfPartitions = isCluster ? reads : partitions * perSec(emptyReadMs(options, masters));
  const usPerSec =
    leaseRenewalsPerSec * cost.redisUsPerRenewal +
    looksPerSec * redisMs * 1_000 +
    partitions * perSec(options.retryMoverIntervalMs) * cost.redisUsPerLookForDue +
    readsOfPartitions * cost.redisUsPerRead;
  return {
    lookEveryMs: everyMs,
    commandsPerSec: {
      renewals,
      heartbeats: looksPerSec,
      looksAtOwners,
      reads,
      looksForDue,
      rest,
      total: renewals + looksPerSec + looksAtOwners + reads + looksForDue + rest,
    },
    leaseRenewalsPerSec,
    leasesSeenPerSec: looksPerSec * partitions,
    look: { redisMs, nodeMs },
    redisLoad: usPerSec / 1_000_000,
  };
}
