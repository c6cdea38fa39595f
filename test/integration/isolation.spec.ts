import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();

/** A handler that keeps what it saw as [payload, attempt]. */
function recorder(decide: (message: ReceivedMessage) => void = () => undefined) {
  const seen: [payload: unknown, attempt: number][] = [];
  const handle = (message: ReceivedMessage): void => {
    seen.push([message.payload, message.context.attempt]);
    decide(message);
  };
  return { seen, handle };
}

const failTimes = (times: number) =>
  recorder(({ payload, context }) => {
    if (payload === 'bad' && context.attempt <= times) throw new Error('not yet');
  });

interface GroupInfo {
  pending: number;
  lastDelivered: string;
  /** `undefined` where the server does not report it (before Redis 7). */
  lag: number | null | undefined;
}

async function groupsOf(stream: string): Promise<Map<string, GroupInfo>> {
  const reply = (await mq.client.xinfo('GROUPS', stream)) as unknown[][];
  return new Map(
    reply.map((flat) => {
      const fields = new Map(flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1]] as const] : [])));
      const info = {
        pending: fields.get('pending'),
        lastDelivered: fields.get('last-delivered-id'),
        lag: fields.get('lag'),
      };
      return [fields.get('name') as string, info as GroupInfo];
    }),
  );
}

/** Both groups have handled everything up to a message sent now, so nothing older is still on its way to either. */
async function bothReach(
  topic: string,
  instance: Awaited<ReturnType<typeof mq.open>>,
  ...seen: unknown[][][]
): Promise<void> {
  const marker = uniqueName('marker');
  await instance.producer.send(topic, marker);
  await waitFor(() => seen.every((list) => list.some(([payload]) => payload === marker)), {
    describe: 'the marker in both groups',
  });
  for (const list of seen)
    list.splice(
      list.findIndex(([payload]) => payload === marker),
      1,
    );
}

const settled = async (topic: string): Promise<boolean> => {
  const groups = await groupsOf(mq.keys.stream(topic, 0));
  return [...groups.values()].every(({ pending }) => pending === 0);
};

it('a retry of one group is never seen by another', async () => {
  const topic = uniqueName('orders');
  const a = failTimes(3);
  const b = recorder();
  const instance = await mq.open({ defaultPartitionCount: 1 });
  await instance.start({ topic, group: 'a', handle: a.handle }, { topic, group: 'b', handle: b.handle });
  await instance.producer.send(topic, 'bad');
  await waitFor(() => a.seen.length === 4);
  await bothReach(topic, instance, a.seen, b.seen);
  expect(a.seen).toEqual([1, 2, 3, 4].map((attempt) => ['bad', attempt]));
  expect(b.seen).toEqual([['bad', 1]]);
});

it('two groups that fail on the same message count their attempts apart', async () => {
  const topic = uniqueName('orders');
  const a = failTimes(1);
  const b = failTimes(3);
  const instance = await mq.open({ defaultPartitionCount: 1 });
  await instance.start({ topic, group: 'a', handle: a.handle }, { topic, group: 'b', handle: b.handle });
  await instance.producer.send(topic, 'bad');
  await waitFor(() => a.seen.length === 2 && b.seen.length === 4);
  await bothReach(topic, instance, a.seen, b.seen);
  expect(a.seen.map(([, attempt]) => attempt)).toEqual([1, 2]);
  expect(b.seen.map(([, attempt]) => attempt)).toEqual([1, 2, 3, 4]);
});

it('the dead letter of one group, and its replay, never reach the other', async () => {
  const topic = uniqueName('orders');
  let isFixed = false;
  const a = recorder(({ payload }) => {
    if (payload === 'bad' && !isFixed) throw new DeadLetter('cannot');
  });
  const b = recorder();
  const instance = await mq.open({ defaultPartitionCount: 1 });
  const { deadLetters } = instance.runtime;
  await instance.start({ topic, group: 'a', handle: a.handle }, { topic, group: 'b', handle: b.handle });
  await instance.producer.send(topic, 'bad');
  await waitFor(async () => (await deadLetters.size(topic)) === 1);
  await expect(deadLetters.size(topic, { group: 'a' })).resolves.toBe(1);
  await expect(deadLetters.size(topic, { group: 'b' })).resolves.toBe(0);
  await expect(deadLetters.replayAll(topic, { group: 'b' })).resolves.toMatchObject({ replayed: 0 });
  isFixed = true;
  await expect(deadLetters.replayAll(topic, { group: 'a' })).resolves.toMatchObject({ replayed: 1 });
  await waitFor(() => a.seen.length === 2);
  await bothReach(topic, instance, a.seen, b.seen);
  expect(a.seen).toEqual([
    ['bad', 1],
    ['bad', 1],
  ]);
  expect(b.seen).toEqual([['bad', 1]]);
});

