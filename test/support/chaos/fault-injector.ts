import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { acquire, release, renew } from '../../../libs/redis-streams-mq/src/redis/scripts/lease.script.js';
import { heal, markCrash, page } from '../../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import { moveRetries } from '../../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { dead, fail, settle } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import type { TestRedis } from '../redis-server.js';
import { mentions } from '../tcp-proxy.js';
import { chosen, type Fault, type PlannedFault } from './fault-plan.js';
import type { SoakProcess } from './soak-process.js';
import { monotonicMs } from './soak-record.js';
import { DRAIN_TIMEOUT_MS, LEASE_MS } from './soak-setup.js';

export interface FaultInjectorDeps {
  readonly redis: TestRedis;
  /** Straight to the server, not through a proxy. */
  readonly client: Redis;
  readonly consumers: readonly SoakProcess[];
  readonly producers: readonly SoakProcess[];
}

const SCRIPTS = { settle, fail, dead, page, acquire, release, renew, moveRetries, heal, markCrash };
const FLAPS = 5;
const FLAPPING_MS = 3_000;
const BLACK_HOLE_MS = 2_000;
const STOP_REDIS_MS = 3_000;
const LONGEST_REDIS_OUTAGE_MS = 2_500;
/** How long a command whose reply is to be lost is waited for; some scripts are rare. */
const TRAP_MS = 5_000;
/** Draining, and then what may wait for a Redis that is away. */
const END_MS = DRAIN_TIMEOUT_MS + 7_000;

/** Does planned faults to the children and their Redis, and keeps a record of them. */
export class FaultInjector {
  readonly faults: Fault[] = [];
  /** Things that went wrong beyond the fault: a process that did not end, or did not come back. */
  readonly mishaps: string[] = [];
  private redisIsBusy = false;

  constructor(private readonly deps: FaultInjectorDeps) {}

  /** Resolves when the fault is over and whoever it ended is up again. */
  async inject(plan: PlannedFault): Promise<void> {
    const fault: Fault = { kind: plan.kind, target: '', from: monotonicMs(), to: NaN, detail: '', missed: false };
    this.faults.push(fault);
    try {
      await this.act(plan, fault);
    } catch (error) {
      this.mishaps.push(`${plan.kind} (${fault.target}): ${String(error)}`);
    }
    fault.to = monotonicMs();
  }

  private act(plan: PlannedFault, fault: Fault): Promise<void> {
    const { consumers, producers } = this.deps;
    const { choice, extent } = plan;
    switch (plan.kind) {
      case 'kill a consumer':
        return this.on(consumers, plan, fault, async (child) => {
          await child.kill();
          await child.start();
          child.prepare();
        });
      case 'terminate a consumer':
        return this.on(consumers, plan, fault, async (child) => {
          const tookMs = await child.terminate(END_MS);
          fault.detail = `ended in ${Math.round(tookMs)} ms`;
          await child.start();
          child.prepare();
        });
      case 'stop a consumer past its lease':
        return this.on(consumers, plan, fault, async (child) => {
          child.pause();
          await sleep(LEASE_MS * (1.1 + extent));
          child.resume();
        });
      case 'cut the connections of a child':
        return this.on([...consumers, ...producers], plan, fault, async ({ proxy }) => proxy.cutAll());
      case 'lose the reply of a read':
        return this.on(consumers, plan, fault, (child) => this.loseReply(child, fault, mentions('xreadgroup')));
      case 'lose the reply of a script': {
        const [name, { sha }] = chosen(extent, Object.entries(SCRIPTS))!;
        fault.detail = name;
        return this.on(consumers, plan, fault, (child) => this.loseReply(child, fault, mentions('evalsha', sha)));
      }
      case 'lose the reply of a send':
        return this.on(producers, plan, fault, (child) => this.loseReply(child, fault, mentions('xadd')));
      case 'black hole for a child':
        return this.on([...consumers, ...producers], plan, fault, async ({ proxy }) => {
          proxy.blackhole(true);
          await sleep(BLACK_HOLE_MS);
          proxy.blackhole(false);
        });
      case 'five flaps for a child':
        return this.on([...consumers, ...producers], plan, fault, async ({ proxy }) => {
          for (let i = 0; i < FLAPS; i++) {
            await proxy.refuse(true);
            proxy.cutAll();
            await sleep(FLAPPING_MS / FLAPS / 2);
            await proxy.refuse(false);
            await sleep(FLAPPING_MS / FLAPS / 2);
          }
        });
      case 'flush the scripts':
        return this.onRedis(fault, async ({ client }) => void (await client.script('FLUSH')));
      case 'kill all clients':
        return this.onRedis(fault, async ({ client }) => void (await client.call('CLIENT', 'KILL', 'TYPE', 'normal')));
      case 'kill Redis':
        return this.onRedis(fault, async ({ redis }) => {
          await redis.kill();
          await sleep(choice * LONGEST_REDIS_OUTAGE_MS);
          await redis.restart();
        });
      case 'stop Redis':
        return this.onRedis(fault, async ({ redis }) => {
          redis.pause();
          await sleep(STOP_REDIS_MS);
          redis.resume();
        });
    }
  }

  /** On one of those that are up and that no other fault has in its hands. */
  private async on(
    children: readonly SoakProcess[],
    plan: PlannedFault,
    fault: Fault,
    act: (child: SoakProcess) => Promise<void>,
  ): Promise<void> {
    const child = chosen(
      plan.choice,
      children.filter(({ isUp, busy }) => isUp && !busy),
    );
    if (child === undefined) {
      fault.missed = true;
      return;
    }
    fault.target = child.name;
    child.busy = true;
    try {
      await act(child);
    } finally {
      child.busy = false;
    }
  }

  private async onRedis(fault: Fault, act: (deps: FaultInjectorDeps) => Promise<void>): Promise<void> {
    if (this.redisIsBusy) {
      fault.missed = true;
      return;
    }
    fault.target = 'redis';
    this.redisIsBusy = true;
    try {
      await act(this.deps);
    } finally {
      this.redisIsBusy = false;
    }
  }

  private async loseReply(child: SoakProcess, fault: Fault, matches: (request: Buffer) => boolean): Promise<void> {
    let armed = true;
    const timer = new AbortController();
    const sprung = child.proxy.dropNextReplyMatching((request) => armed && matches(request)).then(() => true);
    const tooLate = sleep(TRAP_MS, false, { signal: timer.signal }).catch(() => false);
    fault.missed = !(await Promise.race([sprung, tooLate]));
    armed = false;
    timer.abort();
  }
}
