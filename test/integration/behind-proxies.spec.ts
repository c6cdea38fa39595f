import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { ServerProcess } from '../../scripts/server-process.mjs';
import { startCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, uniqueName } from '../support/redis-server.js';
import { startSentinel } from '../support/sentinel.js';
import { waitFor } from '../support/wait-for.js';
import { ProxiedNetwork } from '../torture/servers/proxied-network.js';

/** What `natMap` is for: servers that are reached elsewhere than at the addresses by which they know each other. */
function describeNatMap(
  name: string,
  start: () => Promise<{
    servers: readonly ServerProcess[];
    network: () => Promise<ProxiedNetwork>;
    stop: () => Promise<void>;
  }>,
): void {
  describeWithServer(`ioredis' natMap on ${name}`, () => {
    let world: Awaited<ReturnType<typeof start>>;
    let network: ProxiedNetwork;
    let instance: TestInstance | undefined;
    const admins: Redis[] = [];

    beforeAll(async () => {
      world = await start();
      network = await world.network();
      admins.push(...world.servers.map(({ url }) => new Redis(url, { disconnectTimeout: 100 })));
    });
    afterAll(async () => {
      for (const admin of admins) admin.disconnect();
      await instance?.close();
      await network.stop();
      await world.stop();
    });

    /** Those of the instance that any server has, by their names. */
    async function connections(): Promise<string[]> {
      const lists = (await Promise.all(admins.map((admin) => admin.client('LIST')))) as string[];
      return lists.flatMap((list) => list.split('\n')).filter((line) => line.includes('redis-streams-mq:'));
    }

    it('holds for each connection, blocking ones too', async () => {
      const topic = uniqueName('topic');
      const record = new HandlingRecord();
      const options = { defaultPartitionCount: 8, leaseTtlSeconds: 2, renewIntervalSec: 0.5, redisTimeoutMs: 1_000 };
      const opened = await TestInstance.open({ redis: network.redis, failFast: true, ...options });
      instance = opened;
      await opened.start({ topic, group: 'g', handle: record.handler('a') });
      for (let n = 0; n < 40; n++) await opened.producer.send(topic, { n });
      await waitFor(() => record.handled === 40);
      await waitFor(async () => (await connections()).some((line) => / flags=\S*b/.test(line)));
      await network.refuse(true);
      network.cutAll();
      await waitFor(async () => (await connections()).length === 0);
      const seen = new Set<string>();
      for (const until = performance.now() + 1_500; performance.now() < until; await sleep(20)) {
        for (const line of await connections()) seen.add(line);
      }
      expect([...seen]).toEqual([]);
      await network.refuse(false);
      for (let n = 40; n < 80; n++) await waitFor(() => opened.producer.send(topic, { n }).then(() => true));
      await waitFor(() => record.handled === 80, { timeoutMs: 20_000 });
    }, 60_000);
  });
}

describeNatMap('Sentinel', async () => {
  const sentinel = await startSentinel();
  const { master, replicas, sentinels, name } = sentinel;
  const servers = [master, ...replicas];
  const ports = [...servers, ...sentinels].map(({ port }) => port);
  const network = (): Promise<ProxiedNetwork> =>
    ProxiedNetwork.start(ports, (proxyOf, natMap) => ({
      sentinels: sentinels.map(({ port }) => proxyOf(port)),
      name,
      natMap,
    }));
  return { servers, network, stop: () => sentinel.stop() };
});

describeNatMap('Cluster', async () => {
  const cluster = await startCluster({ replicated: true });
  const { nodes, replicas } = cluster;
  const servers = [...nodes, ...replicas];
  const network = (): Promise<ProxiedNetwork> =>
    ProxiedNetwork.start(
      servers.map(({ port }) => port),
      (proxyOf, natMap) => ({ cluster: { nodes: servers.map(({ port }) => proxyOf(port)), options: { natMap } } }),
    );
  return { servers, network, stop: () => cluster.stop() };
});
