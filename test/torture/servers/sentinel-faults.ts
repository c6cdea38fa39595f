import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { TestSentinel } from '../../support/sentinel.js';
import { waitFor } from '../../support/wait-for.js';
import { leaveReplicasBehind, type WorldServer } from './every-server.js';
import { replicationInfo } from './replication-info.js';
import type { ServerFault } from './servers.js';

/** Longer than a failover whose first attempt fails. */
const PROMOTED_WITHIN_MS = 30_000;
const WHOLE_WITHIN_MS = 60_000;
/** Longer than any failover. */
const WRITES_PAUSED_MS = 20_000;

/** What a Sentinel set-up goes through; each ends with one master that all agree on and replicas in sync with it. */
export class SentinelFaults {
  readonly faults: Readonly<Record<string, ServerFault>> = {
    failover: (extent) => this.failover(extent),
    'kill-master': (extent) => this.killMaster(extent),
    'stop-master': (extent) => this.stopMaster(extent),
    'stop-sentinels': (extent) => this.stopSentinels(extent),
    'stop-redis': (extent) => this.stopEverything(extent),
  };

  constructor(
    private readonly world: TestSentinel,
    private readonly servers: readonly WorldServer[],
    private readonly askers: readonly Redis[],
  ) {}

  /** Sentinel lets the old master take writes until it gets to it; whoever wants to lose none pauses them before. */
  private async failover(extent: number): Promise<string> {
    const master = await this.master();
    const orderly = extent < 0.5;
    if (orderly) {
      await master.client.call('CLIENT', 'PAUSE', WRITES_PAUSED_MS, 'WRITE');
      const { offset } = await replicationInfo(master.client);
      for (const { client } of this.othersThan(master)) await hasReached(client, offset);
    }
    const asker = this.askers[Math.floor(extent * 1_000) % this.askers.length]!;
    // It refuses while it knows no replica to choose, or does one already.
    await waitFor(
      async () =>
        (await asker.call('SENTINEL', 'FAILOVER', this.world.name).catch(() => '')) === 'OK' ||
        (await this.isPromoted(master)),
      { timeoutMs: PROMOTED_WITHIN_MS, describe: 'a sentinel to begin a failover' },
    );
    const detail = await this.untilPromoted(master);
    if (orderly) {
      const { process } = await this.master();
      await master.client.call('REPLICAOF', '127.0.0.1', process.port);
      await master.client.call('CLIENT', 'KILL', 'TYPE', 'normal');
      await master.client.call('CLIENT', 'UNPAUSE');
    }
    await this.untilWhole();
    return `${orderly ? 'orderly' : 'forced'}, ${detail}`;
  }

  private async killMaster(extent: number): Promise<string> {
    const master = await this.master();
    const behindMs = extent < 0.5 ? 0 : Math.round(50 + (extent - 0.5) * 800);
    if (behindMs > 0) await leaveReplicasBehind(master.client, behindMs);
    await master.process.kill();
    const detail = await this.untilPromoted(master);
    await master.process.restart();
    await this.untilWhole();
    return `${behindMs > 0 ? `replicas ${behindMs} ms behind` : 'replicas in sync'}, ${detail}`;
  }

  /** When it goes on it takes itself for the master until the sentinels tell it otherwise. */
  private async stopMaster(extent: number): Promise<string> {
    const master = await this.master();
    master.process.pause();
    try {
      const detail = await this.untilPromoted(master);
      await sleep(extent * 1_000);
      return detail;
    } finally {
      master.process.resume();
      await this.untilWhole();
    }
  }

  /** The master dies while nobody looks: it comes back by itself, or a replica is promoted when somebody looks again. */
  private async stopSentinels(extent: number): Promise<string> {
    const { sentinels } = this.world;
    const master = await this.master();
    const comesBack = extent < 0.5;
    for (const sentinel of sentinels) sentinel.pause();
    try {
      await master.process.kill();
      await sleep(1_000 + extent * 2_000);
      if (comesBack) await master.process.restart();
    } finally {
      for (const sentinel of sentinels) sentinel.resume();
    }
    const detail = comesBack ? 'the master came back' : await this.untilPromoted(master);
    if (!comesBack) await master.process.restart();
    await this.untilWhole();
    return detail;
  }

