import type { Cluster, Redis } from 'ioredis';
import { monotonicMs, watchStalls } from '../programs/record.js';
import type { Fault, MachineFault } from './catalog.js';

const LOOK_MS = 100;
const NOTABLE_MS = 150;

/**
 * What the machine does to the test beside the planned faults: each of it can cost leases. It begins with the first
 * process and ends with the last.
 */
export class MachineWatch {
  private readonly faults: Fault[] = [];
  private readonly ends: (() => void)[] = [];

  constructor() {
    // The proxies run in this process: when it does not run, nobody reaches Redis.
    this.ends.push(watchStalls((ms) => this.suffered('starved-driver', ms)));
    this.watchClock();
  }

  /** Asks the server all the time. */
  watchServer(client: Redis | Cluster): void {
    let asked = false;
    this.every(() => {
      if (asked) return;
      asked = true;
      const since = monotonicMs();
      const answered = (): void => {
        asked = false;
        const ms = monotonicMs() - since;
        if (ms > NOTABLE_MS) this.suffered('starved-redis', ms);
      };
      client.ping().then(answered, answered);
    });
  }

  /** What the machine did, without what planned faults did to the servers. */
  beside(planned: readonly Fault[]): Fault[] {
    const onServers = planned.filter(({ target }) => target === 'redis');
    return this.faults.filter(
      ({ kind, from, to }) =>
        kind !== 'starved-redis' || !onServers.some((fault) => fault.from <= to && fault.to + LOOK_MS >= from),
    );
  }

  end(): void {
    for (const end of this.ends) end();
  }

  /** Redis counts the time of a lease by it: a lease may end before its time, and its owner cannot know. */
  private watchClock(): void {
    const look = (): number => Date.now() - monotonicMs();
    let last = look();
    this.every(() => {
      const now = look();
      if (Math.abs(now - last) > NOTABLE_MS) this.suffered('clock-set', now - last);
      last = now;
    });
  }

  private every(look: () => void): void {
    const timer = setInterval(look, LOOK_MS);
    this.ends.push(() => clearInterval(timer));
  }

  private suffered(kind: MachineFault, ms: number): void {
    const to = monotonicMs();
    const from = to - Math.abs(ms);
    this.faults.push({ kind, target: 'redis', from, to, detail: `${Math.round(ms)} ms`, missed: false });
  }
}
