import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TestInstance } from '../engine.js';
import { FaultInjector } from './fault-injector.js';
import { planFaults } from './fault-plan.js';
import { MachineWatch } from './machine-watch.js';
import type { Evidence } from './soak-evidence.js';
import { monotonicMs } from './soak-record.js';
import { GROUPS, LEASE_MS, MAX_ATTEMPTS } from './soak-setup.js';
import { buriedIn, mostConsumers, stillHeld, storedIn, undrained } from './soak-streams.js';
import { SoakWorld } from './soak-world.js';

export interface SoakRun extends Evidence {
  readonly seed: string;
  readonly killsRedis: boolean;
  readonly rate: number;
  /** When the traffic began, and when the last fault was over and nothing more was sent. */
  readonly from: number;
  readonly to: number;
  readonly drainedInMs: number;
  /** By one group on one partition, at the end. */
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
  const machine = new MachineWatch();
  const world = await SoakWorld.start(seed, machine);
  const { killsRedis, rate, folder } = world;
  const injector = new FaultInjector(world);
  try {
    const { from, to } = await disturbedTraffic(world, injector, seed, seconds * 1_000);
    const before = monotonicMs();
    const left = await drained(world);
    const drainedInMs = monotonicMs() - before;
    const consumersKnown = await mostConsumers(world.client, world.keys);
    const mishaps = [...injector.mishaps, ...left, ...(await ended(world))];
    const faults = [...injector.faults, ...machine.faults];
    const evidence = { ...(await evidenceOf(world)), faults, mishaps };
    const forget = (): void => rmSync(folder, { recursive: true, force: true });
    return { ...evidence, seed, killsRedis, rate, from, to, drainedInMs, consumersKnown, folder, forget };
  } finally {
    machine.end();
    await world.end();
  }
}

/** For a person, or a tool, that looks at a run that went wrong. */
export function keepEvidence(run: SoakRun, violations: readonly unknown[]): void {
  const { records: _inFiles, ...kept } = run;
  writeFileSync(join(run.folder, 'evidence.json'), JSON.stringify({ ...kept, violations }, null, 1));
}

async function disturbedTraffic(
  { producers, killsRedis }: SoakWorld,
  injector: FaultInjector,
  seed: string,
  forMs: number,
): Promise<{ from: number; to: number }> {
  const from = monotonicMs();
  for (const producer of producers) producer.tell('go');
  // Each fault begins at its time, whether those before it are over or not.
  const under: Promise<void>[] = [];
  for (const plan of planFaults(seed, forMs, killsRedis)) {
    await sleep(Math.max(0, from + plan.atMs - monotonicMs()));
    under.push(injector.inject(plan));
  }
  await sleep(Math.max(0, from + forMs - monotonicMs()));
  await Promise.all(under);
  for (const producer of producers) producer.tell('stop');
  const to = monotonicMs();
  const done = await Promise.allSettled(producers.map((producer) => producer.untilDone(END_MS)));
  for (const one of done) if (one.status === 'rejected') injector.mishaps.push(String(one.reason));
  return { from, to };
}

/** Waits until nothing is left to be handled; what is left at the deadline, in words. */
async function drained({ client, keys, consumers }: SoakWorld): Promise<string[]> {
  const deadline = monotonicMs() + DRAIN_MS;
  for (;;) {
    const left = await undrained(client, keys);
    if (left.length === 0) return [];
    if (monotonicMs() > deadline) {
      for (const consumer of consumers) consumer.tell('write your state');
      await sleep(1_000);
      return left;
    }
    await sleep(50);
  }
}

/** Ends all processes in order; what did not go in order, in words. */
async function ended({ children, client, keys }: SoakWorld): Promise<string[]> {
  const ends = await Promise.allSettled(children.map((child) => child.terminate(END_MS)));
  const late = ends.filter((end) => end.status === 'rejected').map(({ reason }) => String(reason));
  return [...late, ...(await stillHeld(client, keys))];
}

async function evidenceOf(
  world: SoakWorld,
): Promise<Pick<Evidence, 'groups' | 'maxAttempts' | 'leaseMs' | 'records' | 'lives' | 'stored' | 'buried'>> {
  const { children, client, keys, redis, prefixes } = world;
  const records = children.flatMap((child) => child.records()).sort((a, b) => a.at - b.at);
  const reader = await TestInstance.open({ redis: redis.url, failFast: true, ...prefixes });
  try {
    const buried = await buriedIn(reader.runtime.deadLetters);
    const lives = children.flatMap((child) => child.lives);
    const stored = await storedIn(client, keys);
    return { groups: GROUPS, maxAttempts: MAX_ATTEMPTS, leaseMs: LEASE_MS, records, lives, stored, buried };
  } finally {
    await reader.close();
  }
}
