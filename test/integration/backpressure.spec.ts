import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Registry } from 'prom-client';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { page } from '../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { quantile } from '../support/fleet.js';
import { type HandlerCall, HandlingRecord, nowMs } from '../support/handling-record.js';
import { startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const keys = new Keys('streaming:mq', 'stream:topic');
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

let redis: TestRedis;
let raw: Redis;
let topic: string;
let group: string;
let record: HandlingRecord;
const instances: TestInstance[] = [];

beforeAll(async () => {
  redis = await startRedis();
  raw = redis.client();
});
afterAll(() => redis.stop());
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});
afterEach(async () => {
  await Promise.all(instances.splice(0).map((instance) => instance.close()));
});

async function open(options: MqOptions = {}, registry?: Registry): Promise<TestInstance> {
  const instance = await TestInstance.open({ redis: redis.url, failFast: true, ...options }, { registry });
  instances.push(instance);
  return instance;
}

async function makeTopic(partitionCount: number, name = topic): Promise<TestInstance['producer']> {
  const { runtime } = await open();
  await runtime.admin.createTopic(name, { partitionCount });
  return runtime.producer;
}

async function send(producer: TestInstance['producer'], ns: readonly number[], partitions: number): Promise<void> {
  const { failed } = await producer.sendBatch(
    topic,
    ns.map((n) => ({ payload: { n }, partition: n % partitions })),
  );
  expect(failed).toBe(0);
}

async function pending(partition: number): Promise<number> {
  return ((await raw.xpending(keys.stream(topic, partition), group)) as [number])[0];
}

/** The largest figure that `look` gives until it is stopped. */
function highest(look: () => Promise<number>) {
  let max = 0;
  let looking = true;
  const done = (async () => {
    while (looking) {
      max = Math.max(max, await look());
      await sleep(1);
    }
  })();
  return async (): Promise<number> => {
    looking = false;
    await done;
    return max;
  };
}

describe('maxInFlight', () => {
  const pendingTotal = async (partitions: number): Promise<number> => {
    const transaction = raw.multi();
    for (let p = 0; p < partitions; p++) transaction.xpending(keys.stream(topic, p), group);
    const replies = (await transaction.exec())!;
    return replies.reduce((sum, [error, reply]) => sum + (error ? 0 : (reply as [number])[0]), 0);
  };

  it.each([2, 3, 10, 33])('%i is never exceeded, and nothing comes to a standstill', async (maxInFlight) => {
    const producer = await makeTopic(4);
    const consumer = await open({ maxInFlight });
    const most = highest(() => pendingTotal(4));
    await consumer.start({ topic, group, handle: record.handler('owner', () => sleep(1)) });
    await send(producer, numbers(0, 149), 4);
    await waitFor(() => record.handled === 150);
    // Again from rest, with the last message alone.
    await send(producer, [150], 4);
    await waitFor(() => record.handled === 151);
    const max = await most();
    expect(max).toBeLessThanOrEqual(maxInFlight);
    expect(max).toBeGreaterThan(0);
    expect(record.repeated).toEqual([]);
    expect(record.disorder).toEqual([]);
  });

  it('holds while the pending entries of a dead owner are taken over', async () => {
    const producer = await makeTopic(4);
    await send(producer, numbers(0, 399), 4);
    for (const partition of numbers(0, 3)) {
      const stream = keys.stream(topic, partition);
      await raw.xgroup('CREATE', stream, group, '0');
      await raw.xreadgroup('GROUP', group, 'dead-owner', 'COUNT', 100, 'STREAMS', stream, '>');
    }
    const registry = new Registry();
    const consumer = await open({ maxInFlight: 20 }, registry);
    const inFlight = async (): Promise<number> => {
      const metric = await registry.getSingleMetric('redis_streaming_mq_inflight')!.get();
      return metric.values[0]!.value;
    };
    let max = 0;
    await consumer.start({
      topic,
      group,
      handle: record.handler('owner', async () => {
        max = Math.max(max, await inFlight());
      }),
    });
    await waitFor(() => record.handled === 400);
    expect(max).toBeLessThanOrEqual(20);
    expect(max).toBeGreaterThan(0);
    expect(record.repeated).toEqual([]);
    expect(record.disorder).toEqual([]);
    await waitFor(async () => (await pendingTotal(4)) === 0);
  });

  it('is not held by a group that only waits: another group of the instance reads at once', async () => {
    const producer = await makeTopic(4);
    const quiet = uniqueName('topic');
    await makeTopic(4, quiet);
    const consumer = await open({ maxInFlight: 10, consumerPollTimeoutMs: 2_000 });
    const log = EventLog.of(consumer.runtime.events, 'leaseAcquired');
    await consumer.start(
      { topic: quiet, group: uniqueName('group'), handle: () => undefined },
      { topic, group, handle: record.handler('owner') },
    );
    await waitFor(() => log.count('leaseAcquired') === 8);
    for (let n = 0; n < 40; n++) {
      const sentAt = nowMs();
      await send(producer, [n], 4);
      await waitFor(() => record.calls.length === n + 1);
      expect(record.calls[n]!.startedAt - sentAt).toBeLessThan(500);
    }
  });
});

