import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TestInstance } from '../support/engine.js';
import type { Evidence } from './checker/evidence.js';
import { buriedIn, mostConsumers, stillHeld, storedIn, undrained } from './checker/streams.js';
import { FaultInjector } from './faults/injector.js';
import { MachineWatch } from './faults/machine-watch.js';
import { planFaults } from './faults/plan.js';
import type { TortureOptions } from './options.js';
import { monotonicMs } from './programs/record.js';
import { GROUPS, LEASE_MS, MAX_ATTEMPTS, TOPIC } from './programs/setup.js';
import { World } from './world.js';

export interface TortureRun extends Evidence {
  readonly options: TortureOptions;
  readonly drainedInMs: number;
  /** By one group on one partition, at the end. */
  readonly consumersKnown: number;
  /** Where the records are. */
  readonly folder: string;
}

const STUCK_MS = 20_000;
const END_MS = 20_000;

/** Traffic and faults, then peace until everything is handled; resolves with what there is to be checked. */
export async function torture(options: TortureOptions): Promise<TortureRun> {
  const machine = new MachineWatch();
  const world = await World.start(options, machine);
  const injector = new FaultInjector(world);
  try {
    const { from, to } = await disturbedTraffic(world, injector, options);
    const left = await drained(world);
    const drainedInMs = monotonicMs() - to;
    const client = world.servers.client();
    const consumersKnown = await mostConsumers(client, world.keys);
    const mishaps = [...injector.mishaps, ...left, ...(await ended(world))];
    const faults = [...injector.faults, ...machine.beside(injector.faults)];
    const evidence = { ...(await evidenceOf(world)), faults, mishaps, from, to };
    return { ...evidence, options, drainedInMs, consumersKnown, folder: world.folder };
  } finally {
    machine.end();
    await world.end();
  }
}

/** For a person, or a tool, that looks at a run that went wrong. */
export function keepEvidence(run: TortureRun, violations: readonly unknown[]): void {
  const { records: _inFiles, ...kept } = run;
  writeFileSync(join(run.folder, 'evidence.json'), JSON.stringify({ ...kept, violations }, null, 1));
}

export function forgetEvidence({ folder }: TortureRun): void {
  rmSync(folder, { recursive: true, force: true });
}

async function disturbedTraffic(
  { producers }: World,
  injector: FaultInjector,
  { seed, seconds, faults }: TortureOptions,
): Promise<{ from: number; to: number }> {
  const from = monotonicMs();
  const until = from + seconds * 1_000;
  for (const producer of producers) producer.tell('go');
  // Each fault begins at its time, whether those before it are over or not.
  const under: Promise<void>[] = [];
  for (const plan of planFaults(seed, seconds * 1_000, faults)) {
    await sleep(Math.max(0, from + plan.atMs - monotonicMs()));
    under.push(injector.inject(plan));
  }
  await sleep(Math.max(0, until - monotonicMs()));
  await Promise.all(under);
  for (const producer of producers) producer.tell('stop');
  const to = monotonicMs();
  const done = await Promise.allSettled(producers.map((producer) => producer.untilDone(END_MS)));
  for (const one of done) if (one.status === 'rejected') injector.mishaps.push(String(one.reason));
  return { from, to };
}

/** Waits until nothing is left to be handled; in words, what is left when nothing has moved for a while. */
async function drained({ servers, keys, consumers }: World): Promise<string[]> {
  let last = '';
  let movedAt = monotonicMs();
  for (;;) {
    const left = await undrained(servers.client(), keys);
    if (left.length === 0) return [];
    const now = left.join();
    if (now !== last) movedAt = monotonicMs();
    last = now;
    if (monotonicMs() - movedAt > STUCK_MS) {
      for (const consumer of consumers) consumer.tell('write your state');
      await sleep(1_000);
      return left;
    }
    await sleep(50);
  }
}

/** Ends all processes in order; what did not go in order, in words. */
async function ended({ children, servers, keys }: World): Promise<string[]> {
  const ends = await Promise.allSettled(children.map((child) => child.terminate(END_MS)));
  const late = ends.filter((end) => end.status === 'rejected').map(({ reason }) => String(reason));
  return [...late, ...(await stillHeld(servers.client(), keys))];
}

async function evidenceOf(world: World): Promise<Omit<Evidence, 'faults' | 'mishaps' | 'from' | 'to'>> {
  const { children, keys, servers, prefixes } = world;
  const records = children.flatMap((child) => child.records()).sort((a, b) => a.at - b.at);
  const network = await servers.network();
  const reader = await TestInstance.open({ redis: network.redis, failFast: true, ...prefixes });
  try {
    return {
      groups: GROUPS,
      maxAttempts: MAX_ATTEMPTS,
      leaseMs: LEASE_MS,
      records,
      lives: children.flatMap((child) => child.lives),
      failovers: servers.failovers,
      streamKey: (partition) => keys.stream(TOPIC, partition),
      stored: await storedIn(servers.client(), keys),
      buried: await buriedIn(reader.runtime.deadLetters),
    };
  } finally {
    await reader.close();
    await network.stop();
  }
}
