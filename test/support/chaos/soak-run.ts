import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Keys } from '../../../libs/redis-streams-mq/src/core/keys.js';
import { TestInstance } from '../engine.js';
import { startRedis } from '../redis-server.js';
import { startProxy, type TcpProxy } from '../tcp-proxy.js';
import { type Fault, FaultInjector } from './fault-injector.js';
import { planFaults } from './fault-plan.js';
import { between, randomOf } from './random.js';
import type { Evidence } from './soak-evidence.js';
import { SoakProcess } from './soak-process.js';
import { monotonicMs, watchClock, watchStalls } from './soak-record.js';
import { CONSUMERS, GROUPS, LEASE_MS, MAX_ATTEMPTS, PRODUCERS } from './soak-setup.js';
import { buriedIn, mostConsumers, stillHeld, storedIn, undrained } from './soak-streams.js';

export interface SoakRun extends Evidence {
  readonly seed: string;
  readonly killsRedis: boolean;
  readonly rate: number;
  /** When the traffic began, and when the last fault was over and nothing more was sent. */
  readonly from: number;
  readonly to: number;
  readonly drainedInMs: number;
  /** By one group on one partition, at the end; three are alive. */
  readonly consumersKnown: number;
  /** Where the records are. */
  readonly folder: string;
  /** Removes the records. */
  forget(): void;
}

const DRAIN_MS = 60_000;
const END_MS = 20_000;

/** Traffic and faults for `seconds`, then peace until everything is handled; resolves with what there is to be checked. */
export async function soak(seed: string, seconds: number): Promise<SoakRun> {
  const random = randomOf(`${seed}/run`);
  const killsRedis = random() < 0.5;
  const rate = Math.round(between(random, 200, 400));
  const folder = mkdtempSync(join(tmpdir(), `mq-soak-${seed}-`));
  // Killed with everysec, it may forget what it has accepted; what then is lost is not ours to keep.
  const redis = await startRedis({ aof: true, args: ['--appendfsync', killsRedis ? 'always' : 'everysec'] });
  const client = redis.client();
  const prefixes = { keyPrefix: `${redis.keyPrefix}:mq`, streamKeyPrefix: `${redis.keyPrefix}:topic` };
  const keys = new Keys(prefixes.keyPrefix, prefixes.streamKeyPrefix);
  const proxies: TcpProxy[] = [];
  const child = async (kind: 'consumer' | 'producer', index: number): Promise<SoakProcess> => {
    const proxy = await startProxy(redis.port);
    proxies.push(proxy);
    const setup = { seed, prefixes, index, rate: rate / PRODUCERS };
    return new SoakProcess(`${kind}-${index + 1}`, proxy, `soak-${kind}.ts`, folder, setup);
  };
  const consumers = await Promise.all(Array.from({ length: CONSUMERS }, (_, i) => child('consumer', i)));
  const producers = await Promise.all(Array.from({ length: PRODUCERS }, (_, i) => child('producer', i)));
  const children = [...producers, ...consumers];
  const abandon = (): void => children.forEach((one) => one.abandon());
  process.on('exit', abandon);
  const watches: (() => void)[] = [];
  try {
    await Promise.all(children.map((one) => one.start()));
    for (const consumer of consumers) await consumer.prepared();
    const injector = new FaultInjector({ redis, client, consumers, producers });
    const from = monotonicMs();
    watches.push(
      watchStalls((ms) => injector.wasStarved(ms)),
      watchClock((byMs) => injector.clockWasSet(byMs)),
    );
    for (const producer of producers) producer.tell('go');
    await disturb(injector, seed, seconds * 1_000, killsRedis);
    const mishaps = [...injector.mishaps];
    const attempt = async (what: Promise<unknown>): Promise<void> => {
      await what.catch((error: unknown) => mishaps.push(String(error)));
    };
    for (const producer of producers) producer.tell('stop');
    const to = monotonicMs();
    await attempt(Promise.all(producers.map((producer) => producer.untilDone(END_MS))));
    const left = await drained(client, keys);
    mishaps.push(...left);
    if (left.length > 0) {
      for (const consumer of consumers) consumer.tell('write your state');
      await sleep(1_000);
    }
    const drainedInMs = monotonicMs() - to;
    const consumersKnown = await mostConsumers(client, keys);
    await attempt(Promise.all(children.map((one) => one.terminate(END_MS))));
    mishaps.push(...(await stillHeld(client, keys)));
    const records = children.flatMap((one) => one.records());
    const reader = await TestInstance.open({ redis: redis.url, failFast: true, ...prefixes });
    const buried = await buriedIn(reader.runtime.deadLetters);
    await reader.close();
    return {
      seed,
      killsRedis,
      rate,
      from,
      to,
      drainedInMs,
      consumersKnown,
      folder,
      groups: GROUPS,
      maxAttempts: MAX_ATTEMPTS,
      leaseMs: LEASE_MS,
      records: records.sort((a, b) => a.at - b.at),
      lives: children.flatMap((one) => one.lives),
      faults: injector.faults,
      stored: await storedIn(client, keys),
      buried,
      mishaps,
      forget: () => rmSync(folder, { recursive: true, force: true }),
    };
  } finally {
    for (const end of watches) end();
    abandon();
    process.off('exit', abandon);
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await redis.stop();
  }
}

/** Each fault begins at its time, whether those before it are over or not; resolves when all are. */
async function disturb(injector: FaultInjector, seed: string, forMs: number, killsRedis: boolean): Promise<void> {
  const from = monotonicMs();
  const under: Promise<void>[] = [];
  for (const plan of planFaults(seed, forMs, killsRedis)) {
    await sleep(Math.max(0, from + plan.atMs - monotonicMs()));
    under.push(injector.inject(plan));
  }
  await sleep(Math.max(0, from + forMs - monotonicMs()));
  await Promise.all(under);
}

/** Waits until nothing is left to be handled; what is left at the deadline. */
async function drained(client: Redis, keys: Keys): Promise<string[]> {
  const deadline = monotonicMs() + DRAIN_MS;
  for (;;) {
    const left = await undrained(client, keys);
    if (left.length === 0 || monotonicMs() > deadline) return left;
    await sleep(50);
  }
}

/** For a person, or a tool, that looks at a run that went wrong. */
export function keepEvidence(run: SoakRun, violations: readonly unknown[]): void {
  const { faults, lives, stored, buried, mishaps, from, to, seed } = run;
  const kept: { faults: readonly Fault[] } & Record<string, unknown> = {
    seed,
    from,
    to,
    faults,
    lives,
    mishaps,
    violations,
    buried,
    stored,
  };
  writeFileSync(join(run.folder, 'evidence.json'), JSON.stringify(kept, null, 1));
}