describe('workerThreads', () => {
  it('bounds how many handlers run at once, and lets no partition starve', async () => {
    const producer = await makeTopic(8);
    const consumer = await open({ workerThreads: 3 });
    let running = 0;
    let most = 0;
    await consumer.start({
      topic,
      group,
      handle: record.handler('owner', async () => {
        most = Math.max(most, ++running);
        await sleep(5);
        running--;
      }),
    });
    await send(producer, numbers(0, 239), 8);
    await waitFor(() => record.handled === 240);
    expect(most).toBe(3);
    expect(record.overlaps).toEqual([]);
    // By the time that one partition is through, every other has had nearly as many turns.
    const order = record.calls.map((call) => call.partition);
    const firstThrough = Math.min(...numbers(0, 7).map((partition) => order.lastIndexOf(partition)));
    for (const partition of numbers(0, 7)) {
      expect(order.slice(0, firstThrough + 1).filter((p) => p === partition).length).toBeGreaterThan(20);
    }
  });

  it('of one is enough for several partitions and groups', async () => {
    const producer = await makeTopic(4);
    const consumer = await open({ workerThreads: 1 });
    const other = new HandlingRecord();
    await consumer.start(
      { topic, group, handle: record.handler('owner', () => sleep(1)) },
      { topic, group: uniqueName('group'), handle: other.handler('other', () => sleep(1)) },
    );
    await send(producer, numbers(0, 79), 4);
    await waitFor(() => record.handled === 80 && other.handled === 80);
    const all = [...record.calls, ...other.calls].toSorted((a, b) => a.startedAt - b.startedAt);
    for (const [i, call] of all.slice(1).entries()) expect(call.startedAt).toBeGreaterThanOrEqual(all[i]!.endedAt!);
  });
});

describe('a partition that is in trouble', () => {
  /** Fifty messages a second to partitions 1 to 7; how long they waited for their handlers at the 99th percentile. */
  async function waitOfOthers(producer: TestInstance['producer'], from: number): Promise<number> {
    const COUNT = 150;
    const sentAt = new Map<number, number>();
    const since = nowMs();
    for (let i = 0; i < COUNT; i++) {
      const n = (from + i) * 8 + 1 + (i % 7);
      sentAt.set(n, nowMs());
      await send(producer, [n], 8);
      await sleep(Math.max(0, since + i * 20 - nowMs()));
    }
    const mine = (): HandlerCall[] => record.calls.filter((call) => sentAt.has(call.n));
    await waitFor(() => mine().length === COUNT);
    return quantile(
      mine().map((call) => call.startedAt - sentAt.get(call.n)!),
      0.99,
    );
  }

  /** The trouble lasts through all looks; what others do to the machine does not. */
  async function othersAreQuick(producer: TestInstance['producer'], usual: number): Promise<void> {
    let from = 0;
    await waitFor(async () => (await waitOfOthers(producer, (from += 1_000))) < Math.max(200, 3 * usual), {
      timeoutMs: 15_000,
      describe: 'the other partitions to be handled within 200 ms',
    });
  }

  async function consumer(onFirstPartition: (n: number) => unknown): Promise<TestInstance> {
    const instance = await open({ retryMaxAttempts: 1_000, retryMaxBackoffMs: 20 });
    const log = EventLog.of(instance.runtime.events, 'leaseAcquired');
    const work = (_: unknown, { partition, n }: HandlerCall): unknown =>
      partition === 0 ? onFirstPartition(n) : sleep(10);
    await instance.start({ topic, group, handle: record.handler('owner', work), options: { batchCount: 16 } });
    await waitFor(() => log.count('leaseAcquired') === 8);
    return instance;
  }

  const toFirst = numbers(0, 199).map((i) => i * 8);

  it('DEL-28 since its handler is slow holds back no other, and its buffer is bounded', async () => {
    const producer = await makeTopic(8);
    const instance = await consumer(() => sleep(1_000));
    const usual = await waitOfOthers(producer, 0);
    await send(producer, toFirst, 8);
    await waitFor(() => record.of(0).length > 0);
    const most = highest(() => pending(0));
    await othersAreQuick(producer, usual);
    expect(record.of(0).length).toBeGreaterThan(1);
    // What runs, a batch that waits and the next that was asked for.
    expect(await most()).toBeLessThanOrEqual(1 + 2 * 16);
    await instance.close();
  });

  it('DEL-28 since its messages fail again and again holds back no other', async () => {
    const producer = await makeTopic(8);
    const instance = await consumer(() => {
      throw new Error('never');
    });
    const usual = await waitOfOthers(producer, 0);
    await send(producer, toFirst.slice(0, 5), 8);
    await waitFor(() => record.of(0).some((call) => call.attempt > 2));
    await othersAreQuick(producer, usual);
    expect(record.of(0).length).toBeGreaterThan(100);
    await instance.close();
  });
});

