import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { startCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis } from '../support/redis-server.js';
import { startProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait-for.js';

const CHECK_SEC = 1;
const short: MqOptions = { rebalanceIntervalSec: CHECK_SEC, redisTimeoutMs: 600, defaultPartitionCount: 2 };

describeWithServer('CONN-02 a subscription whose connection died without a word', () => {
  const closers: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) await close();
  });

  async function consume(options: MqOptions, record: HandlingRecord, name: string) {
    const instance = await TestInstance.open({ ...short, failFast: true, ...options });
    closers.push(() => instance.close());
    const log = EventLog.of(instance.runtime.events, 'leaseAcquired', 'leaseReleased', 'connection');
    await instance.start({ topic: 'orders', group: 'g', handle: record.handler(name) });
    return { instance, log };
  }

  const subscribed = (log: EventLog): number =>
    log.all('connection').filter(({ name, state }) => name === 'announcements' && state === 'ready').length;

  it('is replaced, so that a joining instance is heard at once again', async () => {
    const redis = await startRedis();
    closers.push(() => redis.stop());
    const proxy = await startProxy(redis.port);
    closers.push(() => proxy.stop());
    const raw = redis.client();
    const channel = 'streaming:mq:announcements';
    const subscribers = async (): Promise<number> => ((await raw.pubsub('NUMSUB', channel)) as [string, number])[1];
    const record = new HandlingRecord();

    const a = await consume({ redis: proxy.url }, record, 'a');
    await waitFor(async () => a.log.count('leaseAcquired') === 2 && (await subscribers()) === 1);
    const before = subscribed(a.log);
    expect(proxy.silence(':announcements')).toBe(1);
    await waitFor(() => subscribed(a.log) > before);
    await waitFor(async () => (await subscribers()) === 1 && proxy.connections() === 4);
    const b = await consume({ redis: redis.url, rebalanceIntervalSec: 30 }, record, 'b');
    const joinedAt = performance.now();
    await waitFor(() => b.log.count('leaseAcquired') === 1);
    expect(performance.now() - joinedAt).toBeLessThan(1_000);
    expect(a.log.count('leaseReleased')).toBe(1);
  });

  it('is left alone while it answers, however little is announced', async () => {
    const redis = await startRedis();
    closers.push(() => redis.stop());
    const record = new HandlingRecord();
    const { log } = await consume({ redis: redis.url, rebalanceIntervalSec: 0.2 }, record, 'a');
    const raw = redis.client();
    const calls = async (): Promise<number> =>
      Number(/cmdstat_subscribe:calls=(\d+)/.exec(await raw.info('commandstats'))?.[1] ?? 0);
    await waitFor(async () => (await calls()) > 5);
    expect(subscribed(log)).toBeLessThanOrEqual(1);
  });

  it('is replaced on a cluster, too', async () => {
    const cluster = await startCluster();
    closers.push(() => cluster.stop());
    const proxies = new Map<number, TcpProxy>();
    for (const { port } of cluster.nodes) proxies.set(port, await startProxy(port));
    closers.push(() => Promise.all([...proxies.values()].map((proxy) => proxy.stop())));
    const natMap = (key: string): { host: string; port: number } => ({
      host: '127.0.0.1',
      port: proxies.get(Number(key.split(':')[1]))!.port,
    });
    const nodes = [...proxies.values()].map(({ port }) => ({ host: '127.0.0.1', port }));
    const record = new HandlingRecord();
    const a = await consume({ redis: { cluster: { nodes, options: { natMap } } } }, record, 'a');
    await waitFor(() => a.log.count('leaseAcquired') === 2);
    const silenced = (): number =>
      [...proxies.values()].reduce((sum, proxy) => sum + proxy.silence('ioredis-cluster(subscriber)'), 0);
    await waitFor(() => silenced() === 1);
    const before = subscribed(a.log);
    await waitFor(() => subscribed(a.log) > before);
    const b = await consume(
      { redis: { cluster: { nodes: cluster.startupNodes } }, rebalanceIntervalSec: 30 },
      record,
      'b',
    );
    const joinedAt = performance.now();
    await waitFor(() => b.log.count('leaseAcquired') === 1);
    expect(performance.now() - joinedAt).toBeLessThan(1_000);
  });
});
