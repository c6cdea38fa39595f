import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Registry } from 'prom-client';
import { systemClock, type Clock } from '../../libs/redis-streams-mq/src/core/clock.js';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { settle } from '../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { blockedReader } from '../support/blocked-reader.js';
import type { ChildBehaviour } from '../support/child-protocol.js';
import { Child } from '../support/child.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { mentions, startProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { deferred, waitFor } from '../support/wait-for.js';

const keys = new Keys('streaming:mq', 'stream:topic');

/** A dead owner is noticed within two seconds. */
const short: MqOptions = {
  leaseTtlSeconds: 2,
  renewIntervalSec: 0.5,
  rebalanceIntervalSec: 1,
  consumerPollTimeoutMs: 200,
};
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

let redis: TestRedis;
let raw: Redis;
let producer: TestInstance['producer'];
let topic: string;
let group: string;
let stream: string;
let lease: string;
let record: HandlingRecord;
const instances: TestInstance[] = [];
const children: Child[] = [];
/** Loading takes its time: begun before the first test, and awaited by those that need them. */
const loading: Promise<Child>[] = [];

beforeAll(async () => {
  for (let i = 0; i < 4; i++) loading.push(i < 2 ? Child.load() : loading[i - 2]!.then(() => Child.load()));
  redis = await startRedis();
  raw = redis.client();
});
afterAll(async () => {
  await Promise.all(loading.map(async (child) => (await child).kill()));
  await redis.stop();
});
beforeEach(async () => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  ({ stream, lease } = keys.groupPartition(topic, 0, group));
  record = new HandlingRecord();
  const instance = await open();
  producer = instance.producer;
  await instance.runtime.admin.createTopic(topic, { partitionCount: 1 });
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill()));
  await Promise.all(instances.splice(0).map((instance) => instance.close()));
});

async function open(options: MqOptions = {}, deps: { clock?: Clock; registry?: Registry } = {}): Promise<TestInstance> {
  const instance = await TestInstance.open({ redis: redis.url, failFast: true, ...short, ...options }, deps);
  instances.push(instance);
  return instance;
}

/** An instance in a process of its own, once it owns the partition. */
async function begin(name: string, behaviour: ChildBehaviour, options: MqOptions = {}): Promise<Child> {
  const child = await loading.shift()!;
  children.push(child);
  const setup = { name, options: { redis: redis.url, ...short, ...options }, handlers: [{ topic, group, behaviour }] };
  await child.begin(setup, record);
  await waitFor(() => child.events.count('leaseAcquired') === 1);
  return child;
}

async function send(...ns: number[]): Promise<void> {
  for (const n of ns) await producer.send(topic, { n }, { key: 'key' });
}

async function pendingIds(): Promise<string[]> {
  return ((await raw.xpending(stream, group, '-', '+', 1_000)) as [string][]).map(([id]) => id);
}

const settled = (): Promise<boolean> => waitFor(async () => (await pendingIds()).length === 0);

/** Adds an entry and reads it in the same moment, as a former owner whose read comes late: nobody else can be first. */
async function sendAndTake(target: string, ns: readonly number[], before: readonly string[] = []): Promise<string[]> {
  const transaction = raw.multi();
  for (const n of ns) {
    const eventId = randomBytes(16).toString('base64url');
    transaction.xadd(target, '*', ...before, 'payload', JSON.stringify({ n }), 'key', 'key', 'eventId', eventId);
  }
  transaction.xreadgroup('GROUP', group, 'former-owner', 'COUNT', 100, 'STREAMS', target, '>');
  const replies = (await transaction.exec())!;
  const [error, read] = replies.at(-1)!;
  if (error) throw error;
  const [[, entries]] = read as [[string, [string, string[]][]]];
  return entries.map(([id]) => id);
}

