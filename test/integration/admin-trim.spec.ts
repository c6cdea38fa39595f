import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import type { TestInstance } from '../support/engine.js';
import { holdNext } from '../support/hold-next.js';
import { record } from '../support/mq-fixture.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

onEachKind('trimming', (redis) => {
  let topic: string;
  beforeEach(() => (topic = uniqueName('topic')));
  afterEach(() => jest.restoreAllMocks());

  const options = { defaultPartitionCount: 2, retentionMaxLenPerPartition: 0, leaseTtlSeconds: 3, renewIntervalSec: 1 };
  const lengths = async ({ runtime }: TestInstance): Promise<number[]> =>
    (await runtime.admin.describeTopic(topic)).partitions.map(({ length }) => length);
  const send = async ({ producer }: TestInstance, count: number): Promise<string[]> => {
    const messages = Array.from({ length: count }, (_, n) => ({ payload: { n }, partition: n % 2 }));
    const { results } = await producer.sendBatch(topic, messages);
    return results.map((result) => (result.status === 'sent' ? result.id! : 'failed'));
  };
  const codeOf = (work: Promise<unknown>): Promise<unknown> =>
    work.then(
      () => 'resolved',
      (error: unknown) => (error as { code?: string }).code ?? error,
    );

  /** A fast group that has everything and a slow one that has `done` messages of each partition. */
  async function twoGroups(count: number, done: number, more = {}) {
    const instance = await redis.open({ ...options, ...more });
    const go = deferred();
    const [fast, slow]: number[][] = [[], []];
    const handled = [0, 0];
    await instance.start(
      { topic, group: 'fast', handle: ({ payload }) => void fast!.push((payload as { n: number }).n) },
      {
        topic,
        group: 'slow',
        handle: async ({ payload, context }) => {
          if (handled[context.partition]! >= done) await go.promise;
          handled[context.partition]!++;
          slow!.push((payload as { n: number }).n);
        },
      },
    );
    const ids = await send(instance, count);
    await waitFor(() => fast!.length === count && slow!.length === 2 * done);
    return { instance, go, fast: fast!, slow: slow!, ids };
  }

  it('by length is per partition, never takes what a group has not settled, and says which one that is', async () => {
    const { instance, go, slow } = await twoGroups(100, 20);
    const { admin } = instance.runtime;
    // What was handled may wait a moment for its settling.
    await waitFor(async () =>
      (await admin.trimTopic(topic, { maxLen: 10 })).partitions.every((of) => of.pinnedBy === 'slow'),
    );
    await waitFor(async () => {
      await admin.trimTopic(topic, { maxLen: 10 });
      return (await lengths(instance)).every((length) => length === 30);
    });
    const report = await admin.trimTopic(topic, { maxLen: 10 });
    expect(report).toMatchObject({ topic, rule: 'maxLen', removed: 0, unsettled: 0 });
    go.resolve();
    await waitFor(() => slow.length === 100);
    expect(new Set(slow).size).toBe(100);
    await waitFor(async () => {
      await admin.trimTopic(topic, { maxLen: 10 });
      return (await lengths(instance)).every((length) => length === 10);
    });
  });

  it('by age, by id and of one partition; purge leaves what is not settled; force takes it, and says how much', async () => {
    const { instance, go, slow, ids } = await twoGroups(100, 20);
    const { admin } = instance.runtime;
    const settled = async (): Promise<boolean> => {
      const groups = (await admin.describeTopic(topic)).partitions.flatMap((of) => of.groups);
      return groups.filter((of) => of.group === 'slow').every((of) => of.lag.messages === 30);
    };
    await waitFor(settled);
    expect(await admin.trimTopic(topic, { olderThanMs: 3_600_000 })).toMatchObject({ removed: 0 });
    const byId = await admin.trimTopic(topic, { beforeId: ids[20]! }, { partition: 0 });
    expect(byId).toEqual({
      topic,
      rule: 'beforeId',
      removed: 10,
      unsettled: 0,
      partitions: [{ partition: 0, removed: 10, unsettled: 0, pinnedBy: null }],
    });
    await waitFor(async () => {
      const byAge = await admin.trimTopic(topic, { olderThanMs: 1 }, { partition: 1 });
      return byAge.partitions[0]!.pinnedBy === 'slow';
    });
    expect(await lengths(instance)).toEqual([40, 30]);
    expect(await admin.purge(topic)).toMatchObject({ rule: 'purge', removed: 10, unsettled: 0 });
    expect(await lengths(instance)).toEqual([30, 30]);
    const forced = await admin.purge(topic, { force: true, partition: 1 });
    expect(forced).toMatchObject({ removed: 30, unsettled: 30 });
    expect(await lengths(instance)).toEqual([30, 0]);
    go.resolve();
    // Partition 0 in full; of partition 1 what its owner had fetched already.
    await waitFor(() => new Set(slow.filter((n) => n % 2 === 0)).size === 50);
    await send(instance, 2);
    await waitFor(async () =>
      (await admin.describeTopic(topic)).partitions.every((of) => of.groups.every((g) => g.lag.messages === 0)),
    );
  });

  it('purge takes nothing that is sent while it works', async () => {
    const instance = await redis.open({ ...options, defaultPartitionCount: 1 });
    const { admin } = instance.runtime;
    await admin.createTopic(topic);
    const before: string[] = [];
    for (let n = 0; n < 4; n++) before.push((await instance.producer.send(topic, { n })).id!);
    const held = holdNext(Connection, 'run', ([call]) => (call as { script: { name: string } }).script.name === 'trim');
    const purged = admin.purge(topic, { force: true });
    await held.reached;
    // Someone else has removed two of them, and two new ones have come.
    await redis.client.xdel(redis.keys.stream(topic, 0), ...before.slice(0, 2));
    const sent: string[] = [];
    for (let n = 4; n < 6; n++) sent.push((await instance.producer.send(topic, { n })).id!);
    held.go();
    expect(await purged).toMatchObject({ rule: 'purge', removed: 2 });
    expect((await admin.getMessages(topic, 0)).items.map(({ id }) => id)).toEqual(sent);
  });

  it('refuses what could mean everything, and what is wrong', async () => {
    const { admin } = (await redis.open(options)).runtime;
    expect(await codeOf(admin.purge(topic))).toBe('MQ_TOPIC_NOT_FOUND');
    expect(await codeOf(admin.setRetention(topic, { maxLen: 1 }))).toBe('MQ_TOPIC_NOT_FOUND');
    await admin.createTopic(topic);
    for (const rule of [
      { maxLen: 0 },
      { maxLen: -1 },
      { maxLen: 0.5 },
      {},
      null,
      { olderThanMs: 0 },
      { beforeId: '5' },
      { maxLen: 5, olderThanMs: 5 },
    ]) {
      expect([rule, await codeOf(admin.trimTopic(topic, rule as { maxLen: number }))]).toEqual([
        rule,
        'MQ_INVALID_ARGUMENT',
      ]);
    }
    expect(await codeOf(admin.purge(topic, { partition: 2 }))).toBe('MQ_INVALID_ARGUMENT');
    for (const change of [{ maxLen: -1 }, { length: 5 }, null, { hardMaxLen: 5, maxLen: 6 }, { maxAgeMs: '5' }])
      expect([change, await codeOf(admin.setRetention(topic, change as object))]).toEqual([
        change,
        'MQ_INVALID_ARGUMENT',
      ]);
  });

  it('bounds of a topic’s own take the place of the options’, are followed by those that run, and can be given back', async () => {
    const instance = await redis.open({ ...options, trimIntervalSec: 0.1, retentionMaxLenPerPartition: 40 });
    await instance.start({ topic, group: 'g', handle: () => undefined });
    const other = await redis.open(options);
    await send(other, 200);
    await waitFor(async () => (await lengths(instance)).every((length) => length === 40));
    const { admin } = other.runtime;
    expect(await admin.setRetention(topic, { maxLen: 15, dlqMaxLen: 7 })).toMatchObject({ maxLen: 15, dlqMaxLen: 7 });
    await waitFor(async () => (await lengths(instance)).every((length) => length === 15));
    expect((await instance.runtime.admin.describeTopic(topic)).retention).toEqual({
      maxLen: 15,
      maxAgeMs: 0,
      hardMaxLen: 0,
      dlqMaxLen: 7,
      dlqMaxAgeMs: 0,
    });
    await admin.setRetention(topic, { maxLen: null, maxAgeMs: undefined });
    await send(other, 200);
    await waitFor(async () => (await lengths(instance)).every((length) => length === 40));
    expect((await instance.runtime.admin.describeTopic(topic)).retention).toMatchObject({ maxLen: 40, dlqMaxLen: 7 });
  });

  it('an abandoned group pins no longer than the option says, loudly; a paused one is not abandoned', async () => {
    const bounds = { trimIntervalSec: 0.1, retentionMaxLenPerPartition: 10, retentionAbandonedGroupMs: 2_500 };
    const instance = await redis.open({ ...options, ...bounds });
    const [leaving, paused] = [await redis.open(options), await redis.open(options)];
    const go = deferred();
    await instance.start({ topic, group: 'stays', handle: () => undefined });
    await leaving.start({ topic, group: 'leaves', handle: () => go.promise });
    await paused.start({ topic, group: 'paused', handle: () => undefined });
    const abandoned = record(instance, 'retentionAbandoned');
    const pinned = record(instance, 'retentionPinned');
    await waitFor(async () => (await instance.runtime.admin.describeTopic(topic)).groups.length === 3);
    await instance.runtime.admin.pause(topic, { group: 'paused' });
    await paused.close();
    await send(instance, 100);
    await waitFor(() => pinned.some(({ group }) => group === 'leaves' || group === 'paused'));
    go.resolve();
    await leaving.close();
    expect(await lengths(instance)).toEqual([50, 50]);
    // Paused for longer than the option, it pins all the same.
    const until = performance.now() + 3_500;
    await waitFor(() => performance.now() > until);
    expect([await lengths(instance), abandoned]).toEqual([[50, 50], []]);
    await instance.runtime.admin.resume(topic, { group: 'paused' });
    await waitFor(async () => (await lengths(instance)).every((length) => length === 10), { timeoutMs: 15_000 });
    await waitFor(() => abandoned.some(({ group }) => group === 'paused'));
    expect(abandoned.every(({ count, idleMs }) => count > 0 && idleMs > 2_500)).toBe(true);
    expect(abandoned.some(({ group }) => group === 'stays')).toBe(false);
  }, 40_000);
});
