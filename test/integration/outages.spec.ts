import { setTimeout as sleep } from 'node:timers/promises';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord, nowMs } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { startProxy } from '../support/tcp-proxy.js';
import { deferred, waitFor } from '../support/wait-for.js';

const keys = new Keys('streaming:mq', 'stream:topic');
const BLOCK_MS = 500;
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

let redis: TestRedis;
let topic: string;
let group: string;
let record: HandlingRecord;
const instances: TestInstance[] = [];

beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});
afterEach(async () => {
  await Promise.all(instances.splice(0).map((instance) => instance.close()));
  await redis.stop();
});

async function open(options: MqOptions = {}): Promise<TestInstance> {
  const instance = await TestInstance.open({ redis: redis.url, consumerPollTimeoutMs: BLOCK_MS, ...options });
  instances.push(instance);
  return instance;
}

async function consume(options: MqOptions = {}, work?: Parameters<HandlingRecord['handler']>[1], name = 'owner') {
  const instance = await open(options);
  const log = EventLog.of(
    instance.runtime.events,
    'leaseAcquired',
    'leaseLost',
    'healed',
    'recovered',
    'readerReplaced',
  );
  await instance.start({ topic, group, handle: record.handler(name, work) });
  return { instance, log };
}

/** Sends until it is accepted, as a caller does that knows its message is safe to send again. */
async function sendAll(producer: TestInstance['producer'], ns: readonly number[]): Promise<void> {
  for (const n of ns) {
    const message = { key: `key-${n % 10}`, eventId: crypto.randomUUID() };
    await waitFor(() => producer.send(topic, { n }, message).then(() => true), {
      describe: `message ${n} to be accepted`,
    });
  }
}

async function status(instance: TestInstance): Promise<string> {
  return (await instance.runtime.health.readiness()).redisStreamsMq!.status;
}

