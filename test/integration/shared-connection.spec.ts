import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { startCluster, type TestCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const BLOCK_MS = 4_000;
const LEASE_MS = 9_000;
const options: MqOptions = {
  consumerPollTimeoutMs: BLOCK_MS,
  leaseTtlSeconds: LEASE_MS / 1_000,
  renewIntervalSec: 0.5,
  defaultPartitionCount: 8,
};

interface Looked {
  /** How long each call took while all consumers were blocked, in milliseconds, shortest first. */
  sends: number[];
  lists: number[];
  leastPttl: number;
}

/** With every partition of a topic empty and its consumer in a blocking read, for longer than that read. */
async function lookWhileBlocked(instance: TestInstance, raw: Redis | Cluster): Promise<Looked> {
  const [empty, other, group] = [uniqueName('empty'), uniqueName('other'), uniqueName('group')];
  const log = EventLog.of(instance.runtime.events, 'leaseAcquired');
  await instance.start({ topic: empty, group, handle: () => undefined });
  await waitFor(() => log.count('leaseAcquired') === 8);
  await instance.producer.send(other, { n: 0 });
  await instance.runtime.admin.listTopics();
  // So that the readers are all in their block.
  await sleep(300);
  const until = performance.now() + BLOCK_MS + 500;
  const looked: Looked = { sends: [], lists: [], leastPttl: Infinity };
  const timed = async (work: () => Promise<unknown>): Promise<number> => {
    const since = performance.now();
    await work();
    return performance.now() - since;
  };
  const leases = Array.from({ length: 8 }, (_, partition) => `streaming:mq:lease:{${empty}:p:${partition}}:${group}`);
  const look = async (): Promise<void> => {
    while (performance.now() < until) {
      for (const lease of leases) looked.leastPttl = Math.min(looked.leastPttl, await raw.pttl(lease));
      await sleep(50);
    }
  };
  const work = async (): Promise<void> => {
    for (let n = 0; n < 50; n++) {
      looked.sends.push(await timed(() => instance.producer.send(other, { n }, { key: `key-${n}` })));
      looked.lists.push(await timed(() => instance.runtime.admin.listTopics()));
    }
  };
  await Promise.all([look(), work()]);
  for (const times of [looked.sends, looked.lists]) times.sort((a, b) => a - b);
  return looked;
}

function expectUnhindered({ sends, lists, leastPttl }: Looked): void {
  // Of 50 the last but one is no more than the machine's noise away; one that waited for a block would take seconds.
  for (const times of [sends, lists]) {
    expect(times[Math.floor(times.length / 2)]).toBeLessThan(50);
    expect(times.at(-2)).toBeLessThan(300);
    expect(times.at(-1)).toBeLessThan(BLOCK_MS / 4);
  }
  expect(leastPttl).toBeGreaterThan(LEASE_MS * 0.75);
}

describeWithServer('one client for everything', () => {
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis.stop());

  it('CONN-04 blocking reads hold up neither sends nor renewals nor administration', async () => {
    const client = redis.client();
    const instance = await TestInstance.open({ redis: client, failFast: true, ...options });
    try {
      expectUnhindered(await lookWhileBlocked(instance, redis.client()));
    } finally {
      await instance.close();
    }
  });

  it('CONN-20 is never closed by us, all of ours are, and serves one application after the other', async () => {
    const client = redis.client();
    const ours = async (): Promise<number> =>
      ((await client.client('LIST')) as string).split('\n').filter((line) => line.includes('name=redis-streams-mq'))
        .length;
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    for (const round of [1, 2]) {
      const instance = await TestInstance.open({ redis: client, failFast: true, ...options });
      await instance.start({ topic, group: 'g', handle: record.handler('owner') });
      await instance.producer.send(topic, { n: round });
      await waitFor(() => record.handled === round);
      expect(await ours()).toBe(4);
      await instance.close();
      expect(await client.ping()).toBe('PONG');
      await waitFor(async () => (await ours()) === 0);
    }
    expect(client.listenerCount('ready') + client.listenerCount('end')).toBe(0);
    expect(await client.quit()).toBe('OK');
  });
});

describeWithServer('one client of a cluster for everything', () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster.stop());

  it('CONN-04 blocking reads hold up neither sends nor renewals nor administration, on no node', async () => {
    const client = cluster.client();
    const instance = await TestInstance.open({ redis: client, failFast: true, ...options });
    try {
      expectUnhindered(await lookWhileBlocked(instance, cluster.client()));
    } finally {
      await instance.close();
    }
    expect(await client.ping()).toBe('PONG');
  });

  it('CONN-13 enableOfflineQueue: false keeps nobody from sending while the queue starts', async () => {
    const clusterOptions = { enableOfflineQueue: false, redisOptions: { enableOfflineQueue: false } };
    const redis = { cluster: { nodes: cluster.startupNodes, options: clusterOptions } };
    const instance = await TestInstance.open({ redis, defaultPartitionCount: 8 });
    const record = new HandlingRecord();
    const topic = uniqueName('topic');
    try {
      await instance.producer.send(topic, { n: 0 });
      await instance.start({ topic, group: 'g', handle: record.handler('owner') });
      for (const n of [1, 2, 3, 4, 5, 6, 7]) await instance.producer.send(topic, { n });
      await waitFor(() => record.handled === 8);
      expect(record.repeated).toEqual([]);
    } finally {
      await instance.close();
    }
  });
});
