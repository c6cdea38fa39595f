import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { dropConsumer } from '../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import type { ChildBehaviour } from '../support/child-protocol.js';
import { Child } from '../support/child.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { deferred, waitFor } from '../support/wait-for.js';

const keys = new Keys('streaming:mq', 'stream:topic');

/** A dead owner is noticed within two seconds. */
const short: MqOptions = {
  leaseTtlSeconds: 2,
  renewIntervalSec: 0.5,
  rebalanceIntervalSec: 1,
  consumerPollTimeoutMs: 200,
};
const DRAIN_MS = 1_000;
/** What a stop may need on top of `drainTimeoutMs` whatever Redis does: with the default of 20 s it ends before Kubernetes kills. */
const REST_MS = 4_000;
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

let redis: TestRedis;
let raw: Redis;
let topic: string;
let group: string;
let record: HandlingRecord;
const instances: TestInstance[] = [];
const children: Child[] = [];
/** Loading takes its time: begun before the first test, and awaited by those that need them. */
const loading: Promise<Child>[] = [];

beforeAll(async () => {
  for (let i = 0; i < 4; i++) loading.push(i < 2 ? Child.load() : loading[i - 2]!.then(() => Child.load()));
  redis = await startRedis({ aof: true });
  raw = redis.client();
});
afterAll(async () => {
  await Promise.all(loading.map(async (child) => (await child).kill()));
  await redis.stop();
});
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill()));
  await Promise.all(instances.splice(0).map((instance) => instance.close()));
});

async function open(options: MqOptions = {}): Promise<TestInstance> {
  const instance = await TestInstance.open({ redis: redis.url, drainTimeoutMs: DRAIN_MS, ...short, ...options });
  instances.push(instance);
  return instance;
}

/** An instance that owns the partitions of the topic, which are made with it. */
async function consume(
  work?: Parameters<HandlingRecord['handler']>[1],
  options: MqOptions = {},
): Promise<TestInstance> {
  const partitions = options.defaultPartitionCount ?? 1;
  const instance = await open({ failFast: true, defaultPartitionCount: partitions, ...options });
  const log = EventLog.of(instance.runtime.events, 'leaseAcquired');
  await instance.start({ topic, group, handle: record.handler('owner', work) });
  await waitFor(() => log.count('leaseAcquired') === partitions);
  return instance;
}

/** The same in a process of its own. */
async function begin(behaviour: ChildBehaviour, options: MqOptions = {}): Promise<Child> {
  const child = await loading.shift()!;
  children.push(child);
  const all = { redis: redis.url, defaultPartitionCount: 1, drainTimeoutMs: DRAIN_MS, ...short, ...options };
  await child.begin({ name: 'owner', options: all, handlers: [{ topic, group, behaviour }] }, record);
  await waitFor(() => child.events.count('leaseAcquired') === 1);
  return child;
}

async function send(producer: TestInstance['producer'], ns: readonly number[]): Promise<void> {
  for (const n of ns) await producer.send(topic, { n });
}

async function closeTimed(instance: TestInstance): Promise<number> {
  const since = performance.now();
  await instance.close();
  return performance.now() - since;
}

const pending = async (): Promise<number> => ((await raw.xpending(keys.stream(topic, 0), group)) as [number])[0];