describe('an owner that was paused past its lease', () => {
  it('DEL-01 has its late acknowledgement refused, starts nothing more and says that the lease is lost', async () => {
    // Long enough for the signal to meet the call that it was sent for.
    const paused = await begin('paused', { handleMs: 400 });
    const heir = await open();
    const resumed = deferred();
    await heir.start({
      topic,
      group,
      handle: record.handler('heir', (_, { n }) => (n === 5 ? resumed.promise : undefined)),
    });
    await send(...numbers(0, 19));
    await waitFor(() => record.by('paused').some((call) => call.n === 5));
    paused.pause();
    const late = record.calls.find((call) => call.n === 5)!;
    await waitFor(() => record.by('heir').length === 1);
    paused.resume();
    await waitFor(() => late.endedAt !== undefined && paused.events.count('leaseLost') === 1);
    // The heir's own call for it is still under way, so an acknowledgement could only be the late one.
    expect(await pendingIds()).toContain(late.id);
    await send(...numbers(20, 24));
    resumed.resolve();
    await waitFor(() => record.handled === 25);
    await settled();

    expect(paused.events.all('leaseLost')).toEqual([
      { topic, partition: 0, group, epoch: late.epoch, reason: expect.stringMatching(/expired|taken/) },
    ]);
    expect(record.by('paused').map((call) => call.n)).toEqual(numbers(0, 5));
    expect(record.by('heir').map((call) => call.n)).toEqual(numbers(5, 24));
    expect(record.by('heir').every((call) => call.attempt === 1 && call.epoch > late.epoch)).toBe(true);
    expect(await paused.terminate()).toBe(true);
  });

  it('DEL-01 has its late retry refused, also when its own event loop was what stood still', async () => {
    const busy = await begin('busy', { handleMs: 50, spinOn: { 3: 3_500 }, failOn: [3] });
    const heir = await open();
    await heir.start({ topic, group, handle: record.handler('heir', () => sleep(20)) });
    await send(...numbers(0, 9));
    await waitFor(() => busy.events.count('leaseLost') === 1, { timeoutMs: 15_000 });
    await waitFor(() => record.handled === 10 && record.calls.every((call) => call.endedAt !== undefined));
    await settled();
    expect(record.by('busy').map((call) => call.n)).toEqual(numbers(0, 3));
    expect(record.by('heir').map((call) => [call.n, call.attempt])).toEqual(numbers(3, 9).map((n) => [n, 1]));
    expect(busy.events.count('retried')).toBe(0);
    const { retry, retryStream } = keys.groupPartition(topic, 0, group);
    expect([await raw.zcard(retry), await raw.xlen(retryStream)]).toEqual([0, 0]);
  });

  it('starts none of what its late read took away: the heir has it, in its place and in order', async () => {
    const paused = await begin('paused', {}, { consumerPollTimeoutMs: 900 });
    await blockedReader(raw, group);
    paused.pause();
    await send(...numbers(0, 9));
    // Redis has answered the read that was waiting, to a process that cannot hear it.
    const [taken] = await waitFor(async () => (await pendingIds()).length > 0 && pendingIds());
    const heir = await open();
    const log = EventLog.of(heir.runtime.events, 'takenOver');
    await heir.start({ topic, group, handle: record.handler('heir') });
    await waitFor(() => record.handled === 10);
    expect(record.calls[0]!.id).toBe(taken);
    paused.resume();
    await waitFor(() => paused.events.count('leaseLost') === 1);
    await send(10);
    await waitFor(() => record.handled === 11);
    await settled();
    expect(record.by('heir').map((call) => call.n)).toEqual(numbers(0, 10));
    expect(record.by('paused')).toEqual([]);
    expect(log.count('takenOver')).toBe(1);
  });

  it('DEL-04 neither overwrites nor deletes the lease of its successor when it is stopped in that moment', async () => {
    const paused = await begin('paused', {});
    const held = await raw.get(lease);
    paused.pause();
    const heir = await open();
    await heir.start({ topic, group, handle: record.handler('heir') });
    const successor = await waitFor(async () => {
      const token = await raw.get(lease);
      return token !== held && token;
    });
    let watching = true;
    const values = new Set<string | null>();
    const watch = (async () => {
      while (watching) {
        values.add(await raw.get(lease));
        await sleep(5);
      }
    })();
    paused.resume();
    expect(await paused.terminate()).toBe(true);
    const third = await open();
    const log = EventLog.of(third.runtime.events, 'leaseAcquired');
    await third.start({ topic, group, handle: record.handler('third') });
    await waitFor(async () => (await raw.zcard(keys.members(group).members)) === 2);
    await send(...numbers(0, 9));
    await waitFor(() => record.handled === 10);
    watching = false;
    await watch;
    expect([...values]).toEqual([successor]);
    expect(log.count('leaseAcquired')).toBe(0);
    expect(record.by('heir')).toHaveLength(10);
  });
});