  private async stopEverything(extent: number): Promise<string> {
    const all = [...this.world.sentinels, ...this.servers.map(({ process }) => process)];
    const forMs = Math.round(1_000 + extent * 2_000);
    for (const server of all) server.pause();
    await sleep(forMs);
    for (const server of all) server.resume();
    await this.untilWhole();
    return `for ${forMs} ms`;
  }

  private async master(): Promise<WorldServer> {
    const port = await waitFor(() => this.agreedPort(), { describe: 'the sentinels to agree on the master' });
    return this.servers.find(({ process }) => process.port === port)!;
  }

  /** The master that all sentinels name. */
  private async agreedPort(): Promise<number | undefined> {
    const answers = await Promise.all(
      this.askers.map((asker) => asker.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', this.world.name)),
    );
    const [port, ...others] = answers.map((answer) => Number((answer as string[])[1]));
    return others.every((other) => other === port) ? port : undefined;
  }

  private async isPromoted(former: WorldServer): Promise<boolean> {
    const port = await this.agreedPort();
    return port !== undefined && port !== former.process.port;
  }

  private othersThan(server: WorldServer): WorldServer[] {
    return this.servers.filter((other) => other !== server);
  }

  private async untilPromoted(master: WorldServer): Promise<string> {
    const since = performance.now();
    await waitFor(() => this.isPromoted(master), {
      timeoutMs: PROMOTED_WITHIN_MS,
      describe: 'a replica to be promoted',
    });
    const promoted = await this.master();
    await waitFor(async () => (await replicationInfo(promoted.client)).isMaster);
    return `promoted after ${Math.round(performance.now() - since)} ms`;
  }

  /** One master, replicas in sync with it, and sentinels that all say so. */
  async untilWhole(): Promise<void> {
    await waitFor(() => this.isWhole(), {
      timeoutMs: WHOLE_WITHIN_MS,
      describe: 'the Sentinel set-up to be whole again',
    });
  }

  private async isWhole(): Promise<boolean> {
    const views = await Promise.all(this.askers.map((asker) => this.viewOf(asker)));
    const port = views[0];
    if (port === undefined || views.some((view) => view !== port)) return false;
    const master = this.servers.find(({ process }) => process.port === port);
    if (master === undefined) return false;
    const { isMaster, offset, onlineReplicas } = await replicationInfo(master.client);
    if (!isMaster || onlineReplicas !== this.servers.length - 1) return false;
    const replicas = await Promise.all(this.othersThan(master).map(({ client }) => replicationInfo(client)));
    return replicas.every((one) => !one.isMaster && one.masterPort === port && one.isLinkUp && one.offset >= offset);
  }

  /** The port of the master, if this sentinel sees everybody in order. */
  private async viewOf(asker: Redis): Promise<number | undefined> {
    const master = fieldsOf((await asker.call('SENTINEL', 'MASTER', this.world.name)) as string[]);
    const replicas = ((await asker.call('SENTINEL', 'REPLICAS', this.world.name)) as string[][]).map(fieldsOf);
    const port = master.get('port');
    const isWhole =
      master.get('flags') === 'master' &&
      master.get('num-other-sentinels') === String(this.askers.length - 1) &&
      replicas.length === this.servers.length - 1 &&
      replicas.every(
        (replica) =>
          replica.get('flags') === 'slave' &&
          replica.get('master-port') === port &&
          replica.get('master-link-status') === 'ok',
      );
    return isWhole ? Number(port) : undefined;
  }
}

const fieldsOf = (flat: readonly string[]): Map<string, string> =>
  new Map(flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1]!] as const] : [])));

const hasReached = (replica: Redis, offset: number): Promise<boolean> =>
  waitFor(async () => (await replicationInfo(replica)).offset >= offset, { describe: 'a replica to catch up' });
