import { Cluster, type ClusterOptions } from 'ioredis';
import { Cluster as Cluster5 } from 'ioredis5';
import { startCluster, type TestCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { expectAllFeatures } from '../support/feature-run.js';
import { describeWithServer } from '../support/redis-server.js';

describeWithServer("the user's settings in Cluster", () => {
  let cluster: TestCluster;
  const clients: { disconnect(): void }[] = [];

  beforeAll(async () => {
    cluster = await startCluster({ replicated: true });
  });
  afterEach(() => clients.splice(0).forEach((client) => client.disconnect()));
  afterAll(() => cluster.stop());

  const nodes = (): { host: string; port: number }[] => [...cluster.startupNodes];
  const describedWith = (options: ClusterOptions): unknown => ({ cluster: { nodes: nodes(), options } });
  const clientWith = (options: ClusterOptions): unknown => opened(new Cluster(nodes(), options));
  const client5With = (options: object): unknown => opened(new Cluster5(nodes(), options));

  function opened<T extends { on(event: 'error', listener: () => void): unknown; disconnect(): void }>(client: T): T {
    client.on('error', () => undefined);
    clients.push(client);
    return client;
  }

  it('CLU-05 keep every feature free of CROSSSLOT, for several topics at once', async () => {
    await Promise.all([1, 2, 3].map(() => expectAllFeatures({ redis: describedWith({}) })));
  });

  it.each([
    ['options', describedWith],
    ['a client', clientWith],
    ['a client of ioredis 5', client5With],
  ])('CLU-06 of enableAutoPipelining, in %s, changes nothing', async (_, make) => {
    await expectAllFeatures({ redis: make({ enableAutoPipelining: true }) });
  });

  it.each([
    ['options', describedWith],
    ['a client', clientWith],
  ])('CLU-07 of scaleReads, in %s, lead to no replica: none answers, and nobody notices', async (_, make) => {
    for (const replica of cluster.replicas) replica.pause();
    try {
      await expectAllFeatures({ redis: make({ scaleReads: 'slave' }) });
    } finally {
      for (const replica of cluster.replicas) replica.resume();
    }
  });

  it.each([
    ['options', describedWith],
    ['a client', clientWith],
  ])('CLU-08 of a database number, in %s, refuse the boot', async (_, make) => {
    await expect(TestInstance.open({ redis: make({ redisOptions: { db: 3 } }) })).rejects.toThrow(
      'db must be 0 in Cluster',
    );
  });
});
