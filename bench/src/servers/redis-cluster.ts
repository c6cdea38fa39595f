import { startCluster } from '../../../test/support/cluster.js';
import type { Durability } from '../environment.js';
import { emptyRedis } from './redis.js';
import type { RunningServer } from './running-server.js';

/** Three masters; durability is off or always here, because that is what the shared set-up has. */
export async function startRedisCluster(durability: Durability): Promise<RunningServer> {
  const cluster = await startCluster({ masters: 3, aof: durability === 'always' });
  return {
    urls: { cluster: cluster.startupNodes },
    pids: cluster.nodes.map(({ pid }) => pid),
    empty: async () => void (await Promise.all(cluster.nodes.map(({ url }) => emptyRedis(url, 'off')))),
    stop: () => cluster.stop(),
  };
}
