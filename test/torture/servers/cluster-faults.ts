import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { waitFor } from '../../support/wait-for.js';
import { type ClusterSlots, slotOf } from './cluster-slots.js';
import { leaveReplicasBehind, type WorldServer } from './every-server.js';
import { replicationInfo } from './replication-info.js';
import { moveSlot } from './reshard.js';
import type { ServerFault } from './servers.js';

const PROMOTED_WITHIN_MS = 30_000;
const WHOLE_WITHIN_MS = 60_000;
const EMPTY_SLOTS_MOVED = 200;
const LONGEST_HALF_MOVED_MS = 60;

/** A master with its replica; which of the two is which changes. */
export type Shard = readonly [WorldServer, WorldServer];

/** What a Cluster goes through; each ends with a master and a replica in sync for each shard, and nodes that all say so. */
export class ClusterFaults {
  readonly faults: Readonly<Record<string, ServerFault>> = {
    failover: (extent) => this.failover(extent),
    'kill-master': (extent) => this.killMaster(extent),
    'stop-master': (extent) => this.stopMaster(extent),
    'stop-redis': (extent) => this.stopEverything(extent),
    reshard: (extent) => this.reshard(extent),
  };

  constructor(
    private readonly shards: readonly Shard[],
    private readonly slots: ClusterSlots,
  ) {}

  /** Asked for, and so without loss: the master stops taking writes until the replica has everything. */
  private async failover(extent: number): Promise<string> {
    const { master, replica } = await this.rolesOf(this.chosen(extent));
    await waitFor(async () => (await replica.client.cluster('FAILOVER')) === 'OK');
    const detail = await untilPromoted(replica);
    await this.untilWhole();
    return `${master.process.port}, ${detail}`;
  }

  private async killMaster(extent: number): Promise<string> {
    const { master, replica } = await this.rolesOf(this.chosen(extent));
    const fraction = this.fractionOf(extent);
    const behindMs = fraction < 0.5 ? 0 : Math.round(50 + (fraction - 0.5) * 800);
    if (behindMs > 0) await leaveReplicasBehind(master.client, behindMs);
    await master.process.kill();
    const detail = await untilPromoted(replica);
    await master.process.restart();
    await this.untilWhole();
    return `${behindMs > 0 ? `replica ${behindMs} ms behind` : 'replica in sync'}, ${detail}`;
  }

  /** When it goes on it still takes itself for the master, for the moment until it hears of the other. */
  private async stopMaster(extent: number): Promise<string> {
    const { master, replica } = await this.rolesOf(this.chosen(extent));
    master.process.pause();
    try {
      const detail = await untilPromoted(replica);
      await sleep(this.fractionOf(extent) * 1_000);
      return detail;
    } finally {
      master.process.resume();
      await this.untilWhole();
    }
  }

  private async stopEverything(extent: number): Promise<string> {
    const forMs = Math.round(1_000 + extent * 2_000);
    for (const { process } of this.servers) process.pause();
    await sleep(forMs);
    for (const { process } of this.servers) process.resume();
    await this.untilWhole();
    return `for ${forMs} ms`;
  }

  /** Half of the slots with keys of the shard that has most of them go to the next shard, with many empty ones. */
  private async reshard(extent: number): Promise<string> {
    const roles = await Promise.all(this.shards.map((shard) => this.rolesOf(shard)));
    const masters = roles.map(({ master }) => master.client);
    const full = await Promise.all(masters.map(slotsWithKeys));
    const from = full.findIndex((slots) => slots.length === Math.max(...full.map((one) => one.length)));
    const to = (from + 1 + Math.floor(extent * (masters.length - 1))) % masters.length;
    const busy = full[from]!.slice(0, Math.ceil(full[from]!.length / 2));
    const empty = this.slots.of(from).filter((slot) => !full[from]!.includes(slot));
    const halfMovedMs = this.fractionOf(extent) * LONGEST_HALF_MOVED_MS;
    const move = async (slot: number): Promise<number> => {
      this.slots.begin(slot, to);
      const keys = await moveSlot({ slot, from: masters[from]!, to: masters[to]!, masters, halfMovedMs });
      this.slots.end(slot, to);
      return keys;
    };
    let keys = 0;
    for (const slot of busy) keys += await move(slot);
    await Promise.all(empty.slice(0, EMPTY_SLOTS_MOVED).map(move));
    await this.untilWhole();
    return `${busy.length} slots with ${keys} keys, and empty ones, from shard ${from + 1} to ${to + 1}`;
  }

  private get servers(): WorldServer[] {
    return this.shards.flat();
  }

  private chosen(extent: number): Shard {
    return this.shards[Math.floor(extent * this.shards.length)]!;
  }

  /** What is left of an extent that has chosen a shard, in [0, 1). */
  private fractionOf(extent: number): number {
    return (extent * this.shards.length) % 1;
  }

  private async rolesOf(shard: Shard): Promise<{ master: WorldServer; replica: WorldServer }> {
    const [a, b] = shard;
    return (await replicationInfo(a.client)).isMaster ? { master: a, replica: b } : { master: b, replica: a };
  }

  async untilWhole(): Promise<void> {
    await waitFor(() => this.isWhole(), { timeoutMs: WHOLE_WITHIN_MS, describe: 'the Cluster to be whole again' });
  }

  private async isWhole(): Promise<boolean> {
    const inSync = await Promise.all(this.shards.map((shard) => this.isInSync(shard)));
    if (!inSync.every(Boolean)) return false;
    const views = await Promise.all(this.servers.map(({ client }) => viewOf(client)));
    return views[0] !== undefined && views.every((view) => view === views[0]);
  }

  private async isInSync(shard: Shard): Promise<boolean> {
    const { master, replica } = await this.rolesOf(shard);
    const { isMaster, offset } = await replicationInfo(master.client);
    const copy = await replicationInfo(replica.client);
    return (
      isMaster && !copy.isMaster && copy.isLinkUp && copy.masterPort === master.process.port && copy.offset >= offset
    );
  }
}

async function untilPromoted(replica: WorldServer): Promise<string> {
  const since = performance.now();
  await waitFor(async () => (await replicationInfo(replica.client)).isMaster, {
    timeoutMs: PROMOTED_WITHIN_MS,
    describe: 'the replica to be promoted',
  });
  return `promoted after ${Math.round(performance.now() - since)} ms`;
}

/** Who has which slots in the eyes of this node; `undefined` while it sees anything out of order. */
async function viewOf(client: Redis): Promise<string | undefined> {
  if (!((await client.cluster('INFO')) as string).includes('cluster_state:ok')) return undefined;
  const nodes = ((await client.cluster('NODES')) as string).trim().split('\n');
  const seen: string[] = [];
  for (const line of nodes) {
    const [id, , flags = '', master, , , , link, ...slots] = line.split(' ');
    const isWell = /^(myself,)?(master|slave)$/.test(flags) && link === 'connected' && !slots.join(' ').includes('[');
    if (!isWell) return undefined;
    seen.push(`${id} ${flags.replace('myself,', '')} ${master} ${slots.join(' ')}`);
  }
  return seen.sort((a, b) => a.localeCompare(b)).join('\n');
}

async function slotsWithKeys(master: Redis): Promise<number[]> {
  const slots = new Set<number>();
  let cursor = '0';
  do {
    const [next, keys] = await master.scan(cursor, 'COUNT', 1_000);
    for (const key of keys) slots.add(slotOf(key));
    cursor = next;
  } while (cursor !== '0');
  return [...slots].sort((a, b) => a - b);
}
