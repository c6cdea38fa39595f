import { Cluster, type ClusterOptions, Redis } from 'ioredis';
import { ServerProcess } from '../../scripts/server-process.mjs';
import { requireServerBinary } from './redis-server.js';
import { waitFor } from './wait-for.js';

const SLOTS = 16_384;

export interface TestCluster {
  /** The masters; each can be killed, paused and restarted. */
  readonly nodes: readonly ServerProcess[];
  readonly startupNodes: readonly { host: string; port: number }[];
  /** A client for looking; `stop()` closes it. */
  client(options?: ClusterOptions): Cluster;
  stop(): Promise<void>;
}

/** Starts a Redis Cluster of masters that share the slots evenly, and resolves when all of them say it is ok. */
export async function startCluster({ masters = 3 }: { masters?: number } = {}): Promise<TestCluster> {
  const binary = requireServerBinary();
  const args = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000', '--appendonly', 'no'];
  const nodes = await Promise.all(Array.from({ length: masters }, () => ServerProcess.start(binary, { args })));
  const clients: Cluster[] = [];
  const startupNodes = nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
  const stop = async (): Promise<void> => {
    for (const client of clients) client.disconnect();
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    await join(nodes);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    nodes,
    startupNodes,
    client(options = {}) {
      const client = new Cluster(startupNodes, {
        ...options,
        redisOptions: { disconnectTimeout: 100, ...options.redisOptions },
      });
      client.on('error', () => {});
      clients.push(client);
      return client;
    },
    stop,
  };
}

async function join(nodes: readonly ServerProcess[]): Promise<void> {
  const admins = nodes.map(({ url }) => new Redis(url));
  try {
    await Promise.all(
      admins.map(async (admin, index) => {
        const first = Math.ceil((index * SLOTS) / nodes.length);
        const end = Math.ceil(((index + 1) * SLOTS) / nodes.length);
        const slots = Array.from({ length: end - first }, (_, offset) => first + offset);
        await admin.cluster('ADDSLOTS', ...slots);
        await admin.call('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
      }),
    );
    // Only now: a node that has met another may no longer set its epoch. Everyone meets everyone, and need not wait for gossip.
    for (const [index, admin] of admins.entries()) {
      for (const { port } of nodes.slice(index + 1)) await admin.cluster('MEET', '127.0.0.1', port);
    }
    await waitFor(async () => (await Promise.all(admins.map((admin) => isWhole(admin, nodes.length)))).every(Boolean), {
      timeoutMs: 20_000,
      describe: 'all nodes to report cluster_state:ok',
    });
  } finally {
    for (const admin of admins) admin.disconnect();
  }
}

async function isWhole(admin: Redis, size: number): Promise<boolean> {
  const info = await admin.cluster('INFO');
  return [`cluster_state:ok`, `cluster_slots_assigned:${SLOTS}`, `cluster_size:${size}`].every((line) =>
    info.includes(`${line}\r\n`),
  );
}