describeWithServer('a shutdown', () => {
  it('DEL-27 lets the running handler finish, and the buffered messages begin elsewhere within a second, none twice', async () => {
    const owner = await begin({ handleMs: 1_200 }, { drainTimeoutMs: 5_000 });
    const heir = await open({ failFast: true });
    await heir.start({ topic, group, handle: record.handler('heir') });
    await send(heir.producer, numbers(0, 10));
    await waitFor(async () => record.by('owner').length === 1 && (await pending()) === 11);
    expect(await owner.terminate()).toBe(true);
    await waitFor(() => record.handled === 11);
    const [running] = record.by('owner');
    const [first] = record.by('heir');
    expect(record.by('owner')).toHaveLength(1);
    expect(first!.startedAt - running!.endedAt!).toBeLessThan(1_000);
    expect(owner.closedAfterMs).toBeLessThan(1_200 + 1_500);
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 10));
    expect(record.overlaps).toEqual([]);
    expect(owner.events.count('leaseLost')).toBe(0);
    await waitFor(async () => (await pending()) === 0);
  });

  it('DEL-27 ends at its limit although a handler does not, and the message is handled elsewhere', async () => {
    const owner = await begin({ slowOn: { 0: 60_000 } });
    const heir = await open({ failFast: true });
    await heir.start({ topic, group, handle: record.handler('heir') });
    await send(heir.producer, [0, 1]);
    await waitFor(() => record.by('owner').length === 1);
    expect(await owner.terminate()).toBe(true);
    expect(owner.closedAfterMs).toBeGreaterThanOrEqual(DRAIN_MS);
    expect(owner.closedAfterMs).toBeLessThan(DRAIN_MS + 2_000);
    await waitFor(() => record.by('heir').length === 2);
    expect(record.by('heir').map((call) => [call.n, call.attempt])).toEqual([
      [0, 1],
      [1, 1],
    ]);
  });

  it('tells a handler at the limit through its signal, and settles and releases when it heeds that', async () => {
    let reason: unknown;
    const owner = await consume(async ({ context }) => {
      await new Promise((resolve) => context.signal.addEventListener('abort', resolve));
      reason = context.signal.reason;
      throw new Error('cut off');
    });
    const log = EventLog.of(owner.runtime.events, 'retried', 'leaseReleased');
    await send(owner.producer, [0]);
    await waitFor(() => record.calls.length === 1);
    const tookMs = await closeTimed(owner);
    expect(tookMs).toBeGreaterThanOrEqual(DRAIN_MS - 10);
    expect(tookMs).toBeLessThan(DRAIN_MS + 1_000);
    expect(reason).toBeInstanceOf(Error);
    expect([log.count('retried'), log.count('leaseReleased')]).toEqual([0, 1]);
    expect(await pending()).toBe(1);
  });

  it('STR-08 leaves what it had fetched and not handled to whoever comes, and only then goes as a consumer', async () => {
    const go = deferred();
    const owner = await consume((_, { n }) => (n === 0 ? go.promise : undefined));
    await send(owner.producer, numbers(0, 5));
    await waitFor(async () => record.calls.length === 1 && (await pending()) === 6);
    await raw.script('LOAD', dropConsumer.lua);
    const closed = owner.close();
    go.resolve();
    await closed;
    expect(await pending()).toBe(5);
    const next = await consume();
    await waitFor(() => record.handled === 6);
    await waitFor(async () => (await pending()) === 0);
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 5));
    await next.close();
  });

  it('CONN-10 does not wait for a read that blocks, and leaves no lease, no member and no consumer', async () => {
    const owner = await begin({}, { leaseTtlSeconds: 15, renewIntervalSec: 3, consumerPollTimeoutMs: 7_000 });
    const { stream, lease } = keys.groupPartition(topic, 0, group);
    await waitFor(async () =>
      ((await raw.client('LIST')) as string).split('\n').some((line) => / flags=\S*b/.test(line)),
    );
    expect(await owner.terminate()).toBe(true);
    expect(owner.closedAfterMs).toBeLessThan(1_500);
    expect(await raw.exists(lease, keys.members(group).members, keys.members(group).info)).toBe(0);
    expect(await raw.xinfo('CONSUMERS', stream, group)).toEqual([]);
  });

  it('leaves no consumer behind on a server that has forgotten its scripts', async () => {
    const owner = await consume();
    await send(owner.producer, numbers(0, 4));
    await waitFor(async () => record.handled === 5 && (await pending()) === 0);
    const { stream, retryStream } = keys.groupPartition(topic, 0, group);
    expect(await raw.xinfo('CONSUMERS', stream, group)).toHaveLength(1);
    await raw.script('FLUSH');
    await owner.close();
    expect(await raw.xinfo('CONSUMERS', stream, group)).toEqual([]);
    expect(await raw.xinfo('CONSUMERS', retryStream, group)).toEqual([]);
  });

  it('is the same whether it is asked for once, twice or before the start, and nothing starts after it', async () => {
    const never = await open();
    expect(await closeTimed(never)).toBeLessThan(500);

    const stopped = await open({ failFast: true });
    const log = EventLog.of(stopped.runtime.events, 'leaseAcquired', 'connection');
    await stopped.runtime.stop();
    await stopped.start({ topic, group, handle: record.handler('stopped') });
    await stopped.close();

    const owner = await consume(() => sleep(100));
    await send(owner.producer, [0]);
    await waitFor(() => record.calls.length === 1);
    await Promise.all([owner.runtime.stop(), owner.close(), owner.close()]);
    expect(record.calls[0]!.endedAt).toBeDefined();
    expect(await pending()).toBe(0);
    await owner.close();
    await owner.runtime.stop();
    expect(log.count('leaseAcquired')).toBe(0);
  });
});