describe('a handler that takes longer than the lease, the pending scan and claimIdleMs', () => {
  it('DEL-02 is not called again, neither here nor on another instance, and its delivery count stays', async () => {
    const producer = await makeTopic(1);
    const options: MqOptions = {
      leaseTtlSeconds: 1.5,
      renewIntervalSec: 0.3,
      rebalanceIntervalSec: 0.3,
      pendingScanIntervalSec: 0.2,
      consumerPollTimeoutMs: 200,
      claimIdleMs: 500,
    };
    for (const name of ['a', 'b']) {
      const instance = await open(options);
      await instance.start({
        topic,
        group,
        handle: record.handler(name, (_, { n }) => (n === 0 ? sleep(5_000) : undefined)),
      });
    }
    await send(producer, [0, 1, 2], 1);
    await waitFor(() => record.calls.length === 1);
    await waitFor(() => nowMs() - record.calls[0]!.startedAt > 4_500);
    const entries = (await raw.xpending(keys.stream(topic, 0), group, '-', '+', 10)) as [
      string,
      string,
      number,
      number,
    ][];
    expect(entries.map(([, , , deliveries]) => deliveries)).toEqual([1, 1, 1]);
    await waitFor(() => record.handled === 3);
    expect(record.calls.map((call) => [call.n, call.attempt])).toEqual([
      [0, 1],
      [1, 1],
      [2, 1],
    ]);
    await waitFor(async () => (await pending(0)) === 0);
  });
});

describe('an instance with nothing to do', () => {
  it('sends less than 50 commands a second for 32 partitions, and reads on (I7)', async () => {
    const consumer = await open({ defaultPartitionCount: 8 });
    const log = EventLog.of(consumer.runtime.events, 'leaseAcquired', 'fault', 'warning');
    const topics = [topic, uniqueName('topic'), uniqueName('topic'), uniqueName('topic')];
    await consumer.start(...topics.map((name) => ({ topic: name, group, handle: record.handler('owner') })));
    await waitFor(() => log.count('leaseAcquired') === 32);
    const monitor = connect(redis.port, '127.0.0.1');
    let seen = '';
    monitor.on('data', (bytes) => (seen += bytes.toString('latin1')));
    monitor.write('MONITOR\r\n');
    // Each take-over ends with a look at what is pending, which comes after its lease.
    await waitFor(async () => {
      seen = '';
      await sleep(500);
      return !/XPENDING/i.test(seen) && !seen.includes(page.sha);
    });
    seen = '';
    const since = performance.now();
    await sleep(3_000);
    monitor.destroy();
    const seconds = (performance.now() - since) / 1_000;
    // What scripts call inside Redis is not sent.
    const sent = seen.match(/^\+[\d.]+ \[\d+ (?!lua)/gm)?.length ?? 0;
    expect(sent / seconds).toBeLessThan(50);
    expect(sent).toBeGreaterThan(0);
    await consumer.producer.send(topic, { n: 0 });
    await waitFor(() => record.handled === 1);
    expect(log.count('fault') + log.count('warning')).toBe(0);
  });
});
