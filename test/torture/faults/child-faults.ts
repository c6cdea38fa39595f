import { setTimeout as sleep } from 'node:timers/promises';
import { acquire, release, renew } from '../../../libs/redis-streams-mq/src/redis/scripts/lease.script.js';
import { heal, markCrash, page } from '../../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import { moveRetries } from '../../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { dead, fail, settle } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { mentions } from '../../support/tcp-proxy.js';
import type { Child } from '../child.js';
import { DRAIN_TIMEOUT_MS, LEASE_MS } from '../programs/setup.js';
import { chosen } from './plan.js';

/** Resolves, with a detail, when the fault is over and the child is up again; `undefined`: it did not meet its command. */
export type ChildFault = (child: Child, extent: number) => Promise<string | undefined>;

const SCRIPTS = { settle, fail, dead, page, acquire, release, renew, moveRetries, heal, markCrash };
const FLAPS = 5;
const FLAPPING_MS = 3_000;
const BLACK_HOLE_MS = 2_000;
const SLOW_MS = 2_000;
const SLOW_REPLY_MS = 150;
/** How long a command whose reply is to be lost is waited for; some scripts are rare. */
const TRAP_MS = 4_000;
/** Draining, and then what may wait for a Redis that is away. */
const END_MS = DRAIN_TIMEOUT_MS + 7_000;

async function kill(child: Child): Promise<string> {
  await child.kill();
  await child.start();
  child.prepare();
  return '';
}

export async function restart(child: Child): Promise<string> {
  const tookMs = await child.terminate(END_MS);
  await child.start();
  child.prepare();
  return `ended in ${Math.round(tookMs)} ms`;
}

async function stop(child: Child, extent: number): Promise<string> {
  const ms = LEASE_MS * (1.1 + extent);
  child.pause();
  await sleep(ms);
  child.resume();
  return `for ${Math.round(ms)} ms`;
}

async function flap({ network }: Child): Promise<string> {
  for (let i = 0; i < FLAPS; i++) {
    await network.refuse(true);
    network.cutAll();
    await sleep(FLAPPING_MS / FLAPS / 2);
    await network.refuse(false);
    await sleep(FLAPPING_MS / FLAPS / 2);
  }
  return '';
}

async function loseReply({ network }: Child, what: string, matches: (request: Buffer) => boolean) {
  let armed = true;
  const timer = new AbortController();
  const sprung = network.dropNextReplyMatching((request) => armed && matches(request)).then(() => true);
  const tooLate = sleep(TRAP_MS, false, { signal: timer.signal }).catch(() => false);
  const hasSprung = await Promise.race([sprung, tooLate]);
  armed = false;
  timer.abort();
  return hasSprung ? what : undefined;
}

/** Among all children, unless it says otherwise. */
export const CHILD_FAULTS: Readonly<Record<string, { readonly on?: Child['kind']; readonly act: ChildFault }>> = {
  'kill-consumer': { on: 'consumer', act: kill },
  'kill-producer': { on: 'producer', act: kill },
  'term-consumer': { on: 'consumer', act: restart },
  'term-producer': { on: 'producer', act: restart },
  'stop-consumer': { on: 'consumer', act: stop },
  'cut-connections': { act: async ({ network }) => (network.cutAll(), '') },
  'cut-read': { on: 'consumer', act: (child) => loseReply(child, 'XREADGROUP', mentions('xreadgroup')) },
  'cut-send': { on: 'producer', act: (child) => loseReply(child, 'XADD', mentions('xadd')) },
  'cut-script': {
    on: 'consumer',
    act: (child, extent) => {
      const [name, { sha }] = chosen(extent, Object.entries(SCRIPTS))!;
      return loseReply(child, name, mentions('evalsha', sha));
    },
  },
  'black-hole': {
    act: async ({ network }) => {
      network.blackhole(true);
      await sleep(BLACK_HOLE_MS);
      network.blackhole(false);
      return `for ${BLACK_HOLE_MS} ms`;
    },
  },
  flaps: { act: flap },
  'slow-network': {
    act: async ({ network }) => {
      network.delayReplies(SLOW_REPLY_MS);
      await sleep(SLOW_MS);
      network.delayReplies(0);
      return `replies ${SLOW_REPLY_MS} ms late`;
    },
  },
};
