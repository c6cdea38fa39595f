import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { MqEventName } from '../../libs/redis-streams-mq/src/core/events.js';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { deferred, waitFor } from '../support/wait-for.js';

const keys = new Keys('streaming:mq', 'stream:topic');
const LOUD: readonly MqEventName[] = ['healed', 'fault', 'leaseLost', 'dead', 'ledgerRepaired', 'warning'];
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

async function open(options: MqOptions = {}): Promise<TestInstance> {
  const instance = await TestInstance.open({ redis: redis.url, failFast: true, rebalanceIntervalSec: 0.5, ...options });
  instances.push(instance);
  return instance;
}

/** An instance that handles the topic, which gets `partitionCount` partitions. */
async function consume(
  partitionCount: number,
  work?: Parameters<HandlingRecord['handler']>[1],
  options: MqOptions = {},
) {
  const instance = await open({ defaultPartitionCount: partitionCount, ...options });
  const log = EventLog.of(instance.runtime.events, 'leaseAcquired', ...LOUD);
  await instance.start({ topic, group, handle: record.handler('owner', work) });
  await waitFor(() => log.count('leaseAcquired') === partitionCount);
  return { instance, log };
}

async function send(producer: TestInstance['producer'], ns: readonly number[], partitions: number): Promise<void> {
  const messages = ns.map((n) => ({ payload: { n }, key: `key-${n % 10}`, partition: n % partitions }));
  const { results } = await producer.sendBatch(topic, messages);
  expect(results.filter((result) => result.status === 'failed')).toEqual([]);
}

async function settled(partitions: number): Promise<void> {
  await waitFor(async () => {
    const all = await Promise.all(numbers(0, partitions - 1).map((p) => raw.xpending(keys.stream(topic, p), group)));
    return all.every(([count]) => count === 0);
  });
}

async function readiness(instance: TestInstance) {
  return (await instance.runtime.health.readiness()).redisStreamsMq!;
}

describe('a server that lost its data', () => {
  it('STR-11 gets its topics and groups again, and says so once: what is sent at once is handled within seconds', async () => {
    const { instance, log } = await consume(3, ({ context }, { n }) => {
      if (n === 25 && context.attempt === 1) throw new Error('fails once');
    });
    const { producer } = await open();
    await send(producer, numbers(0, 19), 3);
    await waitFor(() => record.handled === 20);
    const before = record.calls[0]!.epoch;
    expect(log.count('healed')).toBe(0);

    await raw.flushall();
    const flushedAt = performance.now();
    await send(producer, numbers(20, 39), 3);
    await waitFor(() => record.handled === 40);
    expect(performance.now() - flushedAt).toBeLessThan(5_000);
    await waitFor(() => record.calls.some((call) => call.n === 25 && call.attempt === 2));
    await settled(3);

    const healed = log.all('healed').map(({ partition }) => partition);
    expect(healed.toSorted((a, b) => a - b)).toEqual([0, 1, 2]);
    expect(record.calls.at(-1)!.epoch).toBeGreaterThan(before);
    expect(await raw.hget(keys.topic(topic).meta, 'partitionCount')).toBe('3');
    expect(await raw.scard(keys.topic(topic).partitions)).toBe(3);
    await waitFor(async () => (await raw.smembers(keys.topics)).includes(topic));
    const leases = numbers(0, 2).map((p) => keys.groupPartition(topic, p, group).lease);
    expect(await raw.exists(...leases)).toBe(3);
    expect(record.repeated).toEqual([]);
    expect(record.disorder).toEqual([]);
    await waitFor(async () => (await readiness(instance)).status === 'up');
  });

  it('STR-11 lets the message that is being handled finish, and handles no other twice', async () => {
    const go = deferred();
    const { log } = await consume(1, (_, { n }) => (n === 0 ? go.promise : undefined));
    const { producer } = await open();
    await send(producer, [0, 1, 2], 1);
    await waitFor(() => record.calls.length === 1);
    await raw.flushall();
    await waitFor(() => log.count('leaseLost') === 1);
    await send(producer, [3, 4], 1);
    go.resolve();
    await waitFor(() => record.calls.filter((call) => call.n > 2).length === 2);
    await settled(1);
    // 1 and 2 went with the server.
    expect(record.calls.map((call) => call.n)).toEqual([0, 3, 4]);
    expect(record.overlaps).toEqual([]);
  });
});

