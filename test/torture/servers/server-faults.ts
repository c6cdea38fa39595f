import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { freePort } from '../../../scripts/server-process.mjs';

// What is done to servers in the same way whatever their kind. `masters` are clients straight to each of them.

const FULL_MS = 2_000;
const READONLY_MS = 2_000;
const STANDS = 4;
const STANDING_MS = 400;

const toAll = (masters: readonly Redis[], ...command: [string, ...string[]]): Promise<unknown> =>
  Promise.all(masters.map((master) => master.call(...command)));

export async function flushScripts(masters: readonly Redis[]): Promise<string> {
  await toAll(masters, 'SCRIPT', 'FLUSH');
  return '';
}

/** Ends all connections but those that ask for it. */
export async function killClients(masters: readonly Redis[]): Promise<string> {
  const killed = (await toAll(masters, 'CLIENT', 'KILL', 'TYPE', 'normal')) as number[];
  return `${killed.reduce((sum, count) => sum + count, 0)} connections`;
}

/** Writes that need memory are refused, as the policy is noeviction. */
export async function fillUp(masters: readonly Redis[]): Promise<string> {
  await toAll(masters, 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction', 'maxmemory', '1');
  await sleep(FULL_MS);
  await toAll(masters, 'CONFIG', 'SET', 'maxmemory', '0');
  return `full for ${FULL_MS} ms`;
}

/** Servers that stop for a moment again and again, each time shorter than anybody's time-out. */
export async function stutter(masters: readonly { pause(): void; resume(): void }[]): Promise<string> {
  for (let i = 0; i < STANDS; i++) {
    for (const master of masters) master.pause();
    await sleep(STANDING_MS);
    for (const master of masters) master.resume();
    await sleep(STANDING_MS);
  }
  return `${STANDS} times ${STANDING_MS} ms`;
}

/** Makes a master the replica of an address where nobody is, so that it keeps its data and takes no writes. */
export async function demote(master: Redis): Promise<string> {
  const nowhere = await freePort();
  await master.call('REPLICAOF', '127.0.0.1', nowhere);
  await sleep(READONLY_MS);
  await master.call('REPLICAOF', 'NO', 'ONE');
  return `for ${READONLY_MS} ms`;
}
