import { MAX_PARTITION_COUNT, type ResolvedMqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { Load, Plan } from './plan.js';

/** Of a partition, in one turn of the trimmer: `docs/options.md`, `trimIntervalSec`. */
const TRIMMED_PER_TURN = 50_000;
/** What the scripts of membership list. */
const MOST_MEMBERS = 5_000;
/** Redis' own default. */
const MAX_CLIENTS = 10_000;
const MANY_PARTITIONS = 64;
const SAFE_IDLE = 0.2;
const SAFE_REDIS = 0.7;
const SAFE_LOOK = 0.05;
const LARGE_SERVER_BYTES = 64 * 1_024 ** 3;

/** What of the plan cannot be, is near a limit, or needs an option that is not the default. */
export function warningsOf(load: Load, plan: Plan, options: ResolvedMqOptions): string[] {
  return [...ofPartitions(load, plan), ...ofInstances(load, plan, options), ...ofRedis(load, plan, options)];
}

function ofPartitions(load: Load, { partitions, places, usedPlaces }: Plan): string[] {
  const { concurrency, hotKeyRate, handlerMs, utilization } = load;
  const warnings: string[] = [];
  if (partitions > MAX_PARTITION_COUNT)
    warnings.push(
      `${partitions} partitions are more than a topic can have (${MAX_PARTITION_COUNT}): raise --concurrency, or spread the keys over several topics.`,
    );
  if (concurrency === 1 && places > MANY_PARTITIONS)
    warnings.push(
      `Handlers that wait can share a partition: with --concurrency 16, ${Math.ceil(places / 16)} partitions have the places, and the order of each key stays.`,
    );
  if (usedPlaces >= 1)
    warnings.push(
      `${partitions} partitions with concurrency ${concurrency} are too few: the lag grows for ever (${percent(usedPlaces)} used).`,
    );
  else if (usedPlaces > utilization * 1.001)
    warnings.push(
      `${partitions} partitions with concurrency ${concurrency} are ${percent(usedPlaces)} used, more than ${percent(utilization)}: each burst makes a lag.`,
    );
  const ofKey = (hotKeyRate * handlerMs) / 1_000;
  if (ofKey > utilization)
    warnings.push(
      `The hottest key alone needs ${percent(ofKey)} of one handler's time, and no number of partitions helps: messages of a key are handled one at a time. Make the handler faster or the key finer.`,
    );
  return warnings;
}

function ofInstances(load: Load, plan: Plan, options: ResolvedMqOptions): string[] {
  const { instances, partitions, instancesByPlaces, instancesByProcessor, owned, upkeep } = plan;
  const { workerThreads, maxBlockingConnections } = options;
  const needed = Math.max(1, instancesByPlaces, instancesByProcessor);
  const warnings: string[] = [];
  if (instances > MOST_MEMBERS) warnings.push(`A group has ${MOST_MEMBERS} instances at most.`);
  if (instances > partitions) warnings.push(`${instances - partitions} instances of each group own no partition.`);
  if (instances - 1 < needed)
    warnings.push(`When one instance of a group is away, ${instances - 1} are left, and the load needs ${needed}.`);
  if (load.concurrency > workerThreads)
    warnings.push(
      `workerThreads (${workerThreads}) bounds all partitions of an instance together: raise it to ${load.concurrency} or more.`,
    );
  if (load.masters > 0 && owned > maxBlockingConnections)
    warnings.push(
      `An instance owns ${owned} partitions, of which ${maxBlockingConnections} have a connection that waits (maxBlockingConnections); the others are polled, when idle 20 times a second each.`,
    );
  const looking = upkeep.look.nodeMs / upkeep.lookEveryMs;
  if (looking > SAFE_LOOK)
    warnings.push(
      `Each instance spends ${percent(looking)} of its processor on looking at the partitions of its group.`,
    );
  return warnings;
}

function ofRedis(load: Load, plan: Plan, options: ResolvedMqOptions): string[] {
  const { redisLoad, connections, partitions, partitionRate } = plan;
  const warnings: string[] = [];
  if (load.retentionHours > 0)
    warnings.push(
      `To keep by time set retentionMs: ${load.retentionHours * 3_600_000} and retentionMaxLenPerPartition: 0; of two bounds the one that removes more counts.`,
    );
  if (plan.memoryBytes > LARGE_SERVER_BYTES)
    warnings.push(
      'A server of more than 64 GB takes minutes to load, to save and to copy to a replica: keep messages for a shorter time, keep large payloads elsewhere, or take more masters.',
    );
  const trimmed = TRIMMED_PER_TURN / (options.trimIntervalMs / 1_000);
  if (partitionRate > trimmed)
    warnings.push(
      `A partition grows by ${Math.ceil(partitionRate)}/s, and ${Math.floor(trimmed)}/s are trimmed at most: set trimIntervalSec to ${Math.max(1, Math.floor((TRIMMED_PER_TURN * partitions) / load.ratePerSec))} or less.`,
    );
  if (redisLoad.idle > SAFE_IDLE)
    warnings.push(
      `Leases and looks alone take ${percent(redisLoad.idle)} of a core of Redis, since each instance looks at all partitions of its group: have fewer of either in a group, or a longer lease.`,
    );
  const all = redisLoad.idle + redisLoad.messages;
  if (all > SAFE_REDIS)
    warnings.push(
      `Redis runs commands on one core, and would be at ${percent(all)} of it: spread the load over (more) masters of a Cluster.`,
    );
  if (connections.atServer > MAX_CLIENTS)
    warnings.push(
      `${connections.atServer} connections to one server: raise its maxclients (${MAX_CLIENTS} by default) and its limit of open files.`,
    );
  return warnings;
}

function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}
