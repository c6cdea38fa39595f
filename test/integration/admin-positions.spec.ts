import type { ResetFailure, ResetReport } from '../../libs/redis-streams-mq/src/admin/positions.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import type { ResetTarget } from '../../libs/redis-streams-mq/src/admin/reset-target.js';
import { compareStreamIds } from '../../libs/redis-streams-mq/src/core/stream-id.js';
import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const PARTITIONS = 2;

onEachKind('positions', (redis) => {
  const group = 'g';
  let topic: string;
  let handling: HandlingRecord;
  /** By partition, as they were sent. */
  let ids: string[][];
  let sent = 0;
  beforeEach(() => {
    topic = uniqueName('topic');
    handling = new HandlingRecord();
    ids = [[], []];
    sent = 0;
  });
  afterEach(() => jest.restoreAllMocks());

  type Work = Parameters<HandlingRecord['handler']>[1];
  const open = (options = {}): Promise<TestInstance> =>
    redis.open({ defaultPartitionCount: PARTITIONS, leaseTtlSeconds: 3, renewIntervalSec: 1, ...options });
  const consumer = async (name: string, work?: Work): Promise<TestInstance> =>
    (await open()).start({ topic, group, handle: handling.handler(name, work) });
  const send = async ({ producer }: TestInstance, count: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      const partition = sent % PARTITIONS;
      const { id } = await producer.send(topic, { n: sent++ }, { partition });
      ids[partition]!.push(id!);
    }
  };
  const handledOf = (partition: number): string[] => handling.of(partition).map((call) => call.id);
  const codeOf = (work: Promise<unknown>): Promise<unknown> =>
    work.then(
      () => 'resolved',
      (error: unknown) => (error as { code?: string }).code ?? error,
    );
  const brief = ({ partitions }: ResetReport) =>
    partitions.map(({ partition, direction, messages }) => [partition, direction, messages]);

  /** A group that has handled `count` messages and is paused. */
  async function pausedAfter(count: number): Promise<TestInstance> {
    const a = await consumer('a');
    await send(a, count);
    await waitFor(() => handling.handled === count);
    await a.runtime.admin.pause(topic, { group });
    handling.calls.length = 0;
    return a;
  }

  it('go back to the earliest, to an id, to a time and by a number: handlers get just what lies behind, once, in order', async () => {
    const a = await pausedAfter(20);
    const { admin } = a.runtime;
    const again = async (target: Parameters<typeof admin.resetPosition>[2], expected: string[][]): Promise<void> => {
      const planned = await admin.resetPosition(topic, group, target, { dryRun: true });
      expect(handling.calls).toEqual([]);
      const done = await admin.resetPosition(topic, group, target);
      expect(done).toEqual({ ...planned, dryRun: false });
      expect(brief(done)).toEqual(
        expected.map((part, partition) => [partition, part.length === 0 ? 'none' : 'back', part.length]),
      );
      await admin.resume(topic, { group });
      await waitFor(() => handling.calls.length === expected.flat().length);
      await admin.pause(topic, { group });
      expect([handledOf(0), handledOf(1)]).toEqual(expected);
      handling.calls.length = 0;
    };
    await again('earliest', ids);
    await again({ ids: { 0: ids[0]![4]!, 1: ids[1]![8]! } }, [ids[0]!.slice(4), ids[1]!.slice(8)]);
    await again({ by: -3 }, [ids[0]!.slice(-3), ids[1]!.slice(-3)]);
    await again({ by: -1_000 }, ids);
    const time = Number(ids[0]![5]!.split('-')[0]);
    const since = (part: string[]): string[] => part.filter((id) => Number(id.split('-')[0]) >= time);
    await again({ timestamp: new Date(time) }, [since(ids[0]!), since(ids[1]!)]);
    await again({ timestamp: Date.now() + 3_600_000 }, [[], []]);
    expect(handling.calls).toEqual([]);
  });

  it('go forward: what is skipped is not handled, on the partitions that were named', async () => {
    const a = await pausedAfter(4);
    await send(a, 20);
    const { admin } = a.runtime;
    expect(brief(await admin.resetPosition(topic, group, { by: 3 }, { partitions: [1] }))).toEqual([[1, 'forward', 3]]);
    expect(brief(await admin.resetPosition(topic, group, 'latest', { partitions: [0] }))).toEqual([[0, 'forward', 10]]);
    await admin.resume(topic, { group });
    await waitFor(() => handling.handled === 7);
    await send(a, 2);
    await waitFor(() => handling.handled === 9);
    expect([handledOf(0), handledOf(1)]).toEqual([ids[0]!.slice(12), ids[1]!.slice(5)]);
  });

  it('are refused while the group runs, and nothing has changed; a dry run is not', async () => {
    const a = await consumer('a');
    await send(a, 10);
    await waitFor(() => handling.handled === 10);
    const { admin } = a.runtime;
    const pending = async (partition: number): Promise<unknown> =>
      (await redis.client.xpending(redis.keys.stream(topic, partition), group))[0];
    await waitFor(async () => (await pending(0)) === 0 && (await pending(1)) === 0);
    const error: unknown = await admin.resetPosition(topic, group, 'earliest').catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'MQ_GROUP_RUNNING', context: { topic, group, owners: expect.any(Array) } });
    expect(brief(await admin.resetPosition(topic, group, 'earliest', { dryRun: true }))).toEqual([
      [0, 'back', 5],
      [1, 'back', 5],
    ]);
    await send(a, 10);
    await waitFor(() => handling.handled === 20);
    expect(handling.calls).toHaveLength(20);
    // Stopped instances do as well as a pause.
    await a.close();
    const admins = (await open()).runtime.admin;
    const id = ids[0]!.at(-1)!;
    // Of the other partition as many as have come since then, by the clock of its own master.
    const others = ids[1]!.filter((other) => compareStreamIds(other, id) >= 0).length;
    expect(brief(await admins.resetPosition(topic, group, { id }))).toEqual([
      [0, 'back', 1],
      [1, others > 0 ? 'back' : 'none', others],
    ]);
  });

  it('refuse what is wrong, by name', async () => {
    const { admin } = (await open()).runtime;
    const reset = (target: unknown, options = {}): Promise<unknown> =>
      codeOf(admin.resetPosition(topic, group, target as 'latest', options));
    expect(await reset('latest')).toBe('MQ_TOPIC_NOT_FOUND');
    await admin.createTopic(topic);
    expect(await reset('latest')).toBe('MQ_GROUP_NOT_FOUND');
    for (const target of ['newest', null, {}, { id: '5' }, { by: 1.5 }, { timestamp: -1 }, { ids: { 0: '1-1' } }]) {
      expect([target, await reset(target)]).toEqual([target, 'MQ_INVALID_ARGUMENT']);
    }
    expect(await reset('latest', { partitions: [7] })).toBe('MQ_INVALID_ARGUMENT');
    expect(await codeOf(admin.replayRange(topic, group))).toBe('MQ_GROUP_NOT_FOUND');
    for (const options of [{ from: 'yesterday' }, { to: -1 }, { limit: 0 }, { rate: 0 }, { partition: 2 }])
      expect(await codeOf(admin.replayRange(topic, group, options as object))).toBe('MQ_INVALID_ARGUMENT');
  });

  it('take along what a dead owner had begun: read again behind the position, skipped before it', async () => {
    const hung = await open({ drainTimeoutMs: 1 });
    const never = deferred();
    await hung.start({
      topic,
      group,
      handle: handling.handler('hung', (_, { n }) => (n < 4 ? undefined : never.promise)),
    });
    await send(hung, 20);
    await waitFor(() => handling.calls.length === 6);
    await hung.close();
    const { admin } = (await open()).runtime;
    // It left its lease to end by itself.
    await waitFor(async () => (await codeOf(admin.resetPosition(topic, group, { by: 0 }))) === 'resolved');
    handling.calls.length = 0;
    const report = await admin.resetPosition(topic, group, { by: 2 }, { partitions: [1] });
    expect(brief(report)).toEqual([[1, 'forward', 2]]);
    await consumer('b');
    await waitFor(() => handling.handled === 8 + 6);
    expect([handledOf(0), handledOf(1)]).toEqual([ids[0]!.slice(2), ids[1]!.slice(4)]);
    never.resolve();
  });

  it('that fail on one partition are reported for the others, and can be repeated for that one', async () => {
    const a = await pausedAfter(20);
    const { admin } = a.runtime;
    const { crash } = redis.keys.groupPartition(topic, 1, group);
    await redis.client.rpush(crash, 'a list');
    const error: unknown = await admin.resetPosition(topic, group, { by: -2 }).catch((thrown: unknown) => thrown);
    const { code, context } = error as { code: string; context: { report: ResetReport; failed: ResetFailure[] } };
    expect([code, brief(context.report)]).toEqual(['MQ_RESET_INCOMPLETE', [[0, 'back', 2]]]);
    const target = { id: ids[1]!.at(-2)! };
    expect(context.failed).toEqual([{ partition: 1, error: expect.stringContaining('WRONGTYPE'), target }]);
    await redis.client.del(crash);
    await admin.resetPosition(topic, group, context.failed[0]!.target, { partitions: [1] });
    await admin.resume(topic, { group });
    await waitFor(() => handling.handled === 4);
    expect([handledOf(0), handledOf(1)]).toEqual([ids[0]!.slice(-2), ids[1]!.slice(-2)]);
  });

  it('by a number whose answer was lost lead to the same position however often they are repeated', async () => {
    const a = await pausedAfter(20);
    const { admin } = a.runtime;
    const run = Reflect.get(Connection.prototype, 'run') as Connection['run'];
    let lost = 0;
    jest.spyOn(Connection.prototype, 'run').mockImplementation(async function (this: Connection, call) {
      const reply: unknown = await run.call(this, call);
      if (call.script.name === 'reset-position' && lost++ < 2) throw new Error('the answer was lost');
      return reply;
    });
    const failedOf = async (...args: [ResetTarget, readonly number[]]): Promise<ResetFailure[]> => {
      const error: unknown = await admin
        .resetPosition(topic, group, args[0], { partitions: args[1] })
        .catch((thrown: unknown) => thrown);
      return (error as { context: { failed: ResetFailure[] } }).context.failed;
    };
    const target = { id: ids[1]!.at(-3)! };
    const [first] = await failedOf({ by: -3 }, [1]);
    expect(first).toEqual({ partition: 1, error: 'the answer was lost', target });
    const [second] = await failedOf(first!.target, [1]);
    expect(second!.target).toEqual(target);
    await admin.resetPosition(topic, group, second!.target, { partitions: [1] });
    await admin.resume(topic, { group });
    await waitFor(() => handling.handled === 3);
    expect(handledOf(1)).toEqual(ids[1]!.slice(-3));
  });

  it('leave retries that wait alone, but for those that are read again; or drop them all', async () => {
    let isFixed = false;
    const work: Work = (_, { n }) => {
      if (!isFixed && (n === 2 || n === 14)) throw new Error('not yet');
    };
    const a = await (
      await open({ retryBaseBackoffMs: 600_000, retryMaxBackoffMs: 600_000 })
    ).start({ topic, group, handle: handling.handler('a', work) });
    await send(a, 20);
    await waitFor(() => handling.handled === 20);
    const { admin } = a.runtime;
    await admin.pause(topic, { group });
    isFixed = true;
    const waiting = (): Promise<number> => redis.client.zcard(redis.keys.groupPartition(topic, 0, group).retry);
    expect(await waiting()).toBe(2);
    handling.calls.length = 0;
    // Message 14 is read again, and must come once; message 2 goes on waiting.
    const options = { partitions: [0] };
    const planned = await admin.resetPosition(topic, group, { by: -5 }, { ...options, dryRun: true });
    expect(planned.partitions[0]).toMatchObject({ messages: 5, retriesDropped: 1 });
    expect(await waiting()).toBe(2);
    expect((await admin.resetPosition(topic, group, { by: -5 }, options)).partitions).toEqual(planned.partitions);
    expect(await waiting()).toBe(1);
    await admin.resume(topic, { group });
    await waitFor(() => handling.handled === 5);
    expect(handledOf(0)).toEqual(ids[0]!.slice(5));
    await admin.pause(topic, { group });
    const dropped = await admin.resetPosition(topic, group, 'latest', { ...options, keepRetries: false });
    expect(dropped.partitions[0]).toMatchObject({ messages: 0, retriesDropped: 1 });
    expect(await waiting()).toBe(0);
    await admin.resume(topic, { group });
    await send(a, 2);
    await waitFor(() => handling.handled === 7);
  });

  it('leave what was replayed, and edited, after a death, though the message is read again as well', async () => {
    const work: Work = (_, { n }) => {
      if (n === 0) throw new DeadLetter('no');
    };
    const a = await consumer('a', work);
    await send(a, 4);
    const { deadLetters } = a.runtime;
    await waitFor(async () => (await deadLetters.size(topic)) === 1);
    await a.close();
    const later = await open();
    const { items } = await later.runtime.deadLetters.list(topic);
    await later.runtime.deadLetters.replay(topic, items[0]!.id, { payload: { n: 100 } });
    const { admin } = later.runtime;
    for (const dryRun of [true, false]) {
      const report = await admin.resetPosition(topic, group, 'earliest', { dryRun });
      expect(report.partitions.map(({ retriesDropped }) => retriesDropped)).toEqual([0, 0]);
    }
    handling.calls.length = 0;
    await later.start({ topic, group, handle: handling.handler('b') });
    await waitFor(() => handling.handled === 5);
    expect(handling.calls.map(({ n }) => n).toSorted((x, y) => x - y)).toEqual([0, 1, 2, 3, 100]);
  });

  it('a range is replayed to one group while it runs: just that, in order, with its event ids, attempts reset', async () => {
    const a = await consumer('a');
    const others: string[] = [];
    const b = await open();
    await b.start({ topic, group: 'other', handle: ({ context }) => void others.push(context.id) });
    await send(a, 60);
    await waitFor(() => handling.handled === 60 && others.length === 60);
    handling.calls.length = 0;
    const { admin } = a.runtime;
    const [from, to] = [ids[0]![5]!, ids[0]![24]!];
    const report = await admin.replayRange(topic, group, { from, to, partition: 0 });
    expect(report).toEqual({
      topic,
      group,
      replayed: 20,
      complete: true,
      partitions: [{ partition: 0, replayed: 20, lastId: to }],
    });
    await waitFor(() => handling.calls.length === 20);
    expect(handling.order(handling.of(0))).toEqual(Array.from({ length: 20 }, (_, i) => 10 + 2 * i));
    expect(handling.calls.every((call) => call.attempt === 1 && call.partition === 0)).toBe(true);
    await send(a, 2);
    await waitFor(() => others.length === 62 && handling.handled === 22);
    expect(handling.calls).toHaveLength(22);
  });

  it('a range that is replayed twice before it was handled comes once; limit, rate and time are kept', async () => {
    const a = await pausedAfter(40);
    const { admin } = a.runtime;
    await admin.replayRange(topic, group);
    await admin.replayRange(topic, group);
    await admin.resume(topic, { group });
    await waitFor(() => handling.handled === 40);
    await send(a, 2);
    await waitFor(() => handling.handled === 42);
    expect(handling.calls).toHaveLength(42);

    handling.calls.length = 0;
    const startedAt = performance.now();
    const report = await admin.replayRange(topic, group, {
      from: new Date(0),
      to: Date.now() + 1e6,
      limit: 25,
      rate: 50,
    });
    expect(performance.now() - startedAt).toBeGreaterThan(350);
    expect(report).toMatchObject({ replayed: 25, complete: false });
    expect(report.partitions.map(({ replayed }) => replayed)).toEqual([21, 4]);
    await waitFor(() => handling.handled === 25);
    const rest = { from: report.partitions[1]!.lastId!, partition: 1 };
    expect(await admin.replayRange(topic, group, rest)).toMatchObject({ replayed: 18, complete: true });
    await waitFor(() => handling.handled === 42);
  });
});