describe('a process that stood still while a handler ran', () => {
  it('DEL-01 looks at the time before it starts the next message, whatever its timers have told it', async () => {
    let stoodStillMs = 0;
    const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + stoodStillMs };
    const registry = new Registry();
    const owner = await open({ renewIntervalSec: 0.9 }, { clock, registry });
    const log = EventLog.of(owner.runtime.events, 'leaseLost');
    const go = deferred();
    await owner.start({
      topic,
      group,
      handle: record.handler('owner', async (_, { n }) => {
        if (n > 0) return;
        await go.promise;
        stoodStillMs = 10_000;
      }),
    });
    await send(0, 1, 2);
    await waitFor(async () => record.calls.length === 1 && (await pendingIds()).length === 3);
    go.resolve();
    await waitFor(() => record.handled === 3);
    await settled();
    const [first, ...rest] = record.calls;
    expect(log.all('leaseLost')).toEqual([{ topic, partition: 0, group, epoch: first!.epoch, reason: 'expired' }]);
    const lost = await registry.getSingleMetric('redis_streaming_mq_lease_lost_total')!.get();
    expect(lost.values).toMatchObject([{ labels: { topic, partition: '0', group, reason: 'expired' }, value: 1 }]);
    expect(rest.every((call) => call.epoch > first!.epoch)).toBe(true);
    expect(record.disorder).toEqual([]);
  });
});

describe('a lease that another holds by the time a handler ends', () => {
  it('DEL-04 is not deleted by the release of an owner that has not noticed', async () => {
    const owner = await open({ renewIntervalSec: 0.9 });
    const log = EventLog.of(owner.runtime.events, 'leaseReleased');
    await owner.start({ topic, group, handle: record.handler('owner') });
    await blockedReader(raw, group);
    await raw.set(lease, 'somebody#1', 'PX', 60_000);
    await owner.close();
    expect(await raw.get(lease)).toBe('somebody#1');
    expect(log.count('leaseReleased')).toBe(0);
  });

  it.each([
    ['acknowledgement', () => undefined],
    [
      'retry',
      () => {
        throw new Error('late');
      },
    ],
  ])('has the %s refused by Redis, with nothing changed', async (_, end) => {
    const owner = await open({ renewIntervalSec: 0.9 });
    const log = EventLog.of(owner.runtime.events, 'leaseLost', 'retried', 'acked', 'dead');
    const stolen = deferred();
    const handle = record.handler('owner', async () => {
      await stolen.promise;
      end();
    });
    await owner.start({ topic, group, handle });
    await send(0);
    await waitFor(() => record.calls.length === 1);
    await raw.set(lease, 'somebody#1', 'PX', 60_000);
    stolen.resolve();
    await waitFor(() => log.count('leaseLost') === 1);
    expect(log.all('leaseLost')[0]).toMatchObject({ reason: 'taken' });
    expect(await pendingIds()).toContain(record.calls[0]!.id);
    const { retry, dlq } = keys.groupPartition(topic, 0, group);
    expect(await raw.exists(retry, dlq)).toBe(0);
    expect(log.count('acked') + log.count('retried') + log.count('dead')).toBe(0);
    expect(record.calls).toHaveLength(1);
  });
});

