import type { ResolvedMqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { costs } from './costs.js';
import { BUFFERED_BATCHES, MEMORY_RESERVE, baseConnections, type Load, type Plan } from './plan.js';
import { emptyReadMs } from './upkeep.js';

/** A number of the plan, and where it comes from. */
export interface Figure {
  readonly name: string;
  readonly value: string;
  readonly why: string;
}

export function figuresOf(load: Load, plan: Plan, options: ResolvedMqOptions): Figure[] {
  return [...ofHandling(load, plan, options), ...ofRedis(load, plan, options), ...ofCrash(plan, options)];
}

function ofHandling(load: Load, plan: Plan, options: ResolvedMqOptions): Figure[] {
  const { concurrency, cpuMs } = load;
  const free = `${Math.round(load.utilization * 100)} %`;
  const { workerThreads, defaultPartitionCount, consumerBatchCount } = options;
  return [
    { name: 'handlers at work, each group', value: number(plan.busy), why: 'rate x handler time' },
    { name: 'places for them', value: number(plan.places), why: `${free} of them taken at the peak (--utilization)` },
    {
      name: 'partitions',
      value: number(plan.partitions),
      why: load.partitions
        ? 'as given'
        : `places / concurrency (${concurrency}); one for each instance and ${defaultPartitionCount} at least; a multiple of the instances`,
    },
    {
      name: 'instances, each group',
      value: number(plan.instances),
      why: load.instances
        ? 'as given'
        : `${plan.instancesByPlaces} by places / workerThreads (${workerThreads}), ${plan.instancesByProcessor} by rate x --cpu-ms ${cpuMs} / ${free}; the more of them and one to spare`,
    },
    { name: 'partitions an instance owns', value: number(plan.owned), why: 'partitions / instances, rounded up' },
    {
      name: 'most messages of one key',
      value: `${number(plan.mostPerSec.ofKey)}/s`,
      why: '1 / handler time: one at a time',
    },
    {
      name: 'most messages of the topic',
      value: `${number(plan.mostPerSec.ofPartitions)}/s`,
      why: 'partitions x concurrency / handler time, with keys spread evenly and instances enough',
    },
    {
      name: 'buffered in an instance',
      value: bytes(plan.bufferedBytes),
      why: `payloads of ${BUFFERED_BATCHES} batches of ${consumerBatchCount} a partition at most; maxInFlight bounds it`,
    },
  ];
}

function ofRedis(load: Load, plan: Plan, options: ResolvedMqOptions): Figure[] {
  const each = load.masters > 0 ? ', each master' : '';
  const base = baseConnections(options);
  const { commandsPerSec, lookEveryMs } = plan.upkeep;
  const { retentionMaxLenPerPartition, renewIntervalMs, retryMoverIntervalMs } = options;
  return [
    {
      name: 'connections',
      value: number(plan.connections.all),
      why:
        load.masters > 0
          ? `at most: ${base} to each master, one for each owned partition up to maxBlockingConnections (${options.maxBlockingConnections})`
          : `${base} a process, one more for the group of an instance`,
    },
    load.retentionHours > 0
      ? { name: 'messages kept', value: number(plan.messagesKept), why: `rate x ${load.retentionHours} h` }
      : {
          name: 'messages kept',
          value: number(plan.messagesKept),
          why: `partitions x retentionMaxLenPerPartition (${retentionMaxLenPerPartition}): the last ${time(plan.messagesKept / load.ratePerSec)}`,
        },
    {
      name: 'a message in Redis',
      value: bytes(plan.bytesPerMessage),
      why: `payload x ${costs.bytesPerPayloadByte} + ${costs.bytesPerMessage} B, measured; key of 8 characters, no headers`,
    },
    {
      name: 'data in Redis',
      value: bytes(plan.dataBytes),
      why: 'messages kept and those until the next trim, pending entries, partitions; no retries, delays, dead letters',
    },
    {
      name: `memory for Redis${each}`,
      value: bytes(plan.memoryBytes),
      why: `data x ${MEMORY_RESERVE}, for saving, fragmentation and a backlog`,
    },
    {
      name: 'payloads in and out of Redis',
      value: `${bytes(plan.networkBytesPerSec)}/s`,
      why: 'rate x payload, in once and out for each group',
    },
    {
      name: `a core of Redis, messages${each}`,
      value: percent(plan.redisLoad.messages),
      why: `${costs.redisUsPerSend} us a send, ${costs.redisUsPerHandled} us for each group; measured with full batches, several times as much one by one`,
    },
    {
      name: `a core of Redis, idle${each}`,
      value: percent(plan.redisLoad.idle),
      why: 'leases, looks at owners, empty reads: measured costs x intervals',
    },
    {
      name: 'commands when idle',
      value: `${number(load.groups * commandsPerSec.total)}/s`,
      why: `renewals each ${renewIntervalMs / 1_000} s, looks ${lookEveryMs / 1_000} s, what is due ${retryMoverIntervalMs / 1_000} s, reads ${emptyReadMs(options, load.masters) / 1_000} s`,
    },
  ];
}

function ofCrash({ afterCrash, usedPlaces }: Plan, { leaseTtlMs, renewIntervalMs }: ResolvedMqOptions): Figure[] {
  return [
    {
      name: 'until a dead instance is replaced',
      value: time(afterCrash.missedSec),
      why: `leaseTtlSeconds at most, ${time((leaseTtlMs - renewIntervalMs) / 1_000)} at least; one that stops in order hands over at once`,
    },
    { name: 'messages that wait by then', value: number(afterCrash.waiting), why: 'rate x lease / instances' },
    {
      name: 'until they are caught up',
      value: time(afterCrash.caughtUpSec),
      why: `lease x used / free places, ${percent(usedPlaces)} being used`,
    },
  ];
}

function number(value: number): string {
  const digits = value < 100 && !Number.isInteger(value) ? 1 : 0;
  return value.toLocaleString('en-US', { maximumFractionDigits: digits });
}

function percent(share: number): string {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

function time(seconds: number): string {
  if (!Number.isFinite(seconds)) return 'never';
  const steps: readonly [number, string][] = [
    [86_400, 'days'],
    [3_600, 'h'],
    [60, 'min'],
  ];
  const [size, unit] = steps.find(([least]) => seconds >= 2 * least) ?? [1, 's'];
  return `${number(seconds / size)} ${unit}`;
}

function bytes(value: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  const at = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${number(value / 1_024 ** at)} ${units[at]}`;
}
