import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { HoldingProxy } from '../support/holding-proxy.js';
import { useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
let topic: string;
let handling: HandlingRecord;
let sent = 0;
beforeEach(() => {
  topic = uniqueName('topic');
  handling = new HandlingRecord();
  sent = 0;
});

const open = (options = {}): Promise<TestInstance> => mq.open({ defaultPartitionCount: 2, ...options });
const consumer = async (): Promise<TestInstance> =>
  (await open()).start({ topic, group, handle: handling.handler('a') });
const send = async ({ producer }: TestInstance, partitions: readonly number[]): Promise<void> => {
  for (const partition of partitions) await producer.send(topic, { n: sent++ }, { partition });
};
const errorOf = (work: Promise<unknown>): Promise<{ code?: string; context?: object }> =>
  work.then(
    () => ({ code: 'resolved' }),
    (error: unknown) => error as { code?: string; context?: object },
  );

describe('a range that is replayed', () => {
  it('has no messages that the group has not been given: they come by themselves, once', async () => {
    const a = await consumer();
    await send(a, [0, 1, 0, 1]);
    await waitFor(() => handling.handled === 4);
    const { admin } = a.runtime;
    await admin.pause(topic, { group });
    await send(a, [0, 1, 0]);
    expect(await admin.replayRange(topic, group)).toMatchObject({ replayed: 4, complete: true });
    await admin.resume(topic, { group });
    await waitFor(() => handling.calls.length === 11);
    await send(a, [0, 1]);
    await waitFor(() => handling.calls.length === 13);
    expect(handling.calls.filter((call) => call.n >= 4)).toHaveLength(5);
  });

  it('ends at the commit position of a group that its stream has lost', async () => {
    const a = await consumer();
    await send(a, [0, 0, 0]);
    await waitFor(() => handling.handled === 3);
    await a.close();
    const stream = mq.keys.stream(topic, 0);
    const [, second] = await mq.client.xrange(stream, '-', '+');
    await mq.client.xgroup('DESTROY', stream, group);
    await mq.client.hset(mq.keys.partition(topic, 0).commit, group, second![0]);
    const { admin } = (await open()).runtime;
    expect(await admin.replayRange(topic, group, { partition: 0 })).toMatchObject({
      replayed: 2,
      partitions: [{ partition: 0, replayed: 2, lastId: second![0] }],
    });
  });

  it('says how far it came when it fails on the way', async () => {
    const a = await consumer();
    await send(a, [0, 1, 0, 1]);
    await waitFor(() => handling.handled === 4);
    await a.close();
    const { retryItems } = mq.keys.groupPartition(topic, 1, group);
    await mq.client.rpush(retryItems, 'a list');
    const { admin } = (await open()).runtime;
    const lastId: unknown = expect.any(String);
    expect(await errorOf(admin.replayRange(topic, group))).toMatchObject({
      code: 'MQ_REPLAY_INCOMPLETE',
      retryable: true,
      context: {
        report: {
          replayed: 2,
          complete: false,
          partitions: [
            { partition: 0, replayed: 2, lastId },
            { partition: 1, replayed: 0, lastId: null },
          ],
        },
      },
      cause: { message: expect.stringContaining('WRONGTYPE') },
    });
  });
});

describe('the deletion of a group', () => {
  it('that breaks off leaves no pause of a group that is only half there, and is finished by a second call', async () => {
    const a = await consumer();
    await send(a, [0, 1]);
    await waitFor(() => handling.handled === 2);
    const { admin } = a.runtime;
    await admin.pause(topic, { group });
    await a.close();
    const { meta } = mq.keys.topic(topic);
    const noted = (): Promise<number> => mq.client.hexists(meta, `paused:${group}`);
    expect(await noted()).toBe(1);
    const other = (await open()).runtime.admin;
    const { commit } = mq.keys.partition(topic, 1);
    await mq.client.rename(commit, `${commit}:aside`);
    await mq.client.rpush(commit, 'a list');
    expect(await errorOf(other.deleteGroup(group, { topic }))).toMatchObject({
      message: expect.stringContaining('WRONGTYPE'),
    });
    expect(await noted()).toBe(0);
    await mq.client.del(commit);
    await mq.client.rename(`${commit}:aside`, commit);
    expect(await other.deleteGroup(group, { topic })).toEqual({ group, topics: [topic] });
    expect((await other.describeTopic(topic)).groups).toEqual([]);
  });
});

it('what the administration took before it met an error is given back', async () => {
  const a = await consumer();
  await send(a, [0, 1]);
  await waitFor(() => handling.handled === 2);
  await a.close();
  const { activity } = mq.keys.partition(topic, 0);
  await mq.client.del(activity);
  await mq.client.rpush(activity, 'a list');
  const proxy = await HoldingProxy.start(mq.redis.port);
  try {
    const { admin } = (await mq.open({ redis: proxy.url, failFast: true })).runtime;
    // The request for the second partition is late, and the answer for the first is an error.
    const { held, release } = proxy.holdAfter(1, (request) => request.includes('admin-'));
    const failures = async (): Promise<number> =>
      Number(/errorstat_WRONGTYPE:count=(\d+)/.exec(await mq.client.info('errorstats'))?.[1] ?? 0);
    const before = await failures();
    const reset = errorOf(admin.resetPosition(topic, group, 'earliest'));
    await held;
    await waitFor(async () => (await failures()) > before);
    release();
    expect(await reset).toMatchObject({ message: expect.stringContaining('WRONGTYPE') });
    // Behind whatever it had sent.
    await admin.topicExists(topic);
  } finally {
    await proxy.stop();
  }
  const leases = [0, 1].map((partition) => mq.keys.groupPartition(topic, partition, group).lease);
  expect(await mq.client.exists(leases)).toBe(0);
});
