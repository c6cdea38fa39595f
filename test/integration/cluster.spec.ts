import type { ClusterOptions } from 'ioredis';
import { EventLog } from '../support/event-log.js';
import { TestInstance } from '../support/engine.js';
import { startCluster, type TestCluster } from '../support/cluster.js';
import { describeWithServer, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

describeWithServer('on Redis Cluster', () => {
  let cluster: TestCluster;

  beforeAll(async () => {
    cluster = await startCluster({ masters: 3 });
  });
  afterAll(() => cluster.stop());

  const redis = (options: ClusterOptions = {}) => ({ cluster: { nodes: cluster.startupNodes, options } });

  it.each<[string, number, ClusterOptions]>([
    ['CLU-05 with a blocking connection for each partition', 64, {}],
    ['CLU-05 with two blocking connections', 2, {}],
    [
      'CLU-06 CLU-07 whatever the options say of pipelines and replicas',
      64,
      { enableAutoPipelining: true, scaleReads: 'slave' },
    ],
  ])(
    '%s delivers, retries, dead-letters and replays, with the partitions of a topic on several masters',
    async (_, maxBlockingConnections, given) => {
      const options = { maxBlockingConnections, keyPrefix: uniqueName('mq'), streamKeyPrefix: uniqueName('data') };
      const a = await TestInstance.open({ redis: redis(given), defaultPartitionCount: 8, ...options });
      const b = await TestInstance.open({ redis: redis(given), defaultPartitionCount: 8, ...options });
      const faults: unknown[] = [];
      for (const { runtime } of [a, b]) runtime.events.on('fault', (fault) => faults.push(fault));
      const handled = new Map<string, number[]>();
      let fixed = false;
      const handle = ({ payload, context }: { payload: unknown; context: { key: string | null; attempt: number } }) => {
        const { n } = payload as { n: number };
        if (n % 50 === 7 && context.attempt === 1) throw new Error('once');
        if (n === 99 && !fixed) throw new Error('always');
        const seen = handled.get(context.key!) ?? [];
        handled.set(context.key!, [...seen, n]);
      };
      const count = () => [...handled.values()].reduce((sum, list) => sum + list.length, 0);
      try {
        await a.start({ topic: 'orders', group: 'g', handle });
        await b.start({ topic: 'orders', group: 'g', handle });
        const sent = await a.producer.sendBatch(
          'orders',
          Array.from({ length: 1_000 }, (_, n) => ({ payload: { n }, key: `key-${n % 40}` })),
        );
        expect(sent.failed).toBe(0);
        await waitFor(() => count() === 999, { timeoutMs: 20_000, describe: 'all but one handled' });
        await waitFor(async () => (await a.runtime.deadLetters.size('orders')) === 1);
        fixed = true;
        expect(await a.runtime.deadLetters.replayAll('orders')).toMatchObject({ replayed: 1 });
        await waitFor(() => count() === 1_000);
        const id = (await a.producer.send('orders', { n: 1 }, { dedupId: 'once' })).id;
        expect((await a.producer.send('orders', { n: 1 }, { dedupId: 'once' })).id).toBe(id);
        const raw = cluster.client();
        await raw.ping();
        const perMaster = await Promise.all(raw.nodes('master').map((node) => node.dbsize()));
        for (const size of perMaster) expect(size).toBeGreaterThan(0);
        expect(faults.filter((fault) => (fault as { class: string }).class !== 'transient')).toEqual([]);
      } finally {
        await Promise.all([a.close(), b.close()]);
      }
    },
  );

  it('starts without a fault, and people may ask it at once', async () => {
    for (let i = 0; i < 6; i++) {
      const options = { keyPrefix: uniqueName('mq'), streamKeyPrefix: uniqueName('data'), defaultPartitionCount: 8 };
      const instance = await TestInstance.open({ redis: redis(), failFast: true, ...options });
      const faults = EventLog.of(instance.runtime.events, 'fault');
      let handled = 0;
      try {
        await instance.runtime.admin.createTopic('orders');
        expect(await instance.runtime.deadLetters.list('orders')).toMatchObject({ items: [] });
        await instance.start({ topic: 'orders', group: 'g', handle: () => void handled++ });
        for (let n = 0; n < 10; n++) await instance.producer.send('orders', { n });
        await waitFor(() => handled === 10);
        expect(faults.all('fault').map(({ component, error }) => `${component}: ${String(error)}`)).toEqual([]);
      } finally {
        await instance.close();
      }
    }
  });
});
