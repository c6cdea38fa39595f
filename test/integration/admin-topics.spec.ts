import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

onEachKind('topics', (redis) => {
  const namesOf = (items: readonly { topic: string }[]): string[] => items.map(({ topic }) => topic);
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

  it('are listed page by page, each once, also with a prefix', async () => {
    const { admin } = (await redis.open()).runtime;
    const names = numbers(60).map((i) => `${i % 3 === 0 ? 'even.' : 'odd-'}${i}`);
    for (const name of names) await admin.createTopic(name, { partitionCount: 1 });
    for (const [prefix, expected] of [
      ['', names],
      ['even.', names.filter((name) => name.startsWith('even.'))],
    ] as const) {
      const seen: string[] = [];
      let cursor: string | null | undefined;
      let pages = 0;
      while (cursor !== null) {
        const page = await admin.listTopics({ prefix, limit: 7, ...(cursor === undefined ? {} : { cursor }) });
        expect(page.items.length).toBeLessThanOrEqual(7);
        seen.push(...namesOf(page.items));
        cursor = page.cursor;
        pages++;
      }
      expect(seen.toSorted()).toEqual(expected.toSorted());
      expect(pages).toBeGreaterThan(1);
    }
    expect(await admin.listTopics({ prefix: 'none' })).toEqual({ items: [], cursor: null });
    expect((await admin.listTopics({ prefix: 'odd-1', limit: 1_000 })).items).toContainEqual({
      topic: 'odd-1',
      partitionCount: 1,
      createdAt: expect.any(Number),
    });
  });

  it('of which the registry alone is left are not listed', async () => {
    const { admin } = (await redis.open()).runtime;
    await admin.createTopic('here', { partitionCount: 1 });
    await redis.client.sadd(redis.keys.topics, 'a-ghost', 'z-ghost');
    expect(namesOf((await admin.listTopics()).items)).toEqual(['here']);
    const pages = [await admin.listTopics({ limit: 1 })];
    for (let { cursor } = pages[0]!; cursor !== null; cursor = pages.at(-1)!.cursor) {
      pages.push(await admin.listTopics({ limit: 1, cursor }));
    }
    expect(pages.flatMap(({ items }) => namesOf(items))).toEqual(['here']);
    expect(await admin.topicExists('a-ghost')).toBe(false);
  });

  it.each([
    ['a limit of 0', { limit: 0 }],
    ['a limit beyond 1000', { limit: 1_001 }],
    ['a limit that is none', { limit: NaN }],
    ['a cursor of something else', { cursor: 'x' }],
    ['a prefix that no name has', { prefix: 'a*' }],
  ])('%s is refused', async (_, options) => {
    const { admin } = (await redis.open()).runtime;
    await expect(admin.listTopics(options)).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
  });

  it('are described with what lies on each partition, and who owns it for each group and what is left to do', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const gate = deferred();
    const start = async (): Promise<TestInstance> => {
      const instance = await redis.open({ defaultPartitionCount: 3, retentionMs: 60_000, dlqRetentionMaxLen: 9 });
      return instance.start(
        { topic, group: 'quick', handle: record.handler('quick') },
        { topic, group: 'slow', handle: () => gate.promise },
      );
    };
    const [a, b] = [await start(), await start()];
    const { admin } = a.runtime;
    const describe = (): ReturnType<typeof admin.describeTopic> => admin.describeTopic(topic);
    await waitFor(async () => {
      const owners = (await describe()).partitions.flatMap(({ groups }) => groups.map(({ owner }) => owner?.instance));
      return owners.length === 6 && new Set(owners).size === 2;
    });
    const sent: (string | null)[] = [];
    for (const n of numbers(9)) sent.push((await a.producer.send(topic, { n }, { partition: n % 3 })).id);
    await b.producer.send(topic, { n: 9 }, { partition: 2, delayMs: 600_000 });
    await waitFor(() => record.handled === 9);

    const described = await waitFor(async () => {
      const seen = await describe();
      const settled = seen.partitions.every(({ groups: [quick] }) => quick!.lag.messages === 0);
      const read = seen.partitions.every(({ groups: [, slow] }) => slow!.pending === 3);
      return settled && read && seen;
    });
    expect(described).toMatchObject({
      topic,
      partitionCount: 3,
      groups: ['quick', 'slow'],
      retention: { maxLen: 100_000, maxAgeMs: 60_000, hardMaxLen: 0, dlqMaxLen: 9, dlqMaxAgeMs: 0 },
      next: null,
    });
    const due: unknown = expect.any(Number);
    const owner = { instance: expect.any(String), epoch: expect.any(Number), leaseMs: expect.any(Number) };
    // Before Redis 7 nobody knows how many entries were ever added.
    expect(described.partitions.map((partition) => ({ ...partition, entriesAdded: null }))).toEqual(
      numbers(3).map((partition) => ({
        partition,
        length: 3,
        firstId: sent[partition],
        lastId: sent[partition + 6],
        entriesAdded: null,
        bytes: expect.any(Number),
        deadLetters: 0,
        delayed: partition === 2 ? 1 : 0,
        nextDelayedDue: partition === 2 ? due : null,
        groups: [
          {
            group: 'quick',
            owner,
            isPaused: false,
            isPresent: true,
            lag: { messages: 0, ms: 0, certainty: 'exact' },
            pending: 0,
          },
          {
            group: 'slow',
            owner,
            isPaused: false,
            isPresent: true,
            lag: { messages: 3, ms: expect.any(Number), certainty: 'exact' },
            pending: 3,
          },
        ],
        pinnedBy: null,
        unreadable: [],
      })),
    );
    gate.resolve();
    await waitFor(async () =>
      (await describe()).partitions.every(({ groups }) => groups.every(({ lag }) => lag.messages === 0)),
    );
  });

  it('are described without those that consumed them once, when all have gone', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const instance = await redis.open({ defaultPartitionCount: 1 });
    await instance.start({ topic, group: 'g', handle: record.handler('a') });
    await instance.producer.send(topic, { n: 0 });
    await waitFor(() => record.handled === 1);
    await instance.close();
    const { admin, ...runtime } = (await redis.open()).runtime;
    await runtime.producer.send(topic, { n: 1 });
    const [partition] = (await admin.describeTopic(topic)).partitions;
    expect(partition!.groups).toMatchObject([{ group: 'g', owner: null, lag: { messages: 1 } }]);
    await redis.client.xgroup('DESTROY', redis.keys.stream(topic, 0), 'g');
    const [lost] = (await admin.describeTopic(topic)).partitions;
    expect(lost!.groups).toMatchObject([{ group: 'g', owner: null, isPresent: false, lag: { messages: 1 } }]);
  });

  it('name the group for which more is kept than retention wants', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const gate = deferred();
    const instance = await redis.open({ defaultPartitionCount: 1, retentionMaxLenPerPartition: 5, trimIntervalSec: 1 });
    await instance.start(
      { topic, group: 'quick', handle: record.handler('quick') },
      { topic, group: 'slow', handle: () => gate.promise },
    );
    for (const n of numbers(20)) await instance.producer.send(topic, { n });
    const partition = async () => (await instance.runtime.admin.describeTopic(topic)).partitions[0]!;
    await waitFor(async () => (await partition()).pinnedBy === 'slow');
    expect((await partition()).length).toBe(20);
    gate.resolve();
    await waitFor(async () => (await partition()).length <= 6, { timeoutMs: 20_000 });
    expect((await partition()).pinnedBy).toBeNull();
  });

  it('are described a page of partitions at a time', async () => {
    const { admin } = (await redis.open()).runtime;
    const topic = uniqueName('topic');
    await admin.createTopic(topic, { partitionCount: 5 });
    const first = await admin.describeTopic(topic, { limit: 3 });
    expect(first).toMatchObject({ partitionCount: 5, next: 3 });
    const second = await admin.describeTopic(topic, { from: 3, limit: 3 });
    expect(second.next).toBeNull();
    expect([first, second].flatMap(({ partitions }) => partitions.map(({ partition }) => partition))).toEqual(
      numbers(5),
    );
    await expect(admin.describeTopic(topic, { from: -1 })).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    await expect(admin.describeTopic('none')).rejects.toMatchObject({ code: 'MQ_TOPIC_NOT_FOUND' });
  });
});
