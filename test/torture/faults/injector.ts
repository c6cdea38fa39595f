import { setTimeout as sleep } from 'node:timers/promises';
import type { Child } from '../child.js';
import { monotonicMs } from '../programs/record.js';
import type { Servers } from '../servers/servers.js';
import type { Fault } from './catalog.js';
import { CHILD_FAULTS, restart } from './child-faults.js';
import { chosen, type PlannedFault } from './plan.js';

export interface FaultInjectorDeps {
  readonly servers: Servers;
  readonly consumers: readonly Child[];
  readonly producers: readonly Child[];
}

/** What to meet and how, once. */
type Shot = Pick<PlannedFault, 'kind' | 'choice' | 'extent' | 'isDue'>;

const TRIES = 12;
const BETWEEN_TRIES_MS = 500;
/** No child is in the hands of another fault for longer. */
const FREE_MS = 60_000;
/** Steps through [0, 1) so that each try chooses somebody, or something, else. */
const GOLDEN = 0.618;

/** Does planned faults to the children and their servers, and keeps a record of them. */
export class FaultInjector {
  readonly faults: Fault[] = [];
  /** Things that went wrong beyond the fault: a process that did not end, or did not come back. */
  readonly mishaps: string[] = [];
  private onServers: Promise<void> = Promise.resolve();
  private waitingForServers = 0;

  constructor(private readonly deps: FaultInjectorDeps) {}

  /** Resolves when the fault is over and whoever it ended is up again. One that is due is tried until it meets somebody. */
  async inject(plan: PlannedFault): Promise<void> {
    for (let i = 0; i < TRIES; i++) {
      const turned = { choice: (plan.choice + i * GOLDEN) % 1, extent: (plan.extent + i * GOLDEN) % 1 };
      const fault = await this.once({ ...plan, ...turned });
      if (!fault.missed) return;
      if (!plan.isDue) return;
      await sleep(BETWEEN_TRIES_MS);
    }
    this.mishaps.push(`${plan.kind} met nobody in ${TRIES} tries`);
  }

  private async once(shot: Shot): Promise<Fault> {
    const at = monotonicMs();
    let fault: Fault = { kind: shot.kind, target: '', from: at, to: at, detail: '', missed: true };
    // Its time begins when it is its turn.
    const begin = (target: string): Fault => {
      fault = { ...fault, target, from: monotonicMs(), to: Infinity, missed: false };
      this.faults.push(fault);
      return fault;
    };
    try {
      const detail = await this.act(shot, begin);
      fault.missed = detail === undefined;
      fault.detail = detail ?? '';
    } catch (error) {
      this.mishaps.push(`${shot.kind} (${fault.target}): ${String(error)}`);
    }
    fault.to = monotonicMs();
    if (fault.missed && !this.faults.includes(fault)) this.faults.push(fault);
    return fault;
  }

  private act(shot: Shot, begin: (target: string) => Fault): Promise<string | undefined> {
    if (shot.kind === 'rolling-restart') return this.rollingRestart(begin);
    if (Object.hasOwn(CHILD_FAULTS, shot.kind)) return this.onChild(shot, begin);
    return this.onTheServers(shot, begin);
  }

  /** On one of those that are up and that no other fault has in its hands. */
  private async onChild({ kind, choice, extent }: Shot, begin: (target: string) => Fault): Promise<string | undefined> {
    const { consumers, producers } = this.deps;
    const { on, act } = CHILD_FAULTS[kind]!;
    const free = [...consumers, ...producers].filter((child) => child.isUp && !child.busy);
    const child = chosen(
      choice,
      free.filter((one) => on === undefined || one.kind === on),
    );
    if (child === undefined) return undefined;
    begin(child.name);
    child.busy = true;
    try {
      return await act(child, extent);
    } finally {
      child.busy = false;
    }
  }

  /** One at a time: each finds the servers whole. */
  private async onTheServers(
    { kind, extent, isDue }: Shot,
    begin: (target: string) => Fault,
  ): Promise<string | undefined> {
    if (this.waitingForServers > 0 && !isDue) return undefined;
    this.waitingForServers++;
    const done = this.onServers.then(async () => {
      begin('redis');
      return this.deps.servers.faults[kind]!(extent);
    });
    this.onServers = done.then(
      () => undefined,
      () => undefined,
    );
    return done.finally(() => this.waitingForServers--);
  }

  private async rollingRestart(begin: (target: string) => Fault): Promise<string> {
    const { consumers } = this.deps;
    const { from } = begin('consumers');
    for (const child of consumers) {
      await this.untilFree(child);
      child.busy = true;
      try {
        await restart(child);
      } finally {
        child.busy = false;
      }
    }
    return `${consumers.length} in ${Math.round(monotonicMs() - from)} ms`;
  }

  private async untilFree(child: Child): Promise<void> {
    const deadline = monotonicMs() + FREE_MS;
    while (child.busy || !child.isUp) {
      if (monotonicMs() > deadline) throw new Error(`${child.name} does not come free`);
      await sleep(20);
    }
  }
}
