import { Cluster } from 'ioredis';
import { MqAdminError } from '../../libs/redis-streams-mq/src/core/errors.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record } from '../support/mq-fixture.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

onEachKind('topics and groups', (redis) => {
  const group = 'g';
  let topic: string;
  let handling: HandlingRecord;
  let sent = 0;
  beforeEach(() => {
    topic = uniqueName('topic');
    handling = new HandlingRecord();
    sent = 0;
  });

  type Work = Parameters<HandlingRecord['handler']>[1];
  const slow = {
    defaultPartitionCount: 2,
    rebalanceIntervalSec: 4,
    retryBaseBackoffMs: 60_000,
    retryMaxBackoffMs: 60_000,
  };
  const consumer = async (name: string, work?: Work, options = {}): Promise<TestInstance> => {
    const instance = await redis.open({ ...slow, ...options });
    return instance.start({ topic, group, handle: handling.handler(name, work) });
  };
  const send = async ({ producer }: TestInstance, partitions: readonly number[]): Promise<void> => {
    for (const partition of partitions) await producer.send(topic, { n: sent++ }, { partition });
  };
  const codeOf = (work: Promise<unknown>): Promise<unknown> =>
    work.then(
      () => 'resolved',
      (error: unknown) => (error as { code?: string }).code ?? error,
    );
  /** What is on the servers, from under the instances' prefixes. */
  const keysThere = async (): Promise<string[]> => {
    const { client, keys } = redis;
    const nodes = client instanceof Cluster ? client.nodes('master') : [client];
    const prefixes = [keys.topics.slice(0, -':topics'.length), keys.stream('x', 0).split(':{')[0]!];
    const found = await Promise.all(nodes.flatMap((node) => prefixes.map((prefix) => node.keys(`${prefix}:*`))));
    return found.flat().sort();
  };

  it('a raised count is followed at once by all; groups get the new partitions from their first message', async () => {
    const [a, b] = [await consumer('a'), await consumer('b')];
    await send(a, [0, 1, 0, 1]);
    await waitFor(() => handling.handled === 4);
    const { admin } = a.runtime;
    expect(await admin.raisePartitionCount(topic, 5)).toMatchObject({ topic, partitionCount: 5 });
    await waitFor(async () => (await codeOf(send(b, [4]))) === 'resolved');
    await send(a, [2, 3, 4, 0, 1]);
    await waitFor(() => handling.handled >= 10);
    const { groups, partitions } = await admin.describeTopic(topic);
    expect([groups, partitions.length]).toEqual([[group], 5]);
    expect(handling.disorder).toEqual([]);
    // The same once more changes nothing.
    expect(await admin.raisePartitionCount(topic, 5)).toMatchObject({ partitionCount: 5 });
  });

  it('a group that begins at the latest message misses nothing in partitions that come', async () => {
    const first = await redis.open(slow);
    await first.runtime.admin.createTopic(topic);
    await send(first, [0, 1]);
    const a = await redis.open(slow);
    const at = { topic, group, handle: handling.handler('a'), options: { startFrom: 'latest' as const } };
    await a.start(at);
    await waitFor(async () => (await a.runtime.admin.describeTopic(topic)).groups.length === 1);
    await waitFor(async () => {
      await send(first, [0, 1]);
      return new Set(handling.calls.map((call) => call.partition)).size === 2;
    });
    await a.close();
    handling.calls.length = 0;
    await first.runtime.admin.raisePartitionCount(topic, 3);
    await send(first, [2, 2]);
    await (await redis.open(slow)).start(at);
    await waitFor(() => handling.of(2).length === 2);
  });

  it('partitions that are added while the topic is paused are paused, and go on with it', async () => {
    const a = await consumer('a');
    await send(a, [0, 1]);
    await waitFor(() => handling.handled === 2);
    const { admin } = a.runtime;
    await admin.pause(topic, { group });
    await admin.raisePartitionCount(topic, 4);
    const b = await consumer('b');
    await send(b, [0, 1, 2, 3]);
    await admin.pause(topic, { group });
    const { partitions } = await admin.describeTopic(topic);
    expect(partitions.flatMap((of) => of.groups.map(({ isPaused, owner }) => [isPaused, owner]))).toEqual(
      Array(4).fill([true, null]),
    );
    expect(handling.handled).toBe(2);
    await admin.resume(topic, { group });
    await waitFor(() => handling.handled === 6);
  });

  it('refuse fewer partitions, and what is not there', async () => {
    const { admin } = (await redis.open(slow)).runtime;
    expect(await codeOf(admin.raisePartitionCount(topic, 3))).toBe('MQ_TOPIC_NOT_FOUND');
    expect(await codeOf(admin.deleteTopic(topic))).toBe('MQ_TOPIC_NOT_FOUND');
    expect(await codeOf(admin.deleteGroup(group, { topic }))).toBe('MQ_TOPIC_NOT_FOUND');
    await admin.createTopic(topic, { partitionCount: 3 });
    expect(await codeOf(admin.raisePartitionCount(topic, 2))).toBe('MQ_PARTITION_COUNT_LOWERED');
    expect(await codeOf(admin.raisePartitionCount(topic, 1.5))).toBe('MQ_INVALID_ARGUMENT');
    expect(await codeOf(admin.deleteGroup(group, { topic }))).toBe('MQ_GROUP_NOT_FOUND');
    expect(await codeOf(admin.deleteGroup(group))).toBe('MQ_GROUP_NOT_FOUND');
  });

  it('a deleted topic leaves no key but its mark; running parties survive, and it can be made anew', async () => {
    const other = uniqueName('other');
    const elsewhere: unknown[] = [];
    const work: Work = (_, { n }) => {
      if (n === 1) throw new Error('retried');
      if (n === 2) throw new DeadLetter('no');
    };
    const a = await redis.open(slow);
    await a.start(
      { topic, group, handle: handling.handler('a', work) },
      { topic: other, group, handle: ({ payload }) => void elsewhere.push(payload) },
    );
    const faults = record(a, 'fault');
    const producing = await redis.open({ ...slow, rebalanceIntervalSec: 0.3 });
    await send(producing, [0, 1, 0, 1, 0]);
    await producing.producer.send(topic, { n: -1 }, { delayMs: 600_000 });
    await waitFor(() => handling.handled === 5);
    const { admin, deadLetters } = a.runtime;
    await waitFor(async () => (await deadLetters.size(topic)) === 1);
    await admin.pause(topic, { group: 'unknown' });
    expect(await admin.deleteTopic(topic)).toEqual({
      topic,
      partitions: 2,
      messages: 5,
      deadLetters: 1,
      stoppedInOrder: true,
    });
    const left = (await keysThere()).filter((key) => key.includes(`{${topic}`));
    expect(left).toEqual([redis.keys.topic(topic).meta]);
    expect([await admin.topicExists(topic), (await admin.listTopics()).items.map((item) => item.topic)]).toEqual([
      false,
      [other],
    ]);
    await waitFor(async () => (await codeOf(send(producing, [0]))) === 'MQ_TOPIC_DELETED');
    expect(await codeOf(send(a, [0]))).toBe('MQ_TOPIC_DELETED');
    expect(await codeOf(admin.deleteTopic(topic))).toBe('MQ_TOPIC_NOT_FOUND');
    await a.producer.send(other, 'still here');
    await waitFor(() => elsewhere.length === 1);
    await waitFor(async () => (await a.runtime.health.readiness()).redisStreamsMq!.status === 'up');

    handling.calls.length = 0;
    sent = 100;
    expect(await admin.createTopic(topic, { partitionCount: 3 })).toMatchObject({ partitionCount: 3 });
    await waitFor(async () => (await codeOf(send(producing, [0, 1, 2]))) === 'resolved');
    await send(a, [2]);
    await waitFor(() => handling.handled >= 4);
    expect(handling.calls.every((call) => call.n >= 100 && call.attempt === 1)).toBe(true);
    expect(faults.filter((fault) => fault.class !== 'transient')).toEqual([]);
  });

  it('a deletion waits for running handlers no longer than it is told, and what they do then is refused', async () => {
    const go = deferred();
    const a = await consumer('a', () => go.promise);
    await send(a, [0, 0, 1]);
    await waitFor(() => handling.calls.length === 2);
    const { admin } = a.runtime;
    expect(await admin.deleteTopic(topic, { timeoutMs: 200 })).toMatchObject({ stoppedInOrder: false });
    expect((await keysThere()).filter((key) => key.includes(`{${topic}`))).toEqual([redis.keys.topic(topic).meta]);
    go.resolve();
    await admin.createTopic(topic);
    await send(a, [1]);
    await waitFor(() => handling.calls.some((call) => call.n === 3));
    expect(handling.calls).toHaveLength(3);
  });

  it('a deletion that broke off keeps the topic from being made, and is finished by a second call', async () => {
    const a = await consumer('a');
    await send(a, [0, 1]);
    await waitFor(() => handling.handled === 2);
    await a.close();
    const { admin } = (await redis.open(slow)).runtime;
    // A key of another type stops it at partition 1.
    const { activity } = redis.keys.partition(topic, 1);
    await redis.client.del(activity);
    await redis.client.rpush(activity, 'a list');
    expect(await codeOf(admin.deleteTopic(topic))).not.toBe('resolved');
    const refused = await admin.createTopic(topic).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'MQ_TOPIC_BEING_DELETED' });
    expect(refused).toBeInstanceOf(MqAdminError);
    await redis.client.del(activity);
    expect(await admin.deleteTopic(topic)).toMatchObject({ topic, partitions: 2 });
    expect((await keysThere()).filter((key) => key.includes(`{${topic}`))).toEqual([redis.keys.topic(topic).meta]);
    expect(await admin.createTopic(topic)).toMatchObject({ partitionCount: 2 });
  });

  it('a group is deleted when nobody runs it, with all it has; the others and the messages stay', async () => {
    const work: Work = (_, { n }) => {
      if (n === 1) throw new Error('retried');
    };
    const a = await consumer('a', work);
    const second = uniqueName('second');
    const c = await redis.open(slow);
    await c.start(
      { topic, group: 'kept', handle: () => undefined },
      { topic: second, group: 'both', handle: () => undefined },
    );
    const d = await redis.open(slow);
    await d.start({ topic, group: 'both', handle: () => undefined });
    await send(a, [0, 1, 0, 1]);
    await a.producer.send(second, { n: 0 });
    await waitFor(() => handling.handled === 4);
    const { admin } = c.runtime;
    const groups = async (): Promise<readonly string[]> => (await admin.describeTopic(topic)).groups;
    await waitFor(async () => (await groups()).length === 3);
    expect(await codeOf(admin.deleteGroup(group, { topic }))).toBe('MQ_GROUP_RUNNING');
    // A pause is not enough: its instances would make it again.
    await admin.pause(topic, { group });
    expect(await codeOf(admin.deleteGroup(group, { topic }))).toBe('MQ_GROUP_RUNNING');
    await admin.resume(topic, { group });
    await a.close();
    expect(await admin.deleteGroup(group, { topic })).toEqual({ group, topics: [topic] });
    expect(await groups()).toEqual(['both', 'kept']);
    expect((await keysThere()).filter((key) => key.endsWith(`:${group}`) && key.includes(`{${topic}`))).toEqual([]);
    expect(await codeOf(admin.deleteGroup('both'))).toBe('MQ_GROUP_RUNNING');
    await Promise.all([c.close(), d.close()]);
    const again = (await redis.open(slow)).runtime.admin;
    expect(await again.deleteGroup('both')).toEqual({ group: 'both', topics: [topic, second].sort() });
    expect((await keysThere()).filter((key) => key.includes('both') && !key.includes(':wake:'))).toEqual([]);

    handling.calls.length = 0;
    await consumer('e');
    await waitFor(() => handling.handled === 4);
    expect(handling.calls.every((call) => call.attempt === 1)).toBe(true);
  });
});