describeWithServer('an outage of Redis', () => {
  it('CONN-01 of half to five times BLOCK ends with the outage: consumption resumes, with nothing lost or repeated', async () => {
    redis = await startRedis({ aof: true });
    const { instance, log } = await consume();
    await waitFor(() => log.count('leaseAcquired') === 4);
    let n = 0;
    for (const times of [0.5, 1, 2, 5]) {
      await sendAll(instance.producer, numbers(n, n + 4));
      await redis.kill();
      await sleep(times * BLOCK_MS);
      await redis.restart();
      const backAt = performance.now();
      await sendAll(instance.producer, numbers(n + 5, n + 24));
      await waitFor(() => record.handled === n + 25);
      // Twice BLOCK and the longest pause between two attempts to connect.
      expect(performance.now() - backAt).toBeLessThan(2 * BLOCK_MS + 2_500);
      await waitFor(async () => (await status(instance)) === 'up');
      n += 25;
    }
    expect(record.repeated).toEqual([]);
    expect(record.disorder).toEqual([]);
    expect([log.count('leaseLost'), log.count('healed')]).toEqual([0, 0]);
    expect(log.all('recovered').some(({ component }) => component === `reader:${group}`)).toBe(true);
  });

  it('CONN-01 lets a handler finish that runs through it, and acknowledges it afterwards', async () => {
    redis = await startRedis({ aof: true });
    const go = deferred();
    const { instance, log } = await consume({ defaultPartitionCount: 1 }, (_, { n }) =>
      n === 0 ? go.promise : undefined,
    );
    await sendAll(instance.producer, numbers(0, 9));
    await waitFor(() => record.calls.length === 1);
    await redis.kill();
    go.resolve();
    await sleep(BLOCK_MS);
    await redis.restart();
    await waitFor(() => record.handled === 10);
    const raw = redis.client();
    await waitFor(async () => ((await raw.xpending(keys.stream(topic, 0), group)) as [number])[0] === 0);
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 9));
    expect(log.count('leaseLost')).toBe(0);
  });

  it('STR-11 that took all data ends with new topics and groups, which is said once', async () => {
    redis = await startRedis();
    const { instance, log } = await consume({ defaultPartitionCount: 2 });
    await sendAll(instance.producer, numbers(0, 9));
    await waitFor(() => record.handled === 10);
    await redis.restart();
    await sendAll(instance.producer, numbers(10, 29));
    await waitFor(() => record.handled === 30);
    expect(record.repeated).toEqual([]);
    await waitFor(() => log.count('healed') === 2);
    await waitFor(async () => (await status(instance)) === 'up');
    expect(log.count('healed')).toBe(2);
  });

  it('CONN-02 in which the server stands still costs the leases in time: nothing is started then, sends end, and all goes on after', async () => {
    redis = await startRedis();
    const options = {
      defaultPartitionCount: 2,
      leaseTtlSeconds: 3,
      renewIntervalSec: 1,
      rebalanceIntervalSec: 1,
      redisTimeoutMs: 1_000,
      sendTimeoutMs: 2_000,
    };
    const work = (): Promise<void> => sleep(200);
    const a = await consume(options, work, 'a');
    await waitFor(() => a.log.count('leaseAcquired') === 2);
    const b = await consume(options, work, 'b');
    await waitFor(() => b.log.count('leaseAcquired') === 1);
    await sendAll(a.instance.producer, numbers(0, 39));
    await waitFor(() => record.calls.length >= 6);

    redis.pause();
    const pausedAt = nowMs();
    const sends = numbers(60, 64).map(async (n) => {
      const [outcome] = await Promise.allSettled([a.instance.producer.send(topic, { n })]);
      return { outcome, afterMs: nowMs() - pausedAt };
    });
    await waitFor(() => a.log.count('leaseLost') + b.log.count('leaseLost') === 2);
    for (const { outcome, afterMs } of await Promise.all(sends)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: expect.stringMatching(/^MQ_SEND_/) } });
      expect(afterMs).toBeLessThan(4_000);
    }
    await waitFor(() => nowMs() - pausedAt > 8_000);
    const startedMeanwhile = record.calls.filter((call) => call.startedAt > pausedAt);
    // Trust ends before the lease does, which was renewed a moment before the pause at the latest.
    expect(Math.max(0, ...startedMeanwhile.map((call) => call.startedAt - pausedAt))).toBeLessThan(3_000);
    redis.resume();

    await waitFor(() => numbers(0, 39).every((n) => record.calls.some((call) => call.n === n)), { timeoutMs: 20_000 });
    await sendAll(b.instance.producer, numbers(70, 79));
    await waitFor(() => numbers(70, 79).every((n) => record.calls.some((call) => call.n === n)));
    await waitFor(() => record.calls.every((call) => call.endedAt !== undefined));
    expect(record.overlaps).toEqual([]);
    expect(record.disorder).toEqual([]);
    // What was handled in the first moments of the pause, when no acknowledgement was heard any more.
    const handledInPause = new Set(record.calls.filter((call) => call.endedAt! > pausedAt - 100).map((call) => call.n));
    expect(record.repeated.filter((n) => !handledInPause.has(n))).toEqual([]);
    await waitFor(async () => (await status(a.instance)) === 'up');
  }, 45_000);

  it('CONN-02 that swallows all bytes ends with fresh connections, though the old ones stay silent for ever', async () => {
    redis = await startRedis();
    const proxy = await startProxy(redis.port);
    const options = { redis: proxy.url, redisTimeoutMs: 600, defaultPartitionCount: 2, rebalanceIntervalSec: 1 };
    const { instance, log } = await consume(options);
    await waitFor(() => log.count('leaseAcquired') === 2);
    const { producer } = await open();
    await sendAll(producer, numbers(0, 9));
    await waitFor(() => record.handled === 10);
    proxy.blackhole(true);
    await sendAll(producer, numbers(10, 19));
    await sleep(2_000);
    expect(record.handled).toBeLessThanOrEqual(20);
    proxy.blackhole(false);
    const overAt = performance.now();
    await waitFor(() => record.handled === 20);
    expect(performance.now() - overAt).toBeLessThan(4_000);
    await waitFor(async () => (await status(instance)) === 'up');
    await sendAll(instance.producer, numbers(20, 29));
    await waitFor(() => record.handled === 30);
    expect(record.repeated).toEqual([]);
    expect(record.disorder).toEqual([]);
    expect(log.count('readerReplaced')).toBeGreaterThan(0);
    await instance.close();
    await proxy.stop();
  });
});

describeWithServer('a start without Redis', () => {
  it('CONN-15 waits for it: health is down, sends are refused in time, and consumption begins when Redis comes', async () => {
    redis = await startRedis();
    await redis.kill();
    const { instance } = await consume({ sendTimeoutMs: 300 });
    expect(await status(instance)).toBe('down');
    const sendingAt = performance.now();
    await expect(instance.producer.send(topic, { n: 0 })).rejects.toMatchObject({ code: 'MQ_SEND_TIMEOUT' });
    expect(performance.now() - sendingAt).toBeLessThan(1_000);
    await sleep(1_000);
    await redis.restart();
    await sendAll(instance.producer, numbers(1, 10));
    await waitFor(() => record.handled === 10);
    await waitFor(async () => (await status(instance)) === 'up');
  });

  it('CONN-15 fails within bootTimeoutMs when failFast asks for it', async () => {
    redis = await startRedis();
    await redis.kill();
    const openingAt = performance.now();
    await expect(open({ failFast: true, bootTimeoutMs: 500 })).rejects.toMatchObject({ code: 'MQ_REDIS_UNREACHABLE' });
    expect(performance.now() - openingAt).toBeLessThan(1_500);
  });
});