it('each group has its own dead letter of a message, and replays it alone', async () => {
  const topic = uniqueName('orders');
  const reject = (): never => {
    throw new DeadLetter('cannot');
  };
  let isFixed = false;
  const a = recorder(() => isFixed || reject());
  const b = recorder(() => isFixed || reject());
  const instance = await mq.open({ defaultPartitionCount: 1 });
  const { deadLetters } = instance.runtime;
  await instance.start({ topic, group: 'a', handle: a.handle }, { topic, group: 'b', handle: b.handle });
  await instance.producer.send(topic, 'bad');
  await waitFor(async () => (await deadLetters.size(topic)) === 2);
  isFixed = true;
  const [ofA] = (await deadLetters.list(topic, { group: 'a' })).items;
  await expect(deadLetters.replay(topic, ofA!.id)).resolves.toBe(true);
  await waitFor(() => a.seen.length === 2);
  await bothReach(topic, instance, a.seen, b.seen);
  expect(b.seen).toEqual([['bad', 1]]);
  const left = (await deadLetters.list(topic)).items;
  expect(left.map(({ group, eventId }) => [group, eventId])).toEqual([['b', ofA!.eventId]]);
});

it('retries, dead letters and replays add nothing to the partition stream and nothing to the lag of any group', async () => {
  const topic = uniqueName('orders');
  const stream = mq.keys.stream(topic, 0);
  const a = failTimes(2);
  const b = failTimes(5);
  const instance = await mq.open({ defaultPartitionCount: 1 });
  const { deadLetters } = instance.runtime;
  await instance.start({ topic, group: 'a', handle: a.handle }, { topic, group: 'b', handle: b.handle });
  const sent = [];
  for (const payload of ['bad', 'good', 'bad', 'good']) sent.push(await instance.producer.send(topic, payload));
  await waitFor(async () => a.seen.length === 8 && (await deadLetters.size(topic)) === 2);
  await deadLetters.replayAll(topic);
  await waitFor(async () => b.seen.length === 22 && (await deadLetters.size(topic)) === 2);
  await waitFor(() => settled(topic));
  await expect(mq.client.xlen(stream)).resolves.toBe(sent.length);
  const groups = await groupsOf(stream);
  expect([...groups.keys()].sort()).toEqual(['a', 'b']);
  for (const { lastDelivered, lag = 0 } of groups.values()) {
    expect(lastDelivered).toBe(sent.at(-1)!.id);
    expect(lag).toBe(0);
  }
  for (const group of ['a', 'b']) {
    const { retryStream, retry, retryItems } = mq.keys.groupPartition(topic, 0, group);
    await expect(
      Promise.all([mq.client.xlen(retryStream), mq.client.zcard(retry), mq.client.hlen(retryItems)]),
    ).resolves.toEqual([0, 0, 0]);
  }
});

it('a group that comes later sees each message once and in order, whatever others had to retry', async () => {
  const topic = uniqueName('orders');
  const a = failTimes(2);
  const instance = await mq.open({ defaultPartitionCount: 1 });
  await instance.start({ topic, group: 'a', handle: a.handle });
  for (const payload of ['first', 'bad', 'last']) await instance.producer.send(topic, payload);
  await waitFor(() => a.seen.length === 5);
  const late = recorder();
  const other = await mq.open();
  await other.start({ topic, group: 'late', handle: late.handle });
  await waitFor(() => late.seen.length >= 3);
  await bothReach(topic, instance, a.seen, late.seen);
  expect(late.seen).toEqual([
    ['first', 1],
    ['bad', 1],
    ['last', 1],
  ]);
});
