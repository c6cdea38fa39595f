import { MqInvalidOptionsError } from './errors.js';
import { type KebabOptions, normalizeOptions } from './kebab-options.js';
import { Keys } from './keys.js';
import { nameProblem } from './names.js';
import {
  describeValue,
  flag,
  implementation,
  integer,
  milliseconds,
  oneOf,
  problemOf,
  seconds,
  text,
  toMs,
} from './option-rules.js';
import type { OptionKind, OptionRule } from './option-rules.js';
import { MAX_PARTITION_COUNT, type MqOptions, type ResolvedMqOptions } from './options.js';
import { jsonSerializer } from './serializer.js';

type RuledOption = Exclude<keyof MqOptions, 'redis'>;

const MAX_BATCH = 10_000;
const MAX_HANDLERS = 65_536;
const ANY_COUNT = Number.MAX_SAFE_INTEGER;
/** Redis' `proto-max-bulk-len`. */
const MAX_BULK_BYTES = 512 * 1024 * 1024;

const prefix = (defaultValue: string): OptionRule<string> =>
  text(defaultValue, /^[^{}]+$/, 'a text that is not empty and has no { or }');

const groupName = <T extends string | undefined>(defaultValue: T): OptionRule<string | T> => ({
  kind: 'other',
  defaultValue,
  expected: 'a group name: 1 to 249 characters of A-Z a-z 0-9 . _ -, not "." or ".."',
  accepts: (value) => nameProblem('group', value) === undefined,
});

/** The rule and the default of every option but `redis`. */
export const mqOptionRules: { readonly [K in RuledOption]: OptionRule<ResolvedMqOptions[K]> } = {
  enabled: flag(true),
  autoStart: flag(true),
  keyPrefix: prefix('streaming:mq'),
  streamKeyPrefix: prefix('stream:topic'),
  consumerNamePrefix: text('consumer-', /^[A-Za-z0-9._-]{0,100}$/, 'at most 100 characters of A-Z a-z 0-9 . _ -'),
  defaultConsumerGroup: groupName(undefined),
  defaultDlqGroup: groupName('dlq-group'),
  dlqConsumerSuffix: text('-dlq', /^[A-Za-z0-9._-]{1,100}$/, '1 to 100 characters of A-Z a-z 0-9 . _ -'),
  defaultPartitionCount: integer(4, 1, MAX_PARTITION_COUNT),
  workerThreads: integer(16, 1, MAX_HANDLERS),
  consumerBatchCount: integer(32, 1, MAX_BATCH),
  consumerPollTimeoutMs: milliseconds(500, 1),
  leaseTtlSeconds: seconds(15, 1000),
  rebalanceIntervalSec: seconds(5, 10),
  renewIntervalSec: seconds(3, 10),
  pendingScanIntervalSec: seconds(30, 10),
  claimIdleMs: integer(300_000, 0, ANY_COUNT),
  claimBatchSize: integer(100, 1, MAX_BATCH),
  retryMaxAttempts: integer(5, 1, 1_000_000),
  retryBaseBackoffMs: milliseconds(1000, 0),
  retryMaxBackoffMs: milliseconds(60_000, 0),
  retryMoverBatch: integer(100, 1, MAX_BATCH),
  retryMoverIntervalSec: seconds(1, 10),
  maxInFlight: integer(0, 0, 10_000_000),
  maxLeasedPartitionsPerConsumer: integer(0, 0, 1_000_000),
  retentionMaxLenPerPartition: integer(100_000, 0, ANY_COUNT),
  retentionHardMaxLenPerPartition: integer(0, 0, ANY_COUNT),
  retentionMs: integer(0, 0, ANY_COUNT),
  retentionAbandonedGroupMs: integer(0, 0, ANY_COUNT),
  trimIntervalSec: seconds(60, 10),
  dlqRetentionMaxLen: integer(0, 0, ANY_COUNT),
  dlqRetentionMs: integer(0, 0, ANY_COUNT),
  ackDeletePolicy: oneOf(
    'none',
    ['none'],
    ', because other policies take messages from groups that have not read them',
  ),
  startFrom: oneOf('earliest', ['earliest', 'latest']),
  autoCreateTopics: flag(true),
  sendTimeoutMs: milliseconds(10_000, 1),
  sendBufferLimit: integer(100_000, 1, 10_000_000),
  maxPayloadBytes: integer(1_048_576, 1, MAX_BULK_BYTES),
  handlerTimeoutMs: milliseconds(300_000, 0),
  drainTimeoutMs: milliseconds(20_000, 1),
  ackFlushMs: integer(5, 0, 10_000),
  maxBlockingConnections: integer(64, 1, 10_000),
  waitReplicas: integer(0, 0, 100),
  waitReplicasTimeoutMs: milliseconds(1000, 1),
  failFast: flag(false),
  bootTimeoutMs: milliseconds(10_000, 1),
  redisTimeoutMs: milliseconds(5000, 100),
  healthMaxLag: integer(0, 0, ANY_COUNT),
  healthMaxLagAgeMs: integer(0, 0, ANY_COUNT),
  metricsEnabled: flag(true),
  metricsIntervalSec: seconds(15, 100),
  serializer: implementation(
    jsonSerializer,
    'an object with serialize() and deserialize()',
    'serialize',
    'deserialize',
  ),
  partitioner: implementation<ResolvedMqOptions['partitioner']>(undefined, 'a function'),
};

