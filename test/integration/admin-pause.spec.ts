import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record } from '../support/mq-fixture.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

onEachKind('a pause', (redis) => {
  const [group, other] = ['g', 'other'];
  let topic: string;
  let handling: HandlingRecord;
  let others: HandlingRecord;
  let sent = 0;
  beforeEach(() => {
    topic = uniqueName('topic');
    handling = new HandlingRecord();
    others = new HandlingRecord();
    sent = 0;
  });

  type Work = Parameters<HandlingRecord['handler']>[1];
  const consumer = async (name: string, work?: Work): Promise<TestInstance> => {
    // Timers alone would take longer than the tests wait.
    const instance = await redis.open({ defaultPartitionCount: 4, rebalanceIntervalSec: 4 });
    return instance.start(
      { topic, group, handle: handling.handler(name, work) },
      { topic, group: other, handle: others.handler(name) },
    );
  };
  const send = async ({ producer }: TestInstance, count: number): Promise<void> => {
    const messages = Array.from({ length: count }, () => ({ payload: { n: sent++ }, partition: sent % 4 }));
    expect((await producer.sendBatch(topic, messages)).failed).toBe(0);
  };
  /** Another topic's messages go through meanwhile, so that time has passed and the instances work. */
  const somethingElse = async (instance: TestInstance): Promise<void> => {
    await redis.client.ping();
    for (let n = 0; n < 20; n++) await instance.producer.send(uniqueName('else'), { n });
  };

  it('of a topic is a barrier: no group gets anything until it is resumed, and then all of it, once, in order', async () => {
    const [a, b] = [await consumer('a'), await consumer('b')];
    await send(a, 200);
    await waitFor(() => handling.handled > 20);
    const { admin } = a.runtime;
    expect(await admin.pause(topic)).toMatchObject({ topic, group: null, partitions: 4 });
    const counts = [handling.calls.length, others.calls.length];
    expect(handling.calls.every((call) => call.endedAt !== undefined)).toBe(true);
    await send(b, 50);
    await somethingElse(b);
    expect([handling.calls.length, others.calls.length]).toEqual(counts);
    expect(await admin.paused(topic)).toEqual({ all: true, groups: [] });

    await b.runtime.admin.resume(topic);
    await waitFor(() => handling.handled === 250 && others.handled === 250, { timeoutMs: 3_000 });
    for (const seen of [handling, others]) {
      expect([seen.calls.length, seen.repeated, seen.disorder, seen.overlaps]).toEqual([250, [], [], []]);
    }
    expect(await admin.paused(topic)).toEqual({ all: false, groups: [] });
  });

  it('of a group leaves the others alone', async () => {
    const a = await consumer('a');
    await send(a, 40);
    await waitFor(() => handling.handled === 40);
    await a.runtime.admin.pause(topic, { group });
    await send(a, 40);
    await waitFor(() => others.handled === 80);
    expect(handling.handled).toBe(40);
    // Ended by itself, whatever becomes of a pause of the topic.
    await a.runtime.admin.pause(topic);
    await a.runtime.admin.resume(topic);
    await send(a, 40);
    await waitFor(() => others.handled === 120);
    expect([handling.handled, await a.runtime.admin.paused(topic)]).toEqual([40, { all: false, groups: [group] }]);
    await a.runtime.admin.resume(topic, { group });
    await waitFor(() => handling.handled === 120);
    expect(handling.disorder).toEqual([]);
  });

  it('waits for a slow handler, says that it stays paused when that takes too long, and can be waited for again', async () => {
    const go = deferred();
    const a = await consumer('a', (_, { n }) => (n === 0 ? go.promise : undefined));
    await send(a, 40);
    await waitFor(() => handling.calls.some((call) => call.n === 0));
    await waitFor(() => handling.handled === 31);
    const { admin } = a.runtime;
    const error: unknown = await admin.pause(topic, { timeoutMs: 2_000 }).catch((thrown: unknown) => thrown);
    const partition = handling.calls.find((call) => call.n === 0)!.partition;
    const owner: unknown = expect.stringContaining('#');
    expect(error).toMatchObject({ code: 'MQ_PAUSE_TIMEOUT', retryable: true });
    expect((error as { context: unknown }).context).toMatchObject({
      held: [{ partition, group, owner }],
      heldCount: 1,
    });
    expect(await admin.paused(topic)).toMatchObject({ all: true });
    const resolved = admin.pause(topic);
    go.resolve();
    await resolved;
    expect(handling.handled).toBe(31);
    await admin.resume(topic);
    await waitFor(() => handling.handled === 40);
    expect([handling.calls.length, handling.disorder]).toEqual([40, []]);
  });

  it('waits also for a handler that a hand-over under way would wait for no longer', async () => {
    const go = deferred();
    const options = { defaultPartitionCount: 4, leaseTtlSeconds: 2, renewIntervalSec: 0.5, rebalanceIntervalSec: 0.5 };
    const open = async (name: string, work?: Work): Promise<TestInstance> =>
      (await redis.open({ ...options, handlerTimeoutMs: 300 })).start({
        topic,
        group,
        handle: handling.handler(name, work),
      });
    const a = await open('a', () => go.promise);
    await send(a, 4);
    await waitFor(() => handling.calls.length === 4);
    const rebalanced = record(a, 'rebalanced');
    await open('b');
    await waitFor(() => rebalanced.some(({ givenUp }) => givenUp > 0));
    const { admin } = a.runtime;
    const error: unknown = await admin.pause(topic, { timeoutMs: 5_000 }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'MQ_PAUSE_TIMEOUT', context: { heldCount: 4 } });
    const paused = admin.pause(topic);
    go.resolve();
    await paused;
    expect(handling.by('b')).toEqual([]);
  });

  it('outlives restarts and holds for instances that come later; nobody misses an owner or asks for one all the time', async () => {
    const a = await consumer('a');
    await send(a, 40);
    await waitFor(() => handling.handled === 40 && others.handled === 40);
    await a.runtime.admin.pause(topic);
    await a.close();
    const b = await consumer('b');
    const faults = record(b, 'fault');
    await send(b, 40);
    await waitFor(async () => (await b.runtime.health.readiness()).redisStreamsMq!.status === 'up');
    const acquired = record(b, 'leaseAcquired');
    // Longer than a partition may be without an owner before readiness says so.
    const until = performance.now() + 9_000;
    await waitFor(() => performance.now() > until, { timeoutMs: 12_000 });
    expect((await b.runtime.health.readiness()).redisStreamsMq).toMatchObject({ status: 'up', partitionsOwned: 0 });
    expect([handling.handled, acquired, faults]).toEqual([40, [], []]);
    await b.runtime.admin.resume(topic);
    await waitFor(() => handling.handled === 80 && others.handled === 80);
    expect([handling.calls.length, handling.disorder]).toEqual([80, []]);
  }, 30_000);

  it('can be made before the group’s first start, and says what it does not do', async () => {
    const admin = (await redis.open()).runtime.admin;
    await expect(admin.pause(topic)).rejects.toMatchObject({ code: 'MQ_TOPIC_NOT_FOUND' });
    await expect(admin.resume(topic)).rejects.toMatchObject({ code: 'MQ_TOPIC_NOT_FOUND' });
    await expect(admin.pause(topic, { timeoutMs: -1 })).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    await expect(admin.pause(topic, { group: 'a b' })).rejects.toMatchObject({ code: 'MQ_INVALID_NAME' });
    await admin.createTopic(topic, { partitionCount: 4 });
    await admin.pause(topic, { group });
    const a = await consumer('a');
    await send(a, 20);
    await waitFor(() => others.handled === 20);
    expect(handling.handled).toBe(0);
    await admin.resume(topic, { group });
    await waitFor(() => handling.handled === 20);
  });

  it('that is ended while it is waited for says so', async () => {
    const go = deferred();
    const a = await consumer('a', () => go.promise);
    await send(a, 4);
    await waitFor(() => handling.calls.length === 4);
    const paused = a.runtime.admin.pause(topic);
    await waitFor(async () => (await a.runtime.admin.paused(topic)).all);
    await a.runtime.admin.resume(topic);
    await expect(paused).rejects.toMatchObject({ code: 'MQ_PAUSE_CHANGED' });
    go.resolve();
    await send(a, 4);
    await waitFor(() => handling.handled === 8);
  });
});
