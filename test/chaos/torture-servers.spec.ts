import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster, Redis } from 'ioredis';
import { monotonicMs } from '../torture/programs/record.js';
import { describeWithServer } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';
import type { Failover, Servers } from '../torture/servers/servers.js';
import { startClusterServers } from '../torture/servers/cluster.js';
import { startSentinelServers } from '../torture/servers/sentinel.js';

interface Accepted {
  readonly key: string;
  readonly at: number;
}

/** Writes all the time and remembers what was accepted when. */
class Writer {
  readonly accepted: Accepted[] = [];
  private stopped = false;
  private readonly loop: Promise<void>;

  constructor(private readonly client: Redis | Cluster) {
    this.loop = this.run();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.loop;
  }

  /** What was accepted and is not there. */
  async lost(): Promise<Accepted[]> {
    const found = await Promise.all(this.accepted.map(({ key }) => this.client.exists(key)));
    return this.accepted.filter((_, i) => found[i] === 0);
  }

  private async run(): Promise<void> {
    for (let n = 0; !this.stopped; n++) {
      const key = `{tag-${n % 40}}:${n}`;
      await this.client.set(key, n).then(
        () => this.accepted.push({ key, at: monotonicMs() }),
        () => sleep(5),
      );
    }
  }
}

interface Outcome {
  /** Promotions. */
  failovers: number;
  /** Something accepted is gone. */
  loses: boolean;
  /** Something accepted can be gone as far as the offsets tell. */
  isInDoubt: boolean;
}

type Case = readonly [fault: string, extent: number, expected: Partial<Outcome>];

const HARMLESS: Outcome = { failovers: 0, loses: false, isInDoubt: false };
const ORDERLY: Outcome = { ...HARMLESS, failovers: 1 };
const LOSSY: Outcome = { failovers: 1, loses: true, isInDoubt: true };
/** In time or not: what is lost is proven. */
const SUDDEN: Partial<Outcome> = { failovers: 1 };

const FAULTS_OF_BOTH: readonly Case[] = [
  ['script-flush', 0.5, HARMLESS],
  ['client-kill', 0.5, HARMLESS],
  ['full-redis', 0.1, HARMLESS],
  ['slow-redis', 0.1, HARMLESS],
  ['stop-redis', 0.5, {}],
];

function describeServers(name: string, start: () => Promise<Servers>, faults: readonly Case[]): void {
  describeWithServer(`the ${name} servers of torture`, () => {
    let servers: Servers;
    let writer: Writer;

    beforeAll(async () => {
      servers = await start();
      writer = new Writer(servers.client());
    });
    afterAll(async () => {
      await writer.stop();
      await servers.stop();
    });

    it.each([...FAULTS_OF_BOTH, ...faults])(
      '%s (%d): whole again, and what is lost is proven',
      async (fault, extent, expected) => {
        const failoversBefore = servers.failovers.length;
        const lostBefore = (await writer.lost()).length;
        await servers.faults[fault]!(extent);
        const acceptedBefore = writer.accepted.length;
        await waitFor(() => writer.accepted.length > acceptedBefore + 50);
        const { failovers } = servers;
        const fresh = failovers.slice(failoversBefore);
        const isInDoubt = (among: readonly Failover[]) => (one: Accepted) =>
          among.some((failover) => failover.mayHaveLost(one.key, one.at));
        const lost = await writer.lost();
        expect(lost.filter((one) => !isInDoubt(failovers)(one))).toEqual([]);
        expect({
          failovers: fresh.length,
          loses: lost.length > lostBefore,
          isInDoubt: writer.accepted.some(isInDoubt(fresh)),
        }).toMatchObject(expected);
      },
      60_000,
    );
  });
}

describeServers('Sentinel', startSentinelServers, [
  ['failover', 0.2, ORDERLY],
  ['failover', 0.7, LOSSY],
  ['kill-master', 0.2, SUDDEN],
  ['kill-master', 0.8, LOSSY],
  ['stop-master', 0.5, SUDDEN],
  ['stop-sentinels', 0.2, HARMLESS],
  ['stop-sentinels', 0.7, SUDDEN],
]);

describeServers('Cluster', startClusterServers, [
  ['failover', 0.2, ORDERLY],
  ['kill-master', 0.4, SUDDEN],
  ['kill-master', 0.9, LOSSY],
  ['stop-master', 0.5, SUDDEN],
  ['reshard', 0.3, HARMLESS],
  ['reshard', 0.99, HARMLESS],
]);
