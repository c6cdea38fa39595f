import type { ResolvedMqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { costs } from './costs.js';
import { upkeepOf, type Upkeep } from './upkeep.js';

/** One topic, and what its groups do with it. All groups are alike, and each is a service of its own. */
export interface Load {
  /** Messages sent per second, at the peak. */
  readonly ratePerSec: number;
  readonly payloadBytes: number;
  /** From the beginning of a handler call to its end, in milliseconds. */
  readonly handlerMs: number;
  /** Processor time in the instance for each message, in milliseconds: the handler's and the library's. */
  readonly cpuMs: number;
  readonly groups: number;
  /** How long messages are kept; 0 for as many as `retentionMaxLenPerPartition` says. */
  readonly retentionHours: number;
  /** Messages of one partition that are handled at once. */
  readonly concurrency: number;
  /** 0 for what the load needs. */
  readonly partitions: number;
  /** Of each group; 0 for what the load needs. */
  readonly instances: number;
  /** How much of the handlers' places and of the processor may be taken at the peak, above 0 and below 1. */
  readonly utilization: number;
  /** Messages per second of the key that has most; 0 when that is not known. */
  readonly hotKeyRate: number;
  /** Masters of a Cluster; 0 for a single server or Sentinel. */
  readonly masters: number;
  /** Processes that only send. */
  readonly producers: number;
}

/** What a load needs. Counts are whole numbers; shares are of one core, or of what there is. */
export interface Plan {
  /** Handlers of a group that run at once, on average: Little's law. */
  readonly busy: number;
  /** Handlers that must be able to run at once. */
  readonly places: number;
  readonly partitions: number;
  readonly instances: number;
  /** Instances that the handlers' places ask for, and those that the processor time does; none to spare. */
  readonly instancesByPlaces: number;
  readonly instancesByProcessor: number;
  /** Partitions of the instance that owns most. */
  readonly owned: number;
  /** Share of the partitions' places that is taken. */
  readonly usedPlaces: number;
  readonly mostPerSec: { readonly ofKey: number; readonly ofPartitions: number };
  readonly connections: { readonly all: number; readonly atServer: number };
  readonly messagesKept: number;
  readonly bytesPerMessage: number;
  readonly dataBytes: number;
  /** For each server. */
  readonly memoryBytes: number;
  /** Each way counted once. */
  readonly networkBytesPerSec: number;
  readonly bufferedBytes: number;
  /** Of one group. */
  readonly upkeep: Upkeep;
  /** Of one core of each server. */
  readonly redisLoad: { readonly messages: number; readonly idle: number };
  readonly afterCrash: {
    readonly missedSec: number;
    readonly waiting: number;
    readonly caughtUpSec: number;
  };
  /** How many messages a partition gets per second. */
  readonly partitionRate: number;
}

/** One read batch left, and one of each stream. */
export const BUFFERED_BATCHES = 3;
/** Redis' memory beside the data: copies while it saves, fragmentation, client buffers, a backlog. */
export const MEMORY_RESERVE = 1.5;
const LEAST_INSTANCES = 2;

export function planFor(load: Load, options: ResolvedMqOptions): Plan {
  const { ratePerSec: rate, handlerMs, utilization, groups, concurrency, masters, payloadBytes } = load;
  const servers = Math.max(1, masters);
  const leaseSec = options.leaseTtlMs / 1_000;

  const busy = (rate * handlerMs) / 1_000;
  const places = Math.max(1, roundUp(busy / utilization));
  const instancesByPlaces = roundUp(places / options.workerThreads);
  const instancesByProcessor = roundUp((rate * load.cpuMs) / 1_000 / utilization);
  const instances = load.instances || Math.max(LEAST_INSTANCES, Math.max(instancesByPlaces, instancesByProcessor) + 1);
  const partitions =
    load.partitions ||
    toMultiple(Math.max(roundUp(places / concurrency), instances, options.defaultPartitionCount), instances);
  const owned = Math.ceil(partitions / instances);
  const usedPlaces = busy / (partitions * concurrency);

  const messagesKept = load.retentionHours
    ? rate * load.retentionHours * 3_600
    : partitions * options.retentionMaxLenPerPartition;
  const untilTrimmed = rate * (options.trimIntervalMs / 1_000);
  const bytesPerMessage = payloadBytes * costs.bytesPerPayloadByte + costs.bytesPerMessage;
  const buffered = BUFFERED_BATCHES * options.consumerBatchCount;
  const dataBytes =
    (messagesKept + untilTrimmed) * bytesPerMessage +
    partitions * groups * buffered * costs.bytesPerPending +
    partitions * (costs.bytesPerPartition + groups * costs.bytesPerOwnedPartition);

  const upkeep = upkeepOf({ instances, partitions, topics: 1, masters }, options);
  const messagesLoad = (rate * (costs.redisUsPerSend + groups * costs.redisUsPerHandled)) / 1_000_000;
  return {
    busy,
    places,
    partitions,
    instances,
    instancesByPlaces,
    instancesByProcessor,
    owned,
    usedPlaces,
    mostPerSec: { ofKey: 1_000 / handlerMs, ofPartitions: (partitions * concurrency * 1_000) / handlerMs },
    connections: connectionsOf(load, instances, owned, options),
    messagesKept,
    bytesPerMessage,
    dataBytes,
    memoryBytes: (dataBytes * MEMORY_RESERVE) / servers,
    networkBytesPerSec: rate * payloadBytes * (1 + groups),
    bufferedBytes: owned * buffered * payloadBytes,
    upkeep,
    redisLoad: { messages: messagesLoad / servers, idle: (groups * upkeep.redisLoad) / servers },
    afterCrash: {
      missedSec: leaseSec,
      waiting: (rate * leaseSec) / instances,
      caughtUpSec: usedPlaces < 1 ? (leaseSec * usedPlaces) / (1 - usedPlaces) : Infinity,
    },
    partitionRate: rate / partitions,
  };
}

/** Commands, leases and announcements, one for sends that wait for replicas, and the readers. */
function connectionsOf(
  { groups, masters, producers }: Load,
  instances: number,
  owned: number,
  options: ResolvedMqOptions,
): Plan['connections'] {
  const base = baseConnections(options);
  const consumers = groups * instances;
  if (masters === 0) {
    const all = consumers * (base + 1) + producers * base;
    return { all, atServer: all };
  }
  const readers = Math.min(owned, options.maxBlockingConnections);
  const all = consumers * (base * masters + readers) + producers * base * masters;
  return { all, atServer: Math.ceil(all / masters) };
}

/** What each process has, to each master, beside its readers. */
export function baseConnections(options: ResolvedMqOptions): number {
  return options.waitReplicas > 0 ? 4 : 3;
}

/** 3.0000000001 is 3. */
function roundUp(value: number): number {
  return Math.ceil(value - 1e-9);
}

function toMultiple(value: number, of: number): number {
  return Math.ceil(value / of) * of;
}
