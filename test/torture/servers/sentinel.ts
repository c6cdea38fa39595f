import { Redis } from 'ioredis';
import { replyCode } from '../../../libs/redis-streams-mq/src/redis/redis-errors.js';
import { startSentinel, type TestSentinel } from '../../support/sentinel.js';
import { faultsOfAll, type WorldServer, worldServer } from './every-server.js';
import { OffsetWatch } from './offset-watch.js';
import { ProxiedNetwork } from './proxied-network.js';
import { SentinelFaults } from './sentinel-faults.js';
import type { Network, Servers } from './servers.js';

/** A client for looking must not hang on a master that is stopped, nor stay with one that was demoted. */
const FOLLOWING = {
  socketTimeout: 2_000,
  sentinelCommandTimeout: 2_000,
  reconnectOnError: (error: Error) => (replyCode(error) === 'READONLY' ? 2 : false),
} as const;

/** A master, two replicas and three sentinels; what the master has accepted is on its disk. */
export async function startSentinelServers(): Promise<Servers> {
  // A master that is slow for half a second is not dead.
  const sentinel = await startSentinel({ replicas: 2, aof: true, downAfterMs: 1_000 });
  return new SentinelServers(sentinel, [sentinel.master, ...sentinel.replicas].map(worldServer));
}

class SentinelServers implements Servers {
  readonly kind = 'sentinel';
  readonly faults: Servers['faults'];
  private readonly watch: OffsetWatch;
  private readonly askers: readonly Redis[];

  constructor(
    private readonly sentinel: TestSentinel,
    private readonly servers: readonly WorldServer[],
  ) {
    this.askers = sentinel.sentinels.map((process) => worldServer(process).client);
    this.watch = new OffsetWatch(
      servers.map(({ process }) => process.port),
      () => () => true,
    );
    this.faults = { ...faultsOfAll(servers), ...new SentinelFaults(sentinel, servers, this.askers).faults };
  }

  get failovers(): Servers['failovers'] {
    return this.watch.failovers;
  }

  client(): Redis {
    return this.sentinel.client(FOLLOWING);
  }

  network(): Promise<Network> {
    const { addresses, name } = this.sentinel;
    const sentinelPorts = addresses.map(({ port }) => port);
    const ports = [...this.servers.map(({ process }) => process.port), ...sentinelPorts];
    return ProxiedNetwork.start(ports, (proxyOf, natMap) => ({ sentinels: sentinelPorts.map(proxyOf), name, natMap }));
  }

  async stop(): Promise<void> {
    await this.watch.stop();
    for (const client of [...this.askers, ...this.servers.map((server) => server.client)]) client.disconnect();
    await this.sentinel.stop();
  }
}