describe('a group that was destroyed', () => {
  it('STR-11 goes on where everything is settled: nothing is lost, and nothing that was settled comes again', async () => {
    const { instance, log } = await consume(1, () => sleep(10));
    await send(instance.producer, numbers(0, 49), 1);
    await waitFor(() => record.handled === 10);
    const running = record.calls.at(-1)!;
    await raw.xgroup('DESTROY', keys.stream(topic, 0), group);
    await waitFor(() => record.handled === 50);
    await settled(1);
    expect(record.disorder).toEqual([]);
    // What was being handled when the group went, or was handled before it was back, could not be settled.
    expect(record.repeated.filter((n) => n < running.n)).toEqual([]);
    expect(record.overlaps).toEqual([]);
    expect(log.all('healed')).toEqual([expect.objectContaining({ topic, partition: 0, group, reason: 'commit' })]);
  });

  it('STR-11 is made again on a quiet partition, for the next message', async () => {
    const { instance, log } = await consume(2);
    await send(instance.producer, numbers(0, 9), 2);
    await waitFor(() => record.handled === 10);
    await settled(2);
    await raw.xgroup('DESTROY', keys.stream(topic, 1), group);
    await send(instance.producer, numbers(10, 19), 2);
    await waitFor(() => record.handled === 20);
    await settled(2);
    expect(record.repeated).toEqual([]);
    expect(log.all('healed')).toEqual([expect.objectContaining({ partition: 1, reason: 'commit' })]);
  });

  it('STR-11 on the retry stream is made again, and its retries are handled', async () => {
    const { instance } = await consume(1, ({ context }, { n }) => {
      if (n >= 5 && context.attempt < 3) throw new Error('fails twice');
    });
    const { retryStream } = keys.groupPartition(topic, 0, group);
    await send(instance.producer, numbers(0, 4), 1);
    await waitFor(() => record.handled === 5);
    await settled(1);
    await raw.xgroup('DESTROY', retryStream, group);
    await send(instance.producer, numbers(5, 9), 1);
    await waitFor(() => record.calls.filter((call) => call.attempt === 3).length === 5);
    await settled(1);
    expect(record.repeated).toEqual([]);
    await waitFor(async () => (await raw.xlen(retryStream)) === 0);
  });
});

describe('a stream that was deleted', () => {
  it('STR-11 is made again, and the other partitions do not notice', async () => {
    const { instance, log } = await consume(4);
    await send(instance.producer, numbers(0, 39), 4);
    await waitFor(() => record.handled === 40);
    await settled(4);
    await raw.del(keys.stream(topic, 2));
    for (const n of numbers(40, 119)) {
      await send(instance.producer, [n], 4);
      await sleep(5);
    }
    await waitFor(() => record.handled === 120);
    await settled(4);
    expect(record.repeated).toEqual([]);
    expect(record.of(0).length + record.of(1).length + record.of(3).length).toBe(90);
    const recent = (partition: number) => record.of(partition).filter((call) => call.n >= 40);
    for (const partition of [0, 1, 3]) {
      const starts = recent(partition).map((call) => call.startedAt);
      expect(Math.max(...starts.slice(1).map((at, i) => at - starts[i]!))).toBeLessThan(1_000);
    }
    expect(log.all('healed')).toEqual([expect.objectContaining({ topic, partition: 2, group })]);
  });

  it('STR-13 and holds another type keeps no other partition from its work, is tried a few times a second, and recovers when fixed', async () => {
    const { instance, log } = await consume(4);
    await send(instance.producer, numbers(0, 7), 4);
    await waitFor(() => record.handled === 8);
    await settled(4);
    const stream = keys.stream(topic, 0);
    await raw.multi().del(stream).set(stream, 'not a stream').exec();
    await waitFor(() => log.count('fault') > 0);
    await waitFor(async () => (await readiness(instance)).status === 'down');
    expect(await readiness(instance)).toMatchObject({
      failingPartitions: [{ partition: `${topic}:p:0:${group}`, error: 'WRONGTYPE' }],
    });

    const calls = async (): Promise<number> =>
      Number(/errorstat_WRONGTYPE:count=(\d+)/.exec(await raw.info('errorstats'))?.[1] ?? 0);
    // The first tries come quickly: the pace that it settles down to is what counts.
    await waitFor(() => log.count('fault') >= 4);
    const [callsBefore, faultsBefore, since] = [await calls(), log.count('fault'), performance.now()];
    let n = 4_000;
    const late: number[] = [];
    while (performance.now() - since < 4_000) {
      const sentAt = performance.now();
      const ns = [n + 1, n + 2, n + 3];
      await send(instance.producer, ns, 4);
      await waitFor(() => ns.every((m) => record.calls.some((call) => call.n === m)));
      late.push(performance.now() - sentAt);
      n += 4;
      await sleep(50);
    }
    const seconds = (performance.now() - since) / 1_000;
    expect((log.count('fault') - faultsBefore) / seconds).toBeLessThan(4);
    expect(((await calls()) - callsBefore) / seconds).toBeLessThan(8);
    expect(Math.max(...late)).toBeLessThan(1_000);

    await raw.del(stream);
    await waitFor(async () => (await readiness(instance)).status === 'up');
    await send(instance.producer, [100_000, 100_004], 4);
    await waitFor(() => record.of(0).filter((call) => call.n >= 100_000).length === 2);
    expect(record.repeated).toEqual([]);
  });
});