describe('entries that someone else took', () => {
  it('are brought back before anything behind them is handled', async () => {
    const owner = await open();
    const log = EventLog.of(owner.runtime.events, 'ledgerRepaired');
    await owner.start({ topic, group, handle: record.handler('owner') });
    await send(0);
    await waitFor(() => record.handled === 1);
    await blockedReader(raw, group);
    const next = sendAndTake(stream, [1, 2, 3]);
    await send(4, 5);
    await next;
    await waitFor(() => record.handled === 6);
    await settled();
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 5));
    expect(log.all('ledgerRepaired').reduce((sum, event) => sum + event.brought, 0)).toBe(3);
  });

  it('are brought back between what is buffered and what comes, while a handler runs', async () => {
    const owner = await open();
    const go = deferred();
    await owner.start({
      topic,
      group,
      handle: record.handler('owner', (_, { n }) => (n === 0 ? go.promise : undefined)),
      options: { batchCount: 4 },
    });
    await send(...numbers(0, 2));
    await waitFor(() => record.calls.length === 1);
    await waitFor(async () => (await pendingIds()).length === 3);
    await blockedReader(raw, group);
    await sendAndTake(stream, [3, 4]);
    await send(...numbers(5, 30));
    go.resolve();
    await waitFor(() => record.handled === 31);
    await settled();
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 30));
    expect(record.overlaps).toEqual([]);
  });

  it('are brought back with full reads under way, in order and once', async () => {
    const owner = await open();
    const log = EventLog.of(owner.runtime.events, 'ledgerRepaired');
    await owner.start({ topic, group, handle: record.handler('owner'), options: { batchCount: 8 } });
    await blockedReader(raw, group);
    let n = 0;
    let taken = 0;
    for (let round = 0; round < 40; round++) {
      const batch = numbers(n, n + 24);
      await producer.sendBatch(
        topic,
        batch.map((m) => ({ payload: { n: m }, key: 'key' })),
      );
      n += 25;
      taken += (await sendAndTake(stream, [n])).length;
      n++;
    }
    await waitFor(() => record.handled === n);
    await settled();
    expect(record.disorder).toEqual([]);
    expect(record.repeated).toEqual([]);
    expect(log.all('ledgerRepaired').reduce((sum, event) => sum + event.brought, 0)).toBe(taken);
  });

  it('are brought back from the retry stream too', async () => {
    const owner = await open();
    await owner.start({ topic, group, handle: record.handler('owner') });
    await send(0);
    await waitFor(() => record.handled === 1);
    const { retryStream } = keys.groupPartition(topic, 0, group);
    await sendAndTake(retryStream, [1], ['origin', record.calls[0]!.id.replace(/\d+$/, '7'), 'attempt', '2']);
    await send(2);
    await waitFor(() => record.handled === 3);
    await settled();
    expect(record.calls.map((call) => [call.n, call.attempt])).toEqual([
      [0, 1],
      [1, 3],
      [2, 1],
    ]);
    await waitFor(async () => (await raw.xlen(retryStream)) === 0);
  });

  it('are brought back to a partition on which nothing else happens', async () => {
    const owner = await open();
    await owner.start({ topic, group, handle: record.handler('owner') });
    await blockedReader(raw, group);
    await sendAndTake(stream, [0]);
    const takenAt = performance.now();
    await waitFor(() => record.handled === 1);
    expect(performance.now() - takenAt).toBeLessThan(1_500);
    await settled();
  });

  it('are handled once when they were claimed out of the buffer by hand', async () => {
    const owner = await open();
    const go = deferred();
    await owner.start({
      topic,
      group,
      handle: record.handler('owner', (_, { n }) => (n === 0 ? go.promise : undefined)),
    });
    await send(...numbers(0, 4));
    const ids = await waitFor(async () => {
      const pending = await pendingIds();
      return pending.length === 5 && pending;
    });
    await raw.xclaim(stream, group, 'somebody', 0, ids[0]!, ids[2]!, ids[4]!);
    go.resolve();
    await waitFor(() => record.handled === 5);
    await settled();
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 4));
  });
});

