import type { RedisStreamsMqModuleOptions } from 'nestjs-redis-streams-mq';
import { between, draw, randomOf } from '../random.js';
import type { Network } from '../servers/servers.js';
import type { Outcome } from './record.js';

export const TOPIC = 'torture';
export const GROUPS = ['left', 'right'] as const;
export const PARTITIONS = 8;
/** Of one producer in one of its lives. */
export const KEYS = 2_000;
export const LEASE_MS = 2_000;
export const HANDLER_TIMEOUT_MS = 1_000;
export const DRAIN_TIMEOUT_MS = 5_000;
export const REDIS_TIMEOUT_MS = 1_000;
export const MAX_ATTEMPTS = 5;

/** What a child is told when it is started. */
export interface ChildSetup {
  readonly seed: string;
  /** Of its own proxies. */
  readonly redis: Network['redis'];
  readonly file: string;
  readonly prefixes: { readonly keyPrefix: string; readonly streamKeyPrefix: string };
  /** `producer-1#2` for the second life of `producer-1`. */
  readonly process: string;
  /** Messages a second. */
  readonly rate: number;
}

export type ToChild = 'go' | 'stop' | 'write your state';
export type FromChild = 'loaded' | 'up' | 'done';

/** Called by a child when it has loaded its code; resolves when it is to begin. */
export function awaitSetup(): Promise<ChildSetup> {
  const setup = new Promise<ChildSetup>((resolve) => process.once('message', resolve));
  tell('loaded');
  return setup;
}

export function tell(message: FromChild): void {
  process.send!(message);
}

/** Short times, so that a minute has many leases, take-overs and retries in it. */
export function moduleOptions({
  redis,
  prefixes,
}: Pick<ChildSetup, 'redis' | 'prefixes'>): RedisStreamsMqModuleOptions {
  return {
    redis,
    endpoints: false,
    ...prefixes,
    defaultPartitionCount: PARTITIONS,
    handlerTimeoutMs: HANDLER_TIMEOUT_MS,
    leaseTtlSeconds: LEASE_MS / 1_000,
    renewIntervalSec: 0.5,
    rebalanceIntervalSec: 1,
    consumerPollTimeoutMs: 200,
    pendingScanIntervalSec: 5,
    retryBaseBackoffMs: 20,
    retryMaxBackoffMs: 200,
    retryMaxAttempts: MAX_ATTEMPTS,
    redisTimeoutMs: REDIS_TIMEOUT_MS,
    sendTimeoutMs: 2_500,
    drainTimeoutMs: DRAIN_TIMEOUT_MS,
    // The checker looks at what the streams hold at the end.
    retentionMaxLenPerPartition: 0,
  };
}

/** What a handler does with one call, decided by the seed alone. */
export interface Fate {
  readonly outcome: Extract<Outcome, 'success' | 'failed' | 'rejected'>;
  readonly takesMs: number;
  /** Ends at once when its signal fires. */
  readonly heedsSignal: boolean;
}

const REJECTED = 0.002;
/** Fail at each attempt, and so become dead letters. */
const HOPELESS = 0.0005;
const FAILED = 0.02;
/** Beyond their time, until their signal fires. */
const HANG = 0.0005;
/** Beyond their time and the lease, whatever their signal says. */
const HANG_DEAF = 0.0003;
const SLOW = 0.0015;
const UNHURRIED = 0.01;
const QUICK = 0.1;

export function fateOf(seed: string, group: string, key: string, seq: number, attempt: number): Fate {
  const message = `${seed}/${group}/${key}/${seq}`;
  const kind = draw(message);
  const random = randomOf(`${message}/${attempt}`);
  let outcome: Fate['outcome'] = 'success';
  if (kind < REJECTED) outcome = 'rejected';
  else if (kind < REJECTED + HOPELESS || random() < FAILED) outcome = 'failed';
  const pace = random();
  if (pace < HANG) return { outcome, takesMs: 60_000, heedsSignal: true };
  if (pace < HANG + HANG_DEAF) return { outcome, takesMs: LEASE_MS * 1.25, heedsSignal: false };
  let takesMs = 0;
  if (pace < SLOW) takesMs = between(random, 200, 0.9 * HANDLER_TIMEOUT_MS);
  else if (pace < UNHURRIED) takesMs = between(random, 20, 100);
  else if (pace < QUICK) takesMs = between(random, 1, 5);
  return { outcome, takesMs, heedsSignal: random() < 0.5 };
}
