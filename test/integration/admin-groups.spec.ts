import { valueOf } from '../../libs/redis-streams-mq/src/redis/spread.js';
import { lagOf } from '../../libs/redis-streams-mq/src/redis/statistics.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

onEachKind('groups', (redis) => {
  const group = 'g';
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
  let topic: string;
  beforeEach(() => {
    topic = uniqueName('topic');
  });
  type Described = Awaited<ReturnType<TestInstance['runtime']['admin']['describeGroup']>>;
  const open = (): Promise<TestInstance> =>
    redis.open({
      defaultPartitionCount: 4,
      retryBaseBackoffMs: 600_000,
      retryMaxBackoffMs: 600_000,
      consumerBatchCount: 2,
    });
  const until = (
    { runtime }: TestInstance,
    isThere: (seen: Described) => boolean,
    options: Parameters<TestInstance['runtime']['admin']['describeGroup']>[1] = {},
  ): Promise<Described> =>
    waitFor(async () => {
      const seen = await runtime.admin.describeGroup(group, options);
      return isThere(seen) && seen;
    });

  it('are described with members, owners and all that is left to do, wherever it waits', async () => {
    const [gate, record] = [deferred(), new HandlingRecord()];
    const instances = [await open(), await open()];
    for (const [i, instance] of instances.entries()) {
      await instance.start({
        topic,
        group,
        handle: record.handler(String(i), async (_, { n, partition }) => {
          if (n === 0) throw new Error('waits for its retry');
          if (partition > 0) await gate.promise;
        }),
      });
    }
    const [a] = instances as [TestInstance];
    const balanced = await until(a, ({ members }) => members.length === 2 && members.every(({ owned }) => owned === 2));
    expect(balanced).toMatchObject({
      group,
      state: 'active',
      pending: 0,
      lag: { messages: 0, ms: 0 },
      isComplete: true,
    });
    expect(balanced.members).toEqual(
      balanced.members.map(({ instance }) => ({
        instance,
        aliveMs: expect.any(Number),
        topics: [topic],
        cap: 0,
        owned: 2,
      })),
    );

    const first = await a.producer.send(topic, { n: 0 }, { partition: 0 });
    for (const n of numbers(10)) await a.producer.send(topic, { n: n + 1 }, { partition: 1 });
    await a.producer.send(topic, { n: 11 }, { partition: 0 });
    const seen = await until(a, ({ topics }) => {
      const [zero, one] = topics[0]!.partitions;
      return zero!.lag.messages === 1 && zero!.pending === 0 && one!.pending >= 2 && one!.lag.messages === 10;
    });
    expect(seen).toMatchObject({ state: 'active', lag: { messages: 11, certainty: 'exact' } });
    const { partitions, ...whole } = seen.topics[0]!;
    expect(whole).toMatchObject({ topic, partitionCount: 4, lag: { messages: 11 }, pending: seen.pending });
    const owners = seen.members.map(({ instance }) => instance);
    for (const partition of partitions) {
      expect(owners).toContain(partition.owner!.instance);
      expect(partition).toMatchObject({ isPaused: false, isPresent: true, unreadable: [] });
    }
    expect(partitions[0]).toMatchObject({
      pending: 0,
      oldestPending: null,
      undelivered: { count: 0 },
      retriesWaiting: 1,
      nextRetryDue: expect.any(Number),
      retriesDue: 0,
      oldestId: first.id,
    });
    const one = partitions[1]!;
    expect(one.oldestPending).toMatchObject({ consumer: one.owner!.instance, deliveries: 1 });
    expect(one.oldestPending!.id).toBe(one.oldestId);
    expect(one.pending + one.undelivered.count).toBe(10);
    expect(one.consumers).toMatchObject([{ name: one.owner!.instance, pending: one.pending }]);

    // The same figures from wherever one asks.
    const topicView = (await a.runtime.admin.describeTopic(topic)).partitions.map(
      ({ groups }) => groups[0]!.lag.messages,
    );
    const direct = await a.runtime.statistics.ofGroups(numbers(4).map((partition) => ({ topic, partition, group })));
    expect(topicView).toEqual(partitions.map(({ lag }) => lag.messages));
    expect(direct.map((one) => lagOf(valueOf(one)).messages)).toEqual(topicView);

    gate.resolve();
    await until(a, ({ lag, topics }) => lag.messages === 1 && topics[0]!.partitions[0]!.retriesWaiting === 1);
    expect(record.handled).toBe(12);
    for (const instance of instances) await instance.close();

    const idle = await (await open()).runtime.admin.describeGroup(group);
    expect(idle).toMatchObject({ state: 'idle', members: [], lag: { messages: 1 }, topics: [{ topic }] });
  });

  it('are paused, rebalancing while somebody else holds a lease, and active again', async () => {
    const a = await open();
    const { admin } = a.runtime;
    await admin.createTopic(topic);
    const { lease } = redis.keys.groupPartition(topic, 0, group);
    await redis.client.set(lease, 'somebody-gone#1', 'PX', 600_000);
    await a.start({ topic, group, handle: () => undefined });
    const stuck = await until(a, ({ members }) => members[0]?.owned === 3);
    expect(stuck.state).toBe('rebalancing');
    expect(stuck.topics[0]!.partitions[0]!.owner).toMatchObject({ instance: 'somebody-gone', epoch: 1 });
    await redis.client.del(lease);
    await until(a, ({ state }) => state === 'active');
    await admin.pause(topic, { group });
    expect(await admin.describeGroup(group)).toMatchObject({ state: 'paused', members: [{ owned: 0 }] });
    await admin.resume(topic, { group });
    await until(a, ({ state }) => state === 'active');
  });

  it('are listed from what Redis has, topic by topic, those that were lost too', async () => {
    const record = new HandlingRecord();
    const topics = numbers(5).map((i) => `${topic}-${i}`);
    const a = await open();
    await a.start(...topics.map((of) => ({ topic: of, group, handle: record.handler('a') })), {
      topic: topics[0]!,
      group: 'other',
      handle: record.handler('b'),
    });
    const { admin } = a.runtime;
    const list = async (): Promise<string[]> => {
      const seen: string[] = [];
      let cursor: string | null | undefined;
      while (cursor !== null) {
        const page = await admin.listGroups({ limit: 2, ...(cursor === undefined ? {} : { cursor }) });
        for (const item of page.items) seen.push(`${item.topic} ${item.group} ${item.partitions} ${item.lost}`);
        cursor = page.cursor;
      }
      return seen.toSorted();
    };
    const expected = [...topics.map((of) => `${of} ${group} 4 0`), `${topics[0]} other 4 0`].toSorted();
    await waitFor(async () => JSON.stringify(await list()) === JSON.stringify(expected));
    for (const n of numbers(4)) await a.producer.send(topics[0]!, { n }, { partition: n });
    await waitFor(() => record.calls.length === 8);
    await waitFor(async () => (await admin.describeGroup('other')).lag.messages === 0);
    expect((await admin.describeGroup('other')).topics.map((of) => of.topic)).toEqual([topics[0]]);
    await a.close();

    const b = await open();
    await redis.client.xgroup('DESTROY', redis.keys.stream(topics[0]!, 1), 'other');
    expect(await b.runtime.admin.listGroups({ topic: topics[0]! })).toEqual({
      items: [
        { group, topic: topics[0], partitions: 4, lost: 0 },
        { group: 'other', topic: topics[0], partitions: 3, lost: 1 },
      ],
      cursor: null,
    });
    const lost = await b.runtime.admin.describeGroup('other', { topic: topics[0]! });
    expect(lost.topics[0]!.partitions.map(({ isPresent, lag }) => [isPresent, lag.messages])).toEqual([
      [true, 0],
      [false, 0],
      [true, 0],
      [true, 0],
    ]);
  });

  it('one key of a wrong type is named, and hides nothing else', async () => {
    const a = await open();
    await a.start({ topic, group, handle: () => undefined });
    await until(a, ({ members }) => members[0]?.owned === 4);
    await redis.client.set(redis.keys.groupPartition(topic, 2, group).retry, 'a string');
    const { topics } = await a.runtime.admin.describeGroup(group);
    expect(topics[0]!.partitions.map(({ unreadable }) => unreadable)).toEqual([[], [], ['retry'], []]);
  });

  it.each<[string, (of: TestInstance['runtime']['admin']) => Promise<unknown>, string]>([
    ['a group that is nowhere', (of) => of.describeGroup('none'), 'MQ_GROUP_NOT_FOUND'],
    ['a group that is not there', (of) => of.describeGroup('none', { topic }), 'MQ_GROUP_NOT_FOUND'],
    ['a name that is none', (of) => of.describeGroup('a b'), 'MQ_INVALID_NAME'],
    ['a topic that is not there', (of) => of.describeGroup(group, { topic: 'none' }), 'MQ_TOPIC_NOT_FOUND'],
    ['a list of a topic that is not there', (of) => of.listGroups({ topic: 'none' }), 'MQ_TOPIC_NOT_FOUND'],
    ['a limit of 0', (of) => of.listGroups({ limit: 0 }), 'MQ_INVALID_ARGUMENT'],
  ])('%s is refused', async (_, ask, code) => {
    const { admin } = (await open()).runtime;
    await admin.createTopic(topic);
    await expect(ask(admin)).rejects.toMatchObject({ code });
  });
});
