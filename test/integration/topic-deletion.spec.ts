import { Pausing } from '../../libs/redis-streams-mq/src/admin/pausing.js';
import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import type { TestInstance } from '../support/engine.js';
import { holdNext, type HeldCall } from '../support/hold-next.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

onEachKind('the deletion of a topic', (redis) => {
  const group = 'g';
  const options = { defaultPartitionCount: 2, retryBaseBackoffMs: 60_000, retryMaxBackoffMs: 60_000 };
  let topic: string;
  beforeEach(() => (topic = uniqueName('topic')));
  afterEach(() => jest.restoreAllMocks());

  const send = async ({ producer }: TestInstance, count: number): Promise<void> => {
    for (let n = 0; n < count; n++) await producer.send(topic, { n }, { partition: n % 2 });
  };
  const codeOf = (work: Promise<unknown>): Promise<unknown> =>
    work.then(
      () => 'resolved',
      (error: unknown) => (error as { code?: string }).code ?? error,
    );
  const lengths = async ({ runtime }: TestInstance): Promise<number[]> =>
    (await runtime.admin.describeTopic(topic)).partitions.map(({ length }) => length);

  const moments: [string, () => HeldCall][] = [
    ['before it stops the groups', () => holdNext(Connection, 'send', ([name]) => name === 'SREM')],
    ['before it deletes', () => holdNext(Pausing, 'areFreeBy')],
  ];
  it.each(moments)('that is late, %s, leaves a topic alone that was made anew meanwhile', async (_, hold) => {
    const [late, other] = [await redis.open(options), await redis.open(options)];
    const { admin } = other.runtime;
    await admin.createTopic(topic);
    await send(other, 4);
    const { reached, go } = hold();
    const outcome = codeOf(late.runtime.admin.deleteTopic(topic));
    await reached;
    expect(await admin.deleteTopic(topic)).toMatchObject({ messages: 4 });
    const { incarnation } = await admin.createTopic(topic);
    await send(other, 6);
    go();
    expect(await outcome).toBe('MQ_TOPIC_MADE_ANEW');
    expect(await lengths(other)).toEqual([3, 3]);
    expect(await admin.createTopic(topic)).toMatchObject({ incarnation });
    expect((await admin.listTopics()).items).toMatchObject([{ topic }]);
    let handled = 0;
    await other.start({ topic, group, handle: () => void handled++ });
    await waitFor(() => handled === 6);
    expect(await late.runtime.admin.deleteTopic(topic)).toMatchObject({ messages: 6 });
  });

  it('of two at once both end, and nothing is left', async () => {
    const [a, b] = [await redis.open(options), await redis.open(options)];
    await a.runtime.admin.createTopic(topic);
    await send(a, 4);
    const { reached, go } = holdNext(Pausing, 'areFreeBy');
    const first = a.runtime.admin.deleteTopic(topic);
    await reached;
    expect(await b.runtime.admin.deleteTopic(topic)).toMatchObject({ messages: 4 });
    go();
    expect(await first).toMatchObject({ topic, messages: 0 });
    expect(await codeOf(a.runtime.admin.deleteTopic(topic))).toBe('MQ_TOPIC_NOT_FOUND');
  });

  it('that names an incarnation takes no other, however often it is repeated', async () => {
    const instance = await redis.open(options);
    const { admin } = instance.runtime;
    const { incarnation } = await admin.createTopic(topic);
    await admin.deleteTopic(topic, { incarnation });
    expect(await codeOf(admin.deleteTopic(topic, { incarnation }))).toBe('MQ_TOPIC_NOT_FOUND');
    await admin.createTopic(topic);
    await send(instance, 2);
    expect(await codeOf(admin.deleteTopic(topic, { incarnation }))).toBe('MQ_TOPIC_MADE_ANEW');
    expect(await codeOf(admin.deleteTopic(topic, { incarnation: '' }))).toBe('MQ_INVALID_ARGUMENT');
    expect(await lengths(instance)).toEqual([1, 1]);
  });

  it('waits for handlers of its dead letters, too, and leaves nothing of their groups', async () => {
    const failing = await redis.open({ ...options, retryMaxAttempts: 1 });
    await failing.start({
      topic,
      group,
      handle: () => {
        throw new Error('dead');
      },
    });
    const of = redis.keys.ofDeadLetters().groupPartition(topic, 0, 'letters');
    const deadLetters = { ofGroup: null, deleteOnSuccess: false, maxReplays: 3 };
    const letters = await redis.open(options);
    const [running, go] = [deferred(), deferred()];
    await letters.start({
      topic,
      group: 'letters',
      deadLetters,
      options: { retryOrdering: 'key', concurrency: 2 },
      handle: async ({ payload }) => {
        if ((payload as { n: number }).n === 0) throw new Error('retried');
        running.resolve();
        await go.promise;
      },
    });
    await failing.producer.send(topic, { n: 0 }, { partition: 0, key: 'a' });
    await waitFor(async () => (await redis.client.exists(of.held)) === 1);
    await failing.producer.send(topic, { n: 1 }, { partition: 0, key: 'b' });
    await running.promise;
    expect(await failing.runtime.admin.deleteTopic(topic, { timeoutMs: 200 })).toMatchObject({ stoppedInOrder: false });
    for (const key of [of.lease, of.epoch, of.held, of.retry, of.commit, of.activity, of.pausedAll])
      expect([key, await redis.client.exists(key)]).toEqual([key, 0]);
    go.resolve();
  });

  it('takes the partitions along that a raise has left which broke off', async () => {
    const instance = await redis.open(options);
    const { admin } = instance.runtime;
    await instance.start({ topic, group, handle: () => undefined });
    await send(instance, 2);
    await waitFor(async () => (await admin.describeTopic(topic)).groups.length === 1);
    jest.spyOn(Pausing.prototype, 'applyTo').mockRejectedValueOnce(new Error('the process dies'));
    await expect(admin.raisePartitionCount(topic, 4)).rejects.toThrow('the process dies');
    const places = [2, 3].map((partition) => redis.keys.partition(topic, partition));
    const there = async (): Promise<number> => {
      let found = 0;
      for (const { stream, incarnation } of places)
        found += (await redis.client.exists(stream)) + (await redis.client.exists(incarnation));
      return found;
    };
    expect(await there()).toBe(4);
    await admin.deleteTopic(topic);
    expect(await there()).toBe(0);
  });

  it('that breaks off has taken no retries of messages that can still be read', async () => {
    const instance = await redis.open(options);
    let failed = 0;
    await instance.start({
      topic,
      group,
      handle: () => {
        failed++;
        throw new Error('retried');
      },
    });
    await send(instance, 4);
    await waitFor(() => failed === 4);
    const { admin } = instance.runtime;
    const { retry, stream } = redis.keys.groupPartition(topic, 0, group);
    await waitFor(async () => (await redis.client.zcard(retry)) === 2);
    // A key of another type stops it.
    const { activity } = redis.keys.ofDeadLetters().partition(topic, 0);
    await redis.client.rpush(activity, 'a list');
    expect(await codeOf(admin.deleteTopic(topic))).not.toBe('resolved');
    const [isReadable, waiting] = [await redis.client.exists(stream), await redis.client.zcard(retry)];
    expect([0, 2]).toContain(waiting);
    expect(isReadable === 0 || waiting === 2).toBe(true);
    await redis.client.del(activity);
    expect(await admin.deleteTopic(topic)).toMatchObject({ topic, partitions: 2 });
    expect(await redis.client.exists(stream)).toBe(0);
    expect(await redis.client.exists(retry)).toBe(0);
  });
});