describe('pending entries that are gone', () => {
  it('STR-01 STR-02 are found out without XAUTOCLAIM and without a read of history, whose replies differ from version to version', async () => {
    const { producer } = await open({ defaultPartitionCount: 1 });
    await send(producer, numbers(0, 9), 1);
    const { stream } = keys.groupPartition(topic, 0, group);
    await raw.xgroup('CREATE', stream, group, '0');
    await raw.xreadgroup('GROUP', group, 'dead-owner', 'COUNT', 8, 'STREAMS', stream, '>');
    const all = await raw.xrange(stream, '-', '+');
    await raw.xdel(stream, all[2]![0], all[5]![0]);
    await raw.xtrim(stream, 'MINID', all[1]![0]);
    const monitor = await redis.client().monitor();
    const histories: string[] = [];
    monitor.on('monitor', (_time: string, args: string[]) => {
      if (/^xreadgroup$/i.test(args[0]!) && args.at(-1) !== '>') histories.push(args.join(' '));
    });
    await raw.config('RESETSTAT');
    const heir = await open();
    const log = EventLog.of(heir.runtime.events, 'payloadMissing', 'fault');
    await heir.start({ topic, group, handle: record.handler('heir') });
    await waitFor(() => record.handled === 7);
    await settled(1);
    monitor.disconnect();
    expect(record.order()).toEqual([1, 3, 4, 6, 7, 8, 9]);
    expect(log.all('payloadMissing').flatMap(({ ids }) => ids)).toEqual([all[0]![0], all[2]![0], all[5]![0]]);
    const commands = await raw.info('commandstats');
    expect(commands).toContain('cmdstat_xclaim:');
    expect(commands).not.toContain('cmdstat_xautoclaim:');
    expect(histories).toEqual([]);
    expect(log.count('fault')).toBe(0);
  });
});

