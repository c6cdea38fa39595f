import { bytesSerializer } from '../../libs/redis-streams-mq/src/core/serializer.js';
import { compareStreamIds } from '../../libs/redis-streams-mq/src/core/stream-id.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

onEachKind('messages', (redis) => {
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
  const nOf = ({ payload }: { payload: unknown }): number => (payload as { n: number }).n;
  let topic: string;
  let instance: TestInstance;
  let admin: TestInstance['runtime']['admin'];
  beforeEach(async () => {
    topic = uniqueName('topic');
    instance = await redis.open({ defaultPartitionCount: 4 });
    ({ admin } = instance.runtime);
  });

  type Sent = Awaited<ReturnType<TestInstance['producer']['send']>>;
  const send = async (count: number, partition = (n: number) => n % 4): Promise<Sent[]> => {
    const sent: Sent[] = [];
    for (const n of numbers(count)) {
      sent.push(
        await instance.producer.send(topic, { n }, { partition: partition(n), key: `k${n}`, headers: { n: `${n}` } }),
      );
    }
    return sent;
  };
  const pages = async (options: Parameters<typeof admin.getMessages>[2]): Promise<number[][]> => {
    const all: number[][] = [];
    let cursor: string | null | undefined;
    while (cursor !== null) {
      const page = await admin.getMessages(topic, 0, { ...options, ...(cursor === undefined ? {} : { cursor }) });
      all.push(page.items.map(nOf));
      cursor = page.cursor;
    }
    return all;
  };

  it('of a partition are read in both directions, page by page, while they are handled', async () => {
    const record = new HandlingRecord();
    await instance.start({ topic, group: 'g', handle: record.handler('a') });
    const sent = await send(60, () => 0);
    await waitFor(() => record.handled === 60);
    expect(await pages({ limit: 25 })).toEqual([
      numbers(25),
      numbers(25).map((n) => n + 25),
      numbers(10).map((n) => n + 50),
    ]);
    expect((await pages({ limit: 7, order: 'newest-first' })).flat()).toEqual(numbers(60).toReversed());
    const [from, to] = [sent[10]!.id!, sent[20]!.id!];
    const middle = numbers(11).map((n) => n + 10);
    expect((await pages({ limit: 4, from, to })).flat()).toEqual(middle);
    expect((await pages({ limit: 4, from, to, order: 'newest-first' })).flat()).toEqual(middle.toReversed());
    expect(await pages({ limit: 60 })).toEqual([numbers(60), []]);
    expect(record.repeated).toEqual([]);
  });

  it('are found by time, both ends included', async () => {
    const stream = redis.keys.stream(topic, 0);
    await admin.createTopic(topic);
    for (const [n, id] of ['1000-0', '1000-5', '1001-0', '2000-1'].entries()) {
      await redis.client.xadd(stream, id, 'payload', JSON.stringify({ n }), 'eventId', `~${n}`);
    }
    expect((await pages({ from: 1_000, to: new Date(1_000) })).flat()).toEqual([0, 1]);
    expect((await pages({ from: 1_001 })).flat()).toEqual([2, 3]);
    expect((await pages({ to: 1_001, order: 'newest-first', limit: 1 })).flat()).toEqual([2, 1, 0]);
  });

  it('are decoded', async () => {
    const { id, eventId } = await instance.producer.send(
      topic,
      { text: 'grüße' },
      { partition: 2, key: 'k', headers: { a: 'b' }, timestamp: 5, ttlMs: 60_000 },
    );
    const message = await admin.getMessage(topic, 2, id!);
    expect(message).toEqual({
      topic,
      partition: 2,
      id,
      publishedAt: Number(id!.split('-')[0]),
      timestamp: 5,
      key: 'k',
      eventId,
      headers: { a: 'b' },
      ttlMs: 60_000,
      payload: { text: 'grüße' },
      payloadBytes: Buffer.from('{"text":"grüße"}'),
      problem: null,
      fields: expect.any(Array),
    });
    expect(await admin.getMessage(topic, 1, id!)).toBeNull();
  });

  it('that cannot be decoded are there, with what is known of them', async () => {
    const stream = redis.keys.stream(topic, 0);
    await admin.createTopic(topic);
    await redis.client.xadd(stream, '1-0', 'foreign', 'entry');
    await redis.client.xadd(stream, '2-0', 'payload', 'not json', 'eventId', '~mine');
    expect((await admin.getMessages(topic, 0)).items).toMatchObject([
      { id: '1-0', eventId: null, payloadBytes: null, problem: 'malformed stream entry: no payload field' },
      {
        id: '2-0',
        eventId: 'mine',
        payloadBytes: Buffer.from('not json'),
        problem: expect.stringContaining('not JSON'),
      },
    ]);
    const bytes = (await redis.open({ serializer: bytesSerializer })).runtime.admin;
    expect(await bytes.getMessage(topic, 0, '2-0')).toMatchObject({ payload: Buffer.from('not json'), problem: null });
  });

  it('that are newest are merged over the partitions', async () => {
    await admin.createTopic(topic);
    expect(await admin.newest(topic, 5)).toEqual([]);
    const sent = await send(40, (n) => (n < 20 ? n % 4 : 1));
    const ids = sent.map(({ id }) => id!).toSorted((a, b) => compareStreamIds(b, a));
    for (const count of [1, 3, 21, 30, 40, 100]) {
      const messages = await admin.newest(topic, count);
      // Of different partitions some may have the same id.
      expect(messages.map(({ id }) => id)).toEqual(ids.slice(0, count));
      expect(new Set(messages.map(nOf)).size).toBe(messages.length);
    }
  });

  it('are found by their event id, also a delayed one, and one whose id tells no time', async () => {
    const sent = await send(40);
    const looked = sent[17]!;
    const found = await admin.findByEventId(topic, looked.eventId);
    expect(found.message).toMatchObject({ id: looked.id, partition: 1, payload: { n: 17 } });
    expect((await admin.findByEventId(topic, looked.eventId, { cursor: found.cursor! })).message).toBeNull();

    await instance.producer.send(topic, { n: 40 }, { eventId: 'order-40', partition: 3 });
    expect(await admin.findByEventId(topic, 'order-40')).toMatchObject({
      message: { partition: 3, payload: { n: 40 } },
    });
    // The time of this one lies years before and behind what is stored.
    for (const [n, eventId] of [
      [41, '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'],
      [42, 'ff7f22e2-79b0-7cc3-98c4-dc0c0c07398f'],
    ] as const) {
      await instance.producer.send(topic, { n }, { eventId, partition: 0 });
      expect(await admin.findByEventId(topic, eventId)).toMatchObject({ message: { eventId, payload: { n } } });
    }
    const none = await admin.findByEventId(topic, '017f22e2-79b0-7cc3-98c4-dc0c0c073990');
    expect(none).toEqual({ message: null, scanned: 43, cursor: null });
  });

  it('are searched no further than asked for, and it is said', async () => {
    await send(30, () => 0);
    await instance.producer.send(topic, { n: 30 }, { eventId: 'mine', partition: 0 });
    let result = await admin.findByEventId(topic, 'mine', { maxScanned: 12 });
    expect(result).toMatchObject({ message: null, scanned: 12 });
    result = await admin.findByEventId(topic, 'mine', { maxScanned: 12, cursor: result.cursor! });
    expect(result).toMatchObject({ message: null, scanned: 12 });
    result = await admin.findByEventId(topic, 'mine', { maxScanned: 12, cursor: result.cursor! });
    expect(result).toMatchObject({ message: { payload: { n: 30 } }, scanned: 7 });
    expect(await admin.findByEventId(topic, 'mine', { partition: 1 })).toEqual({
      message: null,
      scanned: 0,
      cursor: null,
    });
  });

  it.each<[string, (of: typeof admin) => Promise<unknown>, string]>([
    ['a topic that is not there', (of) => of.getMessages('none', 0), 'MQ_TOPIC_NOT_FOUND'],
    ['a name that is none', (of) => of.newest('a b'), 'MQ_INVALID_NAME'],
    ['a partition that is not there', (of) => of.getMessages(topic, 4), 'MQ_INVALID_ARGUMENT'],
    ['a partition that is none', (of) => of.getMessage(topic, -1, '1-0'), 'MQ_INVALID_ARGUMENT'],
    ['an id that is none', (of) => of.getMessage(topic, 0, 'x'), 'MQ_INVALID_ARGUMENT'],
    ['a bound that is none', (of) => of.getMessages(topic, 0, { from: '5' }), 'MQ_INVALID_ARGUMENT'],
    ['a time that is none', (of) => of.getMessages(topic, 0, { to: new Date('x') }), 'MQ_INVALID_ARGUMENT'],
    ['a cursor of something else', (of) => of.getMessages(topic, 0, { cursor: '0/1' }), 'MQ_INVALID_ARGUMENT'],
    ['an order that is none', (of) => of.getMessages(topic, 0, { order: 'asc' as never }), 'MQ_INVALID_ARGUMENT'],
    ['a count of 0', (of) => of.newest(topic, 0), 'MQ_INVALID_ARGUMENT'],
    ['an event id that is none', (of) => of.findByEventId(topic, ''), 'MQ_INVALID_ARGUMENT'],
    ['a search without end', (of) => of.findByEventId(topic, 'x', { maxScanned: Infinity }), 'MQ_INVALID_ARGUMENT'],
  ])('%s is refused', async (_, ask, code) => {
    await admin.createTopic(topic);
    await expect(ask(admin)).rejects.toMatchObject({ code });
  });
});
