import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

onEachKind('pending entries', (redis) => {
  const group = 'g';
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
  let topic: string;
  let instance: TestInstance;
  let admin: TestInstance['runtime']['admin'];
  beforeEach(async () => {
    topic = uniqueName('topic');
    instance = await redis.open({ defaultPartitionCount: 3 });
    ({ admin } = instance.runtime);
  });
  type Options = Parameters<typeof admin.listPending>[2];
  const pages = async (options: Options): Promise<Awaited<ReturnType<typeof admin.listPending>>['items'][]> => {
    const all = [];
    let cursor: string | null | undefined;
    while (cursor !== null) {
      const page = await admin.listPending(topic, group, { ...options, ...(cursor === undefined ? {} : { cursor }) });
      expect(page.isComplete).toBe(true);
      all.push(page.items);
      cursor = page.cursor;
    }
    return all;
  };

  it('of handlers at work are listed with their messages, those of retries too, and are gone when they are settled', async () => {
    const record = new HandlingRecord();
    const gate = deferred();
    await instance.start({
      topic,
      group,
      handle: record.handler('a', async ({ context }, { n }) => {
        if (n === 0 && context.attempt === 1) throw new Error('once');
        await gate.promise;
      }),
    });
    const sent: Awaited<ReturnType<TestInstance['producer']['send']>>[] = [];
    for (const n of numbers(6)) {
      sent.push(await instance.producer.send(topic, { n }, { partition: n === 0 ? 0 : 1 + (n % 2), key: 'k' }));
    }
    await waitFor(() => record.calls.some(({ n, attempt }) => n === 0 && attempt === 2) && record.handled === 3);
    const all = await waitFor(async () => {
      const { items } = await admin.listPending(topic, group, { messages: true });
      return items.length === 6 && items;
    });
    const consumer = all[0]!.consumer;
    expect(all.map(({ source }) => source).toSorted()).toEqual(['retry', ...Array<string>(5).fill('stream')]);
    for (const { source, partition, message, ...entry } of all) {
      const { n } = message!.payload as { n: number };
      expect(message).toMatchObject({ id: sent[n]!.id, partition, key: 'k', eventId: sent[n]!.eventId });
      expect(partition).toBe(sent[n]!.partition);
      expect(entry).toMatchObject({ consumer, idleMs: expect.any(Number), deliveries: 1 });
      expect([n, entry.attemptsMade]).toEqual([n, source === 'retry' ? 1 : undefined]);
    }
    expect((await admin.listPending(topic, group, { partition: 1 })).items).toHaveLength(2);
    expect((await admin.listPending(topic, group, { minIdleMs: 3_600_000 })).items).toEqual([]);
    gate.resolve();
    await waitFor(async () => (await admin.listPending(topic, group)).items.length === 0);
  });

  it('are sorted by id, by idle time and by deliveries, page by page', async () => {
    await admin.createTopic(topic);
    const ids: string[] = [];
    for (const partition of numbers(3)) {
      const stream = redis.keys.stream(topic, partition);
      await redis.client.xgroup('CREATE', stream, group, '0');
      for (const n of numbers(7)) {
        const id = `${1_000 + 10 * n + partition}-0`;
        await redis.client.xadd(stream, id, 'payload', '{}', 'eventId', '~e');
        // Read, then as if it had been given out so often and so long ago.
        await redis.client.xreadgroup('GROUP', group, `c${partition}`, 'COUNT', 1, 'STREAMS', stream, '>');
        const idle = 1_000_000 + ((7 * n + 3 * partition) % 20) * 10_000;
        const deliveries = 1 + ((5 * n + partition) % 4);
        const how = ['IDLE', idle, 'RETRYCOUNT', deliveries, 'JUSTID'];
        await redis.client.call('XCLAIM', stream, group, `c${partition}`, 0, id, ...how);
        ids.push(id);
      }
    }
    const byId = await pages({ limit: 5 });
    expect(byId.map((page) => page.length)).toEqual([5, 5, 5, 5, 1]);
    expect(byId.flat().map(({ id }) => id)).toEqual(ids.toSorted());
    expect(byId.flat().map(({ partition, consumer }) => consumer === `c${partition}`)).not.toContain(false);

    const byIdle = (await pages({ limit: 5, sortBy: 'idle' })).flat();
    expect(byIdle.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    const tenths = byIdle.map(({ idleMs }) => Math.floor(idleMs / 10_000));
    expect(tenths).toEqual(tenths.toSorted((a, b) => b - a));

    const byDeliveries = (await pages({ limit: 4, sortBy: 'deliveries' })).flat();
    expect(byDeliveries.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    const counts = byDeliveries.map(({ deliveries }) => deliveries);
    expect(counts).toEqual(counts.toSorted((a, b) => b - a));
    expect(counts[0]).toBe(4);

    const idle = (await pages({ limit: 4, minIdleMs: 1_100_000 })).flat();
    expect(idle.every(({ idleMs }) => idleMs >= 1_100_000)).toBe(true);
    expect(idle.length).toBe(byIdle.filter(({ idleMs }) => idleMs >= 1_100_000).length);
    await redis.client.xdel(redis.keys.stream(topic, 0), '1000-0');
    expect((await admin.listPending(topic, group, { limit: 1, messages: true })).items).toMatchObject([
      { id: '1000-0', message: null },
    ]);
  });

  it('beyond ten thousand are not all sorted, and it is said', async () => {
    await admin.createTopic(topic);
    const stream = redis.keys.stream(topic, 0);
    await redis.client.xgroup('CREATE', stream, group, '0');
    await redis.client.eval(
      `for i = 1, 10500 do redis.call('XADD', KEYS[1], i .. '-0', 'payload', '{}') end
       redis.call('XREADGROUP', 'GROUP', ARGV[1], 'c', 'STREAMS', KEYS[1], '>')`,
      1,
      stream,
      group,
    );
    expect(await admin.listPending(topic, group, { limit: 1, sortBy: 'idle' })).toMatchObject({
      items: [{ partition: 0 }],
      cursor: '1',
      isComplete: false,
    });
  });

  it.each<[string, (of: typeof admin) => Promise<unknown>, string]>([
    ['a topic that is not there', (of) => of.listPending('none', group), 'MQ_TOPIC_NOT_FOUND'],
    ['a group that is not there', (of) => of.listPending(topic, 'none'), 'MQ_GROUP_NOT_FOUND'],
    ['a name that is none', (of) => of.listPending(topic, 'a b'), 'MQ_INVALID_NAME'],
    ['a partition that is not there', (of) => of.listPending(topic, group, { partition: 3 }), 'MQ_INVALID_ARGUMENT'],
    ['an order that is none', (of) => of.listPending(topic, group, { sortBy: 'x' as never }), 'MQ_INVALID_ARGUMENT'],
    ['an idle time that is none', (of) => of.listPending(topic, group, { minIdleMs: -1 }), 'MQ_INVALID_ARGUMENT'],
    ['a cursor of another order', (of) => of.listPending(topic, group, { cursor: '5' }), 'MQ_INVALID_ARGUMENT'],
    [
      'a cursor of another order still',
      (of) => of.listPending(topic, group, { sortBy: 'idle', cursor: '1-0/0/stream' }),
      'MQ_INVALID_ARGUMENT',
    ],
  ])('%s is refused', async (_, ask, code) => {
    await admin.createTopic(topic);
    await expect(ask(admin)).rejects.toMatchObject({ code });
  });
});