describeWithServer('CONN-11 a shutdown without Redis', () => {
  it('ends when Redis was never there', async () => {
    const other = await startRedis();
    await other.kill();
    const instance = await open({ redis: other.url });
    const log = EventLog.of(instance.runtime.events, 'connection', 'fault');
    await instance.start({ topic, group, handle: record.handler('owner') });
    await waitFor(() => log.count('connection') > 2);
    expect(await closeTimed(instance)).toBeLessThan(DRAIN_MS + REST_MS);
    const said = log.count('connection') + log.count('fault');
    await sleep(2_500);
    expect(log.count('connection') + log.count('fault')).toBe(said);
    await other.stop();
  });

  it('ends when Redis is gone by then, with messages fetched and a handler running', async () => {
    const instance = await consume(() => sleep(300), { defaultPartitionCount: 2 });
    await send(instance.producer, numbers(0, 19));
    await waitFor(() => record.calls.length >= 2);
    await redis.kill();
    expect(await closeTimed(instance)).toBeLessThan(DRAIN_MS + REST_MS);
    const started = record.calls.length;
    await redis.restart();
    const next = await open({ failFast: true });
    await next.start({ topic, group, handle: record.handler('next') });
    await waitFor(() => record.handled === 20);
    expect(record.by('owner')).toHaveLength(started);
    expect(record.overlaps).toEqual([]);
  });

  it('ends when Redis stands still, and then nothing keeps the process alive', async () => {
    const owner = await begin({ handleMs: 100 });
    const { producer } = await open({ failFast: true });
    await send(producer, numbers(0, 9));
    await waitFor(() => record.calls.length >= 2);
    redis.pause();
    try {
      const since = performance.now();
      expect(await owner.close()).toBe(true);
      expect(owner.closedAfterMs).toBeLessThan(DRAIN_MS + REST_MS);
      expect(performance.now() - since).toBeLessThan(DRAIN_MS + REST_MS + 1_000);
    } finally {
      redis.resume();
    }
  });

  it('ends when Redis goes in the middle of it and comes back', async () => {
    const go = deferred();
    const instance = await consume(() => go.promise, { drainTimeoutMs: 3_000 });
    await send(instance.producer, [0]);
    await waitFor(() => record.calls.length === 1);
    const closed = closeTimed(instance);
    await redis.kill();
    go.resolve();
    await sleep(300);
    await redis.restart();
    expect(await closed).toBeLessThan(3_000 + REST_MS);
    // Settled after the return or not, it is not lost.
    const next = await open({ failFast: true });
    await next.start({ topic, group, handle: record.handler('next') });
    await send(next.producer, [1]);
    await waitFor(() => record.handled === 2);
    await waitFor(async () => (await pending()) === 0);
  });
});
