import { Cluster, type ClusterOptions, Redis } from 'ioredis';
import { ServerProcess } from '../../scripts/server-process.mjs';
import { requireServerBinary } from './redis-server.js';
import { waitFor } from './wait-for.js';

const SLOTS = 16_384;

export interface TestCluster {
  /** Those that start as masters; each can be killed, paused and restarted. */
  readonly nodes: readonly ServerProcess[];
  /** Those that start as replicas: of the first master, of the second, and so on. */
  readonly replicas: readonly ServerProcess[];
  readonly startupNodes: readonly { host: string; port: number }[];
  /** A client for looking; `stop()` closes it. */
  client(options?: ClusterOptions): Cluster;
  stop(): Promise<void>;
}

export interface StartClusterOptions {
  /** @defaultValue 3 */
  masters?: number;
  /** One replica for each master, and failover by itself. @defaultValue false */
  replicated?: boolean;
  /** Keep append-only files, written before a reply, so that a node that is killed and restarted has lost nothing. */
  aof?: boolean;
}

/** Starts a Redis Cluster of masters that share the slots evenly, and resolves when all of them say it is ok. */
export async function startCluster(options: StartClusterOptions = {}): Promise<TestCluster> {
  const { masters = 3, replicated = false, aof = false } = options;
  const binary = requireServerBinary();
  const durability = aof ? ['--appendonly', 'yes', '--appendfsync', 'always'] : ['--appendonly', 'no'];
  const cluster = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000'];
  const args = [...cluster, ...durability, '--repl-diskless-sync-delay', '0'];
  const all = await Promise.all(
    Array.from({ length: replicated ? 2 * masters : masters }, () => ServerProcess.start(binary, { args })),
  );
  const nodes = all.slice(0, masters);
  const replicas = all.slice(masters);
  const clients: Cluster[] = [];
  const startupNodes = all.map(({ port }) => ({ host: '127.0.0.1', port }));
  const stop = async (): Promise<void> => {
    for (const client of clients) client.disconnect();
    await Promise.all(all.map((node) => node.stop()));
  };
  try {
    await join(nodes, replicas);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    nodes,
    replicas,
    startupNodes,
    client(clientOptions = {}) {
      const client = new Cluster(startupNodes, {
        ...clientOptions,
        redisOptions: { disconnectTimeout: 100, ...clientOptions.redisOptions },
      });
      client.on('error', () => {});
      clients.push(client);
      return client;
    },
    stop,
  };
}

async function join(masters: readonly ServerProcess[], replicas: readonly ServerProcess[]): Promise<void> {
  const admins = [...masters, ...replicas].map(({ url }) => new Redis(url));
  try {
    await Promise.all(
      admins.map(async (admin, index) => {
        if (index < masters.length) {
          const first = Math.ceil((index * SLOTS) / masters.length);
          const end = Math.ceil(((index + 1) * SLOTS) / masters.length);
          await admin.cluster('ADDSLOTS', ...Array.from({ length: end - first }, (_, offset) => first + offset));
        }
        await admin.call('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
      }),
    );
    // Only now: a node that has met another may no longer set its epoch. Everyone meets everyone, and need not wait for gossip.
    for (const [index, admin] of admins.entries()) {
      for (const { options } of admins.slice(index + 1)) await admin.cluster('MEET', '127.0.0.1', options.port!);
    }
    await untilAll(admins, 'cluster_state:ok', async (admin) => isWhole(await admin.cluster('INFO'), masters.length));
    const followers = admins.slice(masters.length);
    for (const [index, follower] of followers.entries()) await replicate(follower, admins[index]!);
    await untilAll(followers, 'master_link_status:up', async (follower) =>
      (await follower.info('replication')).includes('master_link_status:up'),
    );
  } finally {
    for (const admin of admins) admin.disconnect();
  }
}

async function replicate(follower: Redis, master: Redis): Promise<void> {
  const id = (await master.cluster('MYID')) as string;
  // It may not yet know the master by that name.
  await waitFor(async () => (await follower.cluster('REPLICATE', id)) === 'OK');
}

function untilAll(
  admins: readonly Redis[],
  what: string,
  condition: (admin: Redis) => Promise<boolean>,
): Promise<boolean> {
  return waitFor(async () => (await Promise.all(admins.map(condition))).every(Boolean), {
    timeoutMs: 20_000,
    describe: `all nodes to report ${what}`,
  });
}

function isWhole(info: string, size: number): boolean {
  return [`cluster_state:ok`, `cluster_slots_assigned:${SLOTS}`, `cluster_size:${size}`].every((line) =>
    info.includes(`${line}\r\n`),
  );
}