describe('faults of the connection under load', () => {
  it('CLU-03 loses, doubles and reports nothing when the scripts are flushed again and again', async () => {
    let isFixed = false;
    const { instance, log } = await consume(4, ({ context }, { n }) => {
      if (n % 25 === 7 && !isFixed) throw new DeadLetter('fails until it is fixed');
      if (n % 10 === 3 && context.attempt < 3) throw new Error('fails twice');
    });
    let flushing = true;
    const flushes = (async () => {
      while (flushing) {
        await raw.script('FLUSH');
        await sleep(20);
      }
    })();
    for (let n = 0; n < 1_000; n += 20) {
      await send(instance.producer, numbers(n, n + 19), 4);
      await sleep(30);
    }
    const { runtime } = instance;
    await waitFor(() => record.handled === 1_000);
    await waitFor(async () => (await runtime.deadLetters.size(topic)) === 40);
    await settled(4);
    const third = record.calls.filter((call) => call.attempt === 3).map((call) => call.n);
    await waitFor(() => record.calls.filter((call) => call.attempt === 3).length === 100, {
      describe: `all retries, of which came ${third.length}`,
    });
    expect(record.repeated).toEqual([]);
    expect(log.count('dead')).toBe(40);
    isFixed = true;
    const before = record.calls.length;
    expect(await runtime.deadLetters.replayAll(topic)).toMatchObject({ replayed: 40 });
    await waitFor(() => record.calls.length === before + 40);
    await settled(4);
    flushing = false;
    await flushes;
    expect(await runtime.deadLetters.size(topic)).toBe(0);
    expect(record.overlaps).toEqual([]);
    expect(log.all('fault')).toEqual([]);
    expect(log.count('leaseLost') + log.count('ledgerRepaired') + log.count('healed')).toBe(0);
  });

  it('handles each message once when all its connections are killed again and again', async () => {
    const { instance, log } = await consume(4);
    const accepted: number[] = [];
    let killing = true;
    let kills = 0;
    const kill = (async () => {
      while (killing) {
        await raw.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        await raw.call('CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes');
        kills++;
        await sleep(300);
      }
    })();
    for (let n = 0; n < 1_000; n += 20) {
      const messages = numbers(n, n + 19).map((m) => ({ payload: { n: m }, key: `key-${m % 10}` }));
      const { results } = await instance.producer.sendBatch(topic, messages);
      for (const [i, result] of results.entries()) if (result.status === 'sent') accepted.push(n + i);
      await sleep(20);
    }
    killing = false;
    await kill;
    expect(kills).toBeGreaterThan(3);
    expect(accepted.length).toBeGreaterThan(500);
    await waitFor(() => {
      const handled = new Set(record.calls.map((call) => call.n));
      return accepted.every((n) => handled.has(n));
    });
    await settled(4);
    expect(record.repeated).toEqual([]);
    expect(record.disorder).toEqual([]);
    expect(record.overlaps).toEqual([]);
    expect(log.count('leaseLost')).toBe(0);
  });
});

describe('the beginning of a group', () => {
  it('STR-14 is the beginning of the topic: what was sent before its first start is handled, by a later group too', async () => {
    const { producer } = await open();
    await producer.sendBatch(
      topic,
      numbers(0, 9).map((n) => ({ payload: { n } })),
    );
    await consume(4);
    await waitFor(() => record.handled === 10);
    const second = new HandlingRecord();
    const later = await open();
    await later.start({ topic, group: uniqueName('group'), handle: second.handler('later') });
    await waitFor(() => second.handled === 10);
    expect(second.repeated).toEqual([]);
  });

  it("STR-14 is the moment of its first start with startFrom 'latest', and what comes while it is away is not missed", async () => {
    const { producer } = await open();
    await producer.sendBatch(
      topic,
      numbers(0, 9).map((n) => ({ payload: { n }, partition: n % 4 })),
    );
    const { instance } = await consume(4, undefined, { startFrom: 'latest' });
    await waitFor(async () => {
      const all = await Promise.all([0, 1, 2, 3].map((p) => raw.xinfo('GROUPS', keys.stream(topic, p))));
      return all.every((groups) => (groups as unknown[]).length === 1);
    });
    await producer.sendBatch(
      topic,
      numbers(10, 19).map((n) => ({ payload: { n }, partition: n % 4 })),
    );
    await waitFor(() => record.handled === 10);
    await instance.close();
    await producer.sendBatch(
      topic,
      numbers(20, 29).map((n) => ({ payload: { n }, partition: n % 4 })),
    );
    // Also a partition whose group and position are gone goes on from there, and not from the end.
    await raw.xgroup('DESTROY', keys.stream(topic, 3), group);
    await raw.hdel(keys.partition(topic, 3).commit, group);
    await consume(4, undefined, { startFrom: 'latest' });
    await waitFor(() => record.handled === 20);
    await settled(4);
    expect(record.order().toSorted((a, b) => a - b)).toEqual(numbers(10, 29));
    expect(record.repeated.every((n) => n % 4 === 3 && n < 20)).toBe(true);
  });
});
