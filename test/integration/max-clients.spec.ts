import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const TOPICS = 20;
const PARTITIONS = 16;
const options: MqOptions = { defaultPartitionCount: PARTITIONS, rebalanceIntervalSec: 1 };

describeWithServer('the number of connections', () => {
  let redis: TestRedis;
  let raw: Redis;
  let record: HandlingRecord;
  const instances: TestInstance[] = [];
  beforeAll(async () => {
    redis = await startRedis();
    raw = redis.client();
  });
  beforeEach(() => {
    record = new HandlingRecord();
  });
  afterEach(() => Promise.all(instances.splice(0).map((instance) => instance.close())));
  afterAll(() => redis.stop());

  const connections = async (): Promise<number> =>
    ((await raw.client('LIST')) as string).split('\n').filter((line) => line.includes('name=redis-streams-mq')).length;

  async function consume(topics: number, groups: string[]): Promise<{ instance: TestInstance; log: EventLog }> {
    const instance = await TestInstance.open({ redis: redis.url, ...options });
    instances.push(instance);
    const log = EventLog.of(instance.runtime.events, 'leaseAcquired', 'connection', 'fault');
    const handle = record.handler('owner');
    const names = Array.from({ length: topics }, (_, i) => `topic-${i}`);
    await instance.start(...groups.flatMap((group) => names.map((topic) => ({ topic, group, handle }))));
    return { instance, log };
  }

  it('CONN-18 is three and one for each group, whatever the number of topics and partitions', async () => {
    const { instance, log } = await consume(TOPICS, ['g1', 'g2']);
    await waitFor(() => log.count('leaseAcquired') === 2 * TOPICS * PARTITIONS, { timeoutMs: 25_000 });
    await waitFor(async () => (await connections()) === 5);
    await Promise.all(Array.from({ length: TOPICS }, (_, n) => instance.producer.send(`topic-${n}`, { n })));
    await waitFor(() => record.calls.length === 2 * TOPICS);
    expect(await connections()).toBe(5);
  });

  it('CONN-18 that the server does not allow is said, and the queue works when it does', async () => {
    await waitFor(async () => (await connections()) === 0);
    const others = Number(/connected_clients:(\d+)/.exec(await raw.info('clients'))![1]);
    await raw.config('SET', 'maxclients', others + 3);
    const { instance, log } = await consume(1, ['g1']);
    const refusals = (): unknown[] =>
      log.all('connection').filter(({ error }) => /max number of clients/.test(String((error as Error)?.message)));
    await waitFor(() => refusals().length > 0);
    const attempts = log.count('connection');
    await sleep(2_000);
    // Backs off: an attempt says two things, and no connection tries more often than every half second by then.
    expect(log.count('connection') - attempts).toBeLessThan(40);
    await raw.config('SET', 'maxclients', 1_000);
    await waitFor(() => instance.producer.send('topic-0', { n: 1 }).then(() => true));
    await waitFor(() => record.handled === 1);
    await waitFor(async () => (await connections()) === 4);
    await waitFor(async () => (await instance.runtime.health.readiness()).redisStreamsMq!.status === 'up');
  });
});
