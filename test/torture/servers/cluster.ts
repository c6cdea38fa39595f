import type { Cluster } from 'ioredis';
import { startCluster, type TestCluster } from '../../support/cluster.js';
import { ClusterFaults, type Shard } from './cluster-faults.js';
import { ClusterSlots } from './cluster-slots.js';
import { faultsOfAll, type WorldServer, worldServer } from './every-server.js';
import { OffsetWatch } from './offset-watch.js';
import { ProxiedNetwork } from './proxied-network.js';
import type { Network, Servers } from './servers.js';

/** Three masters with a replica each; what a master has accepted is on its disk. */
export async function startClusterServers(): Promise<Servers> {
  const cluster = await startCluster({ masters: 3, replicated: true, aof: true });
  const replicas = cluster.replicas.map(worldServer);
  return new ClusterServers(
    cluster,
    cluster.nodes.map((process, i) => [worldServer(process), replicas[i]!]),
  );
}

class ClusterServers implements Servers {
  readonly kind = 'cluster';
  readonly faults: Servers['faults'];
  private readonly servers: readonly WorldServer[];
  private readonly watch: OffsetWatch;

  constructor(
    private readonly cluster: TestCluster,
    shards: readonly Shard[],
  ) {
    this.servers = shards.flat();
    const slots = new ClusterSlots(shards.length);
    const shardOf = (port: number): number =>
      shards.findIndex((shard) => shard.some(({ process }) => process.port === port));
    this.watch = new OffsetWatch(this.ports, (port) => slots.snapshot(shardOf(port)));
    this.faults = { ...faultsOfAll(this.servers), ...new ClusterFaults(shards, slots).faults };
  }

  get failovers(): Servers['failovers'] {
    return this.watch.failovers;
  }

  client(): Cluster {
    return this.cluster.client({ redisOptions: { socketTimeout: 2_000 } });
  }

  network(): Promise<Network> {
    return ProxiedNetwork.start(this.ports, (proxyOf, natMap) => ({
      cluster: { nodes: this.ports.map(proxyOf), options: { natMap } },
    }));
  }

  async stop(): Promise<void> {
    await this.watch.stop();
    for (const { client } of this.servers) client.disconnect();
    await this.cluster.stop();
  }

  private get ports(): number[] {
    return this.servers.map(({ process }) => process.port);
  }
}
