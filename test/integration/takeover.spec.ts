import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { ChildBehaviour } from '../support/child-protocol.js';
import { Child } from '../support/child.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord, nowMs } from '../support/handling-record.js';
import { startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { deferred, waitFor } from '../support/wait-for.js';

const keys = new Keys('streaming:mq', 'stream:topic');

/** A dead owner is noticed within two seconds. */
const short: MqOptions = {
  leaseTtlSeconds: 2,
  renewIntervalSec: 0.5,
  rebalanceIntervalSec: 1,
  consumerPollTimeoutMs: 200,
};
/** Retried and dead-lettered by the test's deadline only if that is what the queue means to do. */
const FOREVER_MS = 60_000;

let redis: TestRedis;
let raw: Redis;
let topic: string;
let group: string;
let record: HandlingRecord;
const instances: TestInstance[] = [];
/** Loading takes its time: begun before the first test, and awaited by those that need them. */
const loading: Promise<Child>[] = [];
const children: Child[] = [];

beforeAll(async () => {
  for (let i = 0; i < 6; i++) loading.push(i < 2 ? Child.load() : loading[i - 2]!.then(() => Child.load()));
  redis = await startRedis();
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
  const instance = await TestInstance.open({ redis: redis.url, failFast: true, ...short, ...options });
  instances.push(instance);
  return instance;
}

async function begin(name: string, behaviour: ChildBehaviour, options: MqOptions = {}): Promise<Child> {
  const child = await loading.shift()!;
  children.push(child);
  await child.begin(
    { name, options: { redis: redis.url, ...short, ...options }, handlers: [{ topic, group, behaviour }] },
    record,
  );
  return child;
}

async function makeTopic(partitionCount: number): Promise<TestInstance['producer']> {
  const { runtime } = await open();
  await runtime.admin.createTopic(topic, { partitionCount });
  return runtime.producer;
}

async function pending(partition: number): Promise<number> {
  const [count] = (await raw.xpending(keys.stream(topic, partition), group)) as [number];
  return count;
}

/** What a dead owner leaves behind: `count` entries that it had read and not settled. */
async function leavePending(count: number): Promise<string[]> {
  const stream = keys.stream(topic, 0);
  await raw.xgroup('CREATE', stream, group, '0');
  const reply = await raw.xreadgroup('GROUP', group, 'dead-owner', 'COUNT', count, 'STREAMS', stream, '>');
  const [[, entries]] = reply as [[string, [string, string[]][]]];
  expect(entries).toHaveLength(count);
  return entries.map(([id]) => id);
}

describe('take-over of what an owner left behind', () => {
  it('begins with the retry stream, and the attempts made still count', async () => {
    const producer = await makeTopic(1);
    for (let n = 0; n < 6; n++) await producer.send(topic, { n });
    const [first, second] = await leavePending(4);
    const { retryStream, stream } = keys.groupPartition(topic, 0, group);
    // As the mover writes them: the first two had failed twice and once, and were about to be handled again.
    for (const [id, attempts] of [
      [first!, 2],
      [second!, 1],
    ] as const) {
      const [[, fields]] = (await raw.xrange(stream, id, id)) as [[string, string[]]];
      await raw.xack(stream, group, id);
      await raw.xadd(retryStream, '*', 'origin', id, 'attempt', attempts, ...fields);
    }
    await raw.xgroup('CREATE', retryStream, group, '0');
    await raw.xreadgroup('GROUP', group, 'dead-owner', 'COUNT', 1, 'STREAMS', retryStream, '>');

    const heir = await open();
    await heir.start({ topic, group, handle: record.handler('heir') });
    await waitFor(() => record.handled === 6);
    expect(record.calls.filter((call) => call.attempt > 1).map(({ n, attempt, id }) => [n, attempt, id])).toEqual([
      [0, 3, first],
      [1, 2, second],
    ]);
    expect(record.calls[0]!.n).toBe(0);
    expect(record.repeated).toEqual([]);
    await waitFor(async () => (await pending(0)) === 0 && (await raw.xlen(retryStream)) === 0);
  });

  it('STR-01 counts and acknowledges pending entries that were deleted, and handles the rest in order', async () => {
    const producer = await makeTopic(1);
    for (let n = 0; n < 12; n++) await producer.send(topic, { n });
    const ids = await leavePending(10);
    const deleted = [0, 3, 4, 7, 9].map((at) => ids[at]!);
    await raw.xdel(keys.stream(topic, 0), ...deleted);

    const heir = await open({ claimBatchSize: 4 });
    const log = EventLog.of(heir.runtime.events, 'payloadMissing', 'dead', 'fault');
    await heir.start({ topic, group, handle: record.handler('heir') });
    await waitFor(() => record.handled === 7);
    expect(record.calls.map((call) => call.n)).toEqual([1, 2, 5, 6, 8, 10, 11]);
    expect(log.all('payloadMissing').flatMap((event) => event.ids)).toEqual(deleted);
    expect(log.count('dead') + log.count('fault')).toBe(0);
    await waitFor(async () => (await pending(0)) === 0);
  });

  it('STR-02 gets past a stream that was trimmed to nothing, and handles what comes then', async () => {
    const producer = await makeTopic(1);
    for (let n = 0; n < 3; n++) await producer.send(topic, { n });
    const ids = await leavePending(3);
    await raw.xtrim(keys.stream(topic, 0), 'MAXLEN', 0);

    const heir = await open();
    const log = EventLog.of(heir.runtime.events, 'payloadMissing', 'fault');
    await heir.start({ topic, group, handle: record.handler('heir') });
    for (let n = 3; n < 8; n++) await producer.send(topic, { n });
    await waitFor(() => record.handled === 5);
    expect(record.calls.map((call) => call.n)).toEqual([3, 4, 5, 6, 7]);
    expect(log.all('payloadMissing').flatMap((event) => event.ids)).toEqual(ids);
    expect(log.count('fault')).toBe(0);
    await waitFor(async () => (await pending(0)) === 0);
  });
});

describe('graceful shutdowns', () => {
  it('DEL-12 cost no attempt of a message whose handler heeds its signal, and the heir begins at once', async () => {
    const producer = await makeTopic(1);
    await producer.send(topic, { n: 0 });
    const releases: number[] = [];
    for (let round = 0; round < 5; round++) {
      const instance = await open({ retryMaxAttempts: 3, drainTimeoutMs: 100 });
      await instance.start({
        topic,
        group,
        handle: record.handler(`round ${round}`, ({ context }) =>
          sleep(FOREVER_MS, undefined, { signal: context.signal }),
        ),
      });
      await waitFor(() => record.calls.length === round + 1);
      await instance.close();
      releases.push(nowMs());
    }
    const handOvers = record.calls.slice(1).map((call, i) => call.startedAt - releases[i]!);
    expect(Math.max(...handOvers)).toBeLessThan(1_000);
    const last = await open();
    await last.start({ topic, group, handle: record.handler('last') });
    await waitFor(() => record.by('last').some((call) => call.endedAt));
    expect(new Set(record.calls.map((call) => call.attempt))).toEqual(new Set([1]));
    expect(await last.runtime.deadLetters.size(topic)).toBe(0);
  });

  it('DEL-12 cost no attempt, and count as no crash, of a message whose handler heeds nothing', async () => {
    const producer = await makeTopic(1);
    await producer.send(topic, { n: 0 });
    const never = deferred();
    for (let round = 0; round < 4; round++) {
      const instance = await open({ drainTimeoutMs: 100 });
      await instance.start({ topic, group, handle: record.handler(`round ${round}`, () => never.promise) });
      await waitFor(() => record.calls.length === round + 1);
      await instance.close();
    }
    const last = await open();
    await last.start({ topic, group, handle: record.handler('last') });
    await waitFor(() => record.by('last').some((call) => call.endedAt));
    never.resolve();
    expect(new Set(record.calls.map((call) => call.attempt))).toEqual(new Set([1]));
    expect(await last.runtime.deadLetters.size(topic)).toBe(0);
  });
});

describe('take-over after the owner was killed', () => {
  it('begins within the rest of the lease and 500 ms, with the pending entries, in order, before newer ones (I1, I2)', async () => {
    const producer = await makeTopic(1);
    const owner = await begin('owner', { handleMs: 100 });
    for (let n = 0; n < 30; n++) await producer.send(topic, { n });
    await waitFor(() => record.by('owner').length >= 4);
    const heir = await open();
    const log = EventLog.of(heir.runtime.events, 'takenOver');
    await heir.start({ topic, group, handle: record.handler('heir') });
    const { members } = keys.members(group);
    await waitFor(async () => (await raw.zcard(members)) === 2);

    const restMs = await raw.pttl(keys.groupPartition(topic, 0, group).lease);
    const killedAt = nowMs();
    await owner.kill();
    const left = await pending(0);
    for (let n = 30; n < 60; n++) await producer.send(topic, { n });
    await waitFor(() => record.handled === 60);

    const [first] = record.by('heir');
    expect(first!.startedAt - killedAt).toBeLessThan(restMs + 500);
    expect(record.order()).toEqual(Array.from({ length: 60 }, (_, n) => n));
    expect(record.disorder).toEqual([]);
    // What was running is repeated, and nothing else: each call takes long enough for the one before to be settled.
    expect(record.repeated).toEqual([record.by('owner').at(-1)!.n]);
    expect(record.by('heir').map((call) => call.n)).toEqual(record.order().slice(first!.n));
    expect(new Set(record.calls.map((call) => call.attempt))).toEqual(new Set([1]));
    expect(log.all('takenOver')).toEqual([{ topic, partition: 0, group, count: left }]);
    await waitFor(async () => (await pending(0)) === 0);
  });

  it('STR-16 drains 2,000 pending entries of 4 partitions continuously and in order, before new traffic of the same keys', async () => {
    const producer = await makeTopic(4);
    const owner = await begin('owner', { handleMs: FOREVER_MS }, { consumerBatchCount: 500 });
    const messages = (count: number, from: number) =>
      Array.from({ length: count }, (_, i) => ({ payload: { n: from + i }, key: `key-${i % 50}`, partition: i % 4 }));
    await producer.sendBatch(topic, messages(2_000, 0));
    await waitFor(async () => (await Promise.all([0, 1, 2, 3].map(pending))).every((count) => count === 500));
    await owner.kill();

    const heir = await open();
    const log = EventLog.of(heir.runtime.events, 'leaseAcquired', 'takenOver', 'ledgerRepaired');
    record.calls.length = 0;
    await heir.start({ topic, group, handle: record.handler('heir') });
    let sent = 2_000;
    while (record.handled < 2_000) {
      await producer.sendBatch(topic, messages(4, sent));
      sent += 4;
      await sleep(50);
    }
    const old = record.calls.filter((call) => call.n < 2_000);
    const last = Math.max(...old.map((call) => call.startedAt));
    // Far less than one page for each interval of the pending scan, which would be ten minutes.
    expect(last - Math.min(...old.map((call) => call.startedAt))).toBeLessThan(12_000);
    await waitFor(() => record.handled === sent);
    expect(record.repeated).toEqual([]);
    expect(record.disorder).toEqual([]);
    expect(record.overlaps).toEqual([]);
    expect(log.all('takenOver').map(({ count }) => count)).toEqual([500, 500, 500, 500]);
    expect(log.count('ledgerRepaired')).toBe(0);
    expect(await raw.exists(...[0, 1, 2, 3].map((p) => keys.groupPartition(topic, p, group).crash))).toBe(0);
  });

  it('dead-letters a message that kills its process as crash-loop after its fourth death, and handles its neighbours', async () => {
    const producer = await makeTopic(1);
    for (let n = 0; n < 10; n++) await producer.send(topic, { n });
    const names = ['first', 'second', 'third', 'fourth'];
    // Acknowledgements that are not sent at once: the neighbours must not fall under suspicion for that.
    const victims = await Promise.all(names.map((name) => begin(name, { dieOn: [5] }, { ackFlushMs: 100 })));
    await waitFor(() => victims.every((victim) => victim.hasEnded), { timeoutMs: 20_000 });
    expect(record.calls.filter((call) => call.n === 5)).toHaveLength(4);
    expect(record.order()).toEqual([0, 1, 2, 3, 4, 5]);
    // With each of the first two owners the last acknowledgements of its neighbours died, too. The second had noted them all, so
    // the third took one after the other, and from the third death on nobody but the culprit is tried again.
    const owners = [...new Set(record.of(0).map((call) => call.instance))];
    const triedBy = owners.map((name) => record.by(name).map((call) => call.n));
    const upToTheCulprit = [0, 1, 2, 3, 4, 5];
    for (const tried of triedBy) expect(tried).toEqual(upToTheCulprit.slice(-tried.length));
    expect(triedBy.map((tried) => tried.length === 1)).toEqual([false, expect.any(Boolean), expect.any(Boolean), true]);

    const survivor = await open();
    await survivor.start({ topic, group, handle: record.handler('survivor') });
    await waitFor(() => record.handled === 10);
    expect(record.by('survivor').map((call) => call.n)).toEqual([6, 7, 8, 9]);
    const { items } = await survivor.runtime.deadLetters.list(topic);
    expect(items).toEqual([expect.objectContaining({ reason: 'crash-loop', group, attempts: 0 })]);
    await waitFor(async () => (await pending(0)) === 0);
    expect(await raw.exists(keys.groupPartition(topic, 0, group).crash)).toBe(0);
  });
});
