import type { RedisStreamsMqModuleOptions } from 'nestjs-redis-streams-mq';
import { between, draw, randomOf } from './random.js';
import type { Outcome } from './soak-record.js';

export const TOPIC = 'soak';
export const GROUPS = ['left', 'right'] as const;
export const PARTITIONS = 8;
export const CONSUMERS = 3;
export const PRODUCERS = 2;
export const KEYS = 400;
export const LEASE_MS = 2_000;
export const DRAIN_TIMEOUT_MS = 5_000;
export const MAX_ATTEMPTS = 5;

/** What a child is told when it is started. */
export interface ChildSetup {
  readonly seed: string;
  /** Of its own proxy. */
  readonly url: string;
  readonly file: string;
  readonly prefixes: { readonly keyPrefix: string; readonly streamKeyPrefix: string };
  /** Which of the producers this is; each has keys of its own. */
  readonly index: number;
  /** Messages a second. */
  readonly rate: number;
}

export type ToSoakChild = 'go' | 'stop' | 'write your state';
export type FromSoakChild = 'loaded' | 'up' | 'done';

/** Called by a child when it has loaded its code; resolves when it is to begin. */
export function awaitSetup(): Promise<ChildSetup> {
  const setup = new Promise<ChildSetup>((resolve) => process.once('message', resolve));
  tell('loaded');
  return setup;
}

export function tell(message: FromSoakChild): void {
  process.send!(message);
}

/** Short times, so that a minute has many leases, take-overs and retries in it. */
export function soakOptions({ url, prefixes }: Pick<ChildSetup, 'url' | 'prefixes'>): RedisStreamsMqModuleOptions {
  return {
    redis: url,
    endpoints: false,
    ...prefixes,
    defaultPartitionCount: PARTITIONS,
    leaseTtlSeconds: LEASE_MS / 1_000,
    renewIntervalSec: 0.5,
    rebalanceIntervalSec: 1,
    consumerPollTimeoutMs: 200,
    pendingScanIntervalSec: 5,
    retryBaseBackoffMs: 20,
    retryMaxBackoffMs: 200,
    retryMaxAttempts: MAX_ATTEMPTS,
    redisTimeoutMs: 1_000,
    sendTimeoutMs: 2_500,
    drainTimeoutMs: DRAIN_TIMEOUT_MS,
    // The checker looks at what the streams hold at the end.
    retentionMaxLenPerPartition: 0,
  };
}

/** What a handler does with one call, decided by the seed alone. */
export interface Fate {
  readonly outcome: Exclude<Outcome, 'aborted'>;
  readonly takesMs: number;
  /** Ends at once when its signal fires. */
  readonly heedsSignal: boolean;
}

export function fateOf(seed: string, group: string, key: string, seq: number, attempt: number): Fate {
  const message = `${seed}/${group}/${key}/${seq}`;
  const kind = draw(message);
  const random = randomOf(`${message}/${attempt}`);
  let outcome: Fate['outcome'] = 'success';
  if (kind < 0.002) outcome = 'rejected';
  else if (kind < 0.0025 || random() < 0.02) outcome = 'failed';
  const slowness = random();
  let takesMs = 0;
  if (slowness < 0.0003) takesMs = LEASE_MS * 1.25;
  else if (slowness < 0.002) takesMs = between(random, 200, 900);
  else if (slowness < 0.01) takesMs = between(random, 20, 100);
  else if (slowness < 0.1) takesMs = between(random, 1, 5);
  return { outcome, takesMs, heedsSignal: random() < 0.5 };
}