const kinds: ReadonlyMap<string, OptionKind> = new Map<string, OptionKind>([
  ['redis', 'opaque'],
  ...Object.entries(mqOptionRules).map(([name, rule]): [string, OptionKind] => [name, rule.kind]),
]);

/** Whether a key for messages can be spelled the same as a control key, as with `a` and `a:commit`. */
function shareKeys(keyPrefix: string, streamKeyPrefix: string): boolean {
  const keys = new Keys(keyPrefix, streamKeyPrefix);
  // A group or an id may be called as the end of a key for messages is.
  const names = [...Object.values(keys.groupPartition('t', 0, 'dlq')), keys.dedup('t', 0, 'dlq')];
  return new Set(names).size < names.length;
}

interface CrossRule {
  readonly of: readonly RuledOption[];
  readonly broken: (options: ResolvedMqOptions) => boolean;
  readonly problem: (options: ResolvedMqOptions) => string;
}

const crossRules: readonly CrossRule[] = [
  {
    of: ['keyPrefix', 'streamKeyPrefix'],
    broken: (o) => o.keyPrefix === o.streamKeyPrefix || shareKeys(o.keyPrefix, o.streamKeyPrefix),
    problem: (o) =>
      `keyPrefix ("${o.keyPrefix}") and streamKeyPrefix ("${o.streamKeyPrefix}") must differ and lead to different keys`,
  },
  {
    of: ['renewIntervalSec', 'leaseTtlSeconds'],
    broken: (o) => o.renewIntervalMs >= o.leaseTtlMs / 2,
    problem: (o) =>
      `renewIntervalSec (${o.renewIntervalSec}) must be less than half of leaseTtlSeconds (${o.leaseTtlSeconds}), ` +
      'so that one failed renewal does not lose the lease',
  },
  {
    of: ['consumerPollTimeoutMs', 'leaseTtlSeconds'],
    broken: (o) => o.consumerPollTimeoutMs >= o.leaseTtlMs / 2,
    problem: (o) =>
      `consumerPollTimeoutMs (${o.consumerPollTimeoutMs}) must be less than half of leaseTtlSeconds ` +
      `(${o.leaseTtlSeconds} s), so that a read does not outlive the lease`,
  },
  {
    of: ['maxInFlight'],
    broken: (o) => o.maxInFlight === 1,
    problem: () => 'maxInFlight must be 0 or at least 2, since one read asks for retries and for new messages alike',
  },
  {
    of: ['retryMaxBackoffMs', 'retryBaseBackoffMs'],
    broken: (o) => o.retryMaxBackoffMs < o.retryBaseBackoffMs,
    problem: (o) =>
      `retryMaxBackoffMs (${o.retryMaxBackoffMs}) must not be less than retryBaseBackoffMs (${o.retryBaseBackoffMs})`,
  },
  {
    of: ['waitReplicas', 'waitReplicasTimeoutMs', 'redisTimeoutMs'],
    broken: (o) => o.waitReplicas > 0 && o.waitReplicasTimeoutMs >= o.redisTimeoutMs,
    problem: (o) =>
      `waitReplicasTimeoutMs (${o.waitReplicasTimeoutMs}) must be less than redisTimeoutMs (${o.redisTimeoutMs}), ` +
      'after which the connection counts as dead',
  },
];

/**
 * Checks the options and sets the missing ones. Pure: nothing is read but the object.
 *
 * Names may be camelCase, or kebab-case as in the starter's `application.yml` (numbers and booleans then also as text).
 *
 * @returns a frozen object with every field set; `redis` and the serializer are handed on as they are, not frozen.
 * @throws MqInvalidOptionsError with all problems at once.
 */
export function resolveOptions(options: MqOptions | KebabOptions<MqOptions>): ResolvedMqOptions {
  const normalized = normalizeOptions(options, kinds);
  const problems = [...normalized.problems];

  const redis = normalized.options.get('redis');
  if (redis !== undefined && (redis.value === undefined || redis.value === null || redis.value === '')) {
    problems.push(
      `redis is present but ${redis.value === '' ? 'empty' : describeValue(redis.value)}; ` +
        'remove the key for localhost: there is no silent localhost for a forgotten value',
    );
  }

  const values: Record<string, unknown> = { redis: redis?.value };
  const wrong = new Set(normalized.refused);
  for (const [name, rule] of Object.entries(mqOptionRules)) {
    const option = normalized.options.get(name);
    const problem = option === undefined ? null : problemOf(rule, option.given, option.value);
    if (problem !== null) {
      problems.push(problem);
      wrong.add(name);
    }
    values[name] = option === undefined || problem !== null ? rule.defaultValue : option.value;
  }

  const checked = values as unknown as ResolvedMqOptions;
  const resolved: ResolvedMqOptions = Object.freeze({
    ...checked,
    leaseTtlMs: toMs(checked.leaseTtlSeconds),
    rebalanceIntervalMs: toMs(checked.rebalanceIntervalSec),
    renewIntervalMs: toMs(checked.renewIntervalSec),
    pendingScanIntervalMs: toMs(checked.pendingScanIntervalSec),
    retryMoverIntervalMs: toMs(checked.retryMoverIntervalSec),
    trimIntervalMs: toMs(checked.trimIntervalSec),
    metricsIntervalMs: toMs(checked.metricsIntervalSec),
  });
  for (const rule of crossRules) {
    if (!rule.of.some((name) => wrong.has(name)) && rule.broken(resolved)) problems.push(rule.problem(resolved));
  }
  if (problems.length > 0) throw new MqInvalidOptionsError(problems);
  return resolved;
}