describe('a read whose reply is lost', () => {
  let proxy: TcpProxy;
  beforeEach(async () => {
    proxy = await startProxy(redis.port);
  });
  afterEach(() => proxy.stop());

  it('costs neither a message nor their order, and nothing is handled twice', async () => {
    const owner = await open({ redis: proxy.url });
    const log = EventLog.of(owner.runtime.events, 'ledgerRepaired', 'leaseLost');
    await owner.start({ topic, group, handle: record.handler('owner') });
    for (let round = 0; round < 5; round++) {
      await send(4 * round);
      await waitFor(() => record.handled === 4 * round + 1);
      const dropped = proxy.dropNextReplyMatching(mentions('xreadgroup', 'block'));
      // A read may have been under way already: its answer comes, and the next is lost.
      await send(4 * round + 1);
      await waitFor(async () => (await blockedReader(raw, group)) && record.handled >= 4 * round + 1);
      await send(4 * round + 2, 4 * round + 3);
      await dropped;
      await waitFor(() => record.handled === 4 * round + 4);
    }
    await settled();
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 19));
    expect(log.count('leaseLost')).toBe(0);
  });

  it('costs neither a message nor their order while full reads follow each other', async () => {
    const owner = await open({ redis: proxy.url });
    const log = EventLog.of(owner.runtime.events, 'ledgerRepaired', 'leaseLost');
    await owner.start({ topic, group, handle: record.handler('owner'), options: { batchCount: 10 } });
    const isHot = (request: Buffer): boolean => {
      const text = request.toString('latin1').toLowerCase();
      return text.includes('xreadgroup') && !text.includes('block');
    };
    let lost = 0;
    for (let round = 0; round < 6; round++) {
      const dropped = proxy.dropNextReplyMatching(isHot).then(() => lost++);
      const batch = numbers(round * 300, round * 300 + 299);
      await producer.sendBatch(
        topic,
        batch.map((n) => ({ payload: { n }, key: 'key' })),
      );
      await dropped;
      await waitFor(() => record.handled === (round + 1) * 300);
    }
    await settled();
    expect(lost).toBe(6);
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 1_799));
    expect(log.count('ledgerRepaired')).toBeGreaterThan(0);
    expect(log.count('leaseLost')).toBe(0);
  });

  it('costs nothing either when it is the reply of a settle', async () => {
    const owner = await open({ redis: proxy.url });
    await owner.start({ topic, group, handle: record.handler('owner') });
    for (let round = 0; round < 5; round++) {
      const dropped = proxy.dropNextReplyMatching(mentions(settle.sha));
      await send(3 * round, 3 * round + 1, 3 * round + 2);
      await dropped;
      await waitFor(() => record.handled === 3 * round + 3);
    }
    await settled();
    expect(record.calls.map((call) => call.n)).toEqual(numbers(0, 14));
  });
});

describe('DEL-26 an entry that is gone when its handler ends', () => {
  const ends: [string, () => Promise<unknown>][] = [
    ['was acknowledged by hand', () => raw.xack(stream, group, record.calls[0]!.id)],
    ['was deleted', () => raw.xdel(stream, record.calls[0]!.id)],
    ['went with its stream', () => raw.del(stream)],
  ];

  it.each(ends)('leaves no trace when it %s: what comes is handled, and the shutdown is quick', async (_, take) => {
    const owner = await open();
    const log = EventLog.of(owner.runtime.events, 'dead', 'retried');
    const go = deferred();
    await owner.start({
      topic,
      group,
      handle: record.handler('owner', (__, { n }) => (n === 0 ? go.promise : undefined)),
    });
    await send(0);
    await waitFor(() => record.calls.length === 1);
    await take();
    go.resolve();
    await send(1, 2);
    await waitFor(() => record.handled === 3);
    await settled();
    expect(record.calls.map((call) => call.n)).toEqual([0, 1, 2]);
    expect(log.count('dead') + log.count('retried')).toBe(0);
    await waitFor(async () => {
      const health = await owner.runtime.health.readiness();
      return health.redisStreamsMq!.status === 'up';
    });
    const closingAt = performance.now();
    await owner.close();
    expect(performance.now() - closingAt).toBeLessThan(1_000);
    expect(await raw.get(lease)).toBeNull();
  });

  it('goes on after an acknowledgement that Redis refused once', async () => {
    const proxy = await startProxy(redis.port);
    const owner = await open({ redis: proxy.url });
    await owner.start({ topic, group, handle: record.handler('owner') });
    const refused = proxy.answerNextMatching(mentions(settle.sha), '-NOPERM this user has no permissions\r\n');
    await send(0, 1, 2);
    await refused;
    await waitFor(() => record.handled === 3);
    await send(3);
    await waitFor(() => record.handled === 4);
    await settled();
    expect(record.calls.map((call) => call.n)).toEqual([0, 1, 2, 3]);
    await owner.close();
    await proxy.stop();
  });
});
