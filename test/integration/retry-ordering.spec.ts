import type { StreamHandlerOptions } from '../../libs/redis-streams-mq/src/core/handler-options.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord, nowMs, type HandlerCall } from '../support/handling-record.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
const base: MqOptions = {
  defaultPartitionCount: 1,
  leaseTtlSeconds: 1.5,
  renewIntervalSec: 0.3,
  rebalanceIntervalSec: 0.3,
  consumerPollTimeoutMs: 200,
  drainTimeoutMs: 1_000,
};
const byKey: StreamHandlerOptions = { retryOrdering: 'key' };

let topic: string;
let handling: HandlingRecord;
/** Per message: up to which attempt it fails. */
let failures: Map<number, number>;
beforeEach(() => {
  topic = uniqueName('topic');
  handling = new HandlingRecord();
  failures = new Map();
});

const started = (calls: readonly HandlerCall[] = handling.calls): [n: number, attempt: number][] =>
  calls.map(({ n, attempt }) => [n, attempt]);
const ofKey = (key: string): [n: number, attempt: number][] =>
  started(handling.calls.filter((call) => call.key === key));

async function open(handler: StreamHandlerOptions = byKey, options: MqOptions = {}, name = 'a'): Promise<TestInstance> {
  const instance = await mq.open({ ...base, ...options });
  await instance.start({
    topic,
    group,
    options: handler,
    handle: handling.handler(name, ({ context }, { n }) => {
      if (context.attempt <= (failures.get(n) ?? 0)) throw new Error('not yet');
    }),
  });
  return instance;
}

async function send(instance: TestInstance, ...messages: [n: number, key?: string][]): Promise<void> {
  for (const [n, key] of messages) await instance.producer.send(topic, { n }, key === undefined ? {} : { key });
}

const keys = () => mq.keys.groupPartition(topic, 0, group);
const pending = async (): Promise<number> => ((await mq.client.xpending(keys().stream, group)) as [number])[0];
const allSettled = (): Promise<unknown> =>
  waitFor(async () => (await pending()) === 0 && (await mq.client.exists(keys().held)) === 0);
/** The owner is gone from one moment to the next, with nothing released. */
async function dies(instance: TestInstance): Promise<void> {
  const lost = record(instance, 'leaseLost');
  await mq.client.set(keys().lease, 'someone#1');
  await waitFor(() => lost.length === 1);
  void instance.close();
  await mq.client.del(keys().lease);
}

describe('retryOrdering key', () => {
  it('lets nothing of a key pass its message that fails, and everything of the other keys', async () => {
    failures.set(2, 2);
    const instance = await open();
    await send(instance, [1, 'a'], [2, 'a'], [3, 'a'], [11, 'b'], [4, 'a'], [12, 'b'], [13, 'c']);
    await waitFor(() => handling.handled === 7);
    expect(ofKey('a')).toEqual([[1, 1], [2, 1], [2, 2], [2, 3], [3, 1], [4, 1]]); // prettier-ignore
    const [others, second] = [
      handling.calls.filter(({ key }) => key !== 'a'),
      handling.calls.find((call) => call.n === 2 && call.attempt === 2)!,
    ];
    for (const call of others) expect(call.startedAt).toBeLessThan(second.startedAt);
    await allSettled();
  });

  it('goes on with the next of the key when the one that failed is a dead letter', async () => {
    failures.set(1, 9);
    const instance = await open({ ...byKey, retryMaxAttempts: 3 });
    await send(instance, [1, 'a'], [2, 'a']);
    await waitFor(() => handling.handled === 2);
    expect(ofKey('a')).toEqual([[1, 1], [1, 2], [1, 3], [2, 1]]); // prettier-ignore
    const { items } = await instance.runtime.deadLetters.list(topic);
    expect(items).toMatchObject([{ reason: 'exhausted', attempts: 3 }]);
    await allSettled();
  });

  it('is kept with other keys being handled at once', async () => {
    for (const n of [3, 10, 11, 20]) failures.set(n, 2);
    const instance = await open({ ...byKey, concurrency: 4 });
    await send(instance, ...Array.from({ length: 40 }, (_, n): [number, string] => [n, `k${n % 5}`]));
    await waitFor(() => handling.handled === 40);
    for (const lane of [0, 1, 2, 3, 4]) {
      const calls = handling.calls.filter(({ n }) => n % 5 === lane).map(({ n }) => n);
      expect(calls).toEqual(calls.toSorted((a, b) => a - b));
    }
    await allSettled();
  });

  it('survives the death of the owner: order, attempts and due times', async () => {
    failures.set(1, 2);
    const first = await open({ ...byKey, retryBaseBackoffMs: 600, retryMaxBackoffMs: 600 });
    await send(first, [1, 'a'], [2, 'a'], [3, 'b']);
    await waitFor(async () => handling.handled === 2 && (await mq.client.hlen(keys().held)) === 1);
    const [, dueText] = (await mq.client.hvals(keys().held))[0]!.split(':');
    await dies(first);
    await open({ ...byKey, retryBaseBackoffMs: 20, retryMaxBackoffMs: 20 }, {}, 'b');
    await waitFor(() => handling.handled === 3);
    expect(ofKey('a')).toEqual([[1, 1], [1, 2], [1, 3], [2, 1]]); // prettier-ignore
    expect(handling.calls.find(({ attempt }) => attempt === 2)!.startedAt).toBeGreaterThan(Number(dueText) - 5);
    await allSettled();
  });

  it('survives a hand-over, which does not wait for what is held', async () => {
    failures.set(1, 1);
    const first = await open({ ...byKey, retryBaseBackoffMs: 1_500, retryMaxBackoffMs: 1_500 });
    await send(first, [1, 'a'], [2, 'a'], [3, 'b']);
    await waitFor(() => handling.handled === 2);
    const closingAt = nowMs();
    await first.close();
    expect(nowMs() - closingAt).toBeLessThan(1_000);
    await open(byKey, {}, 'b');
    await waitFor(() => handling.handled === 3);
    expect(ofKey('a')).toEqual([[1, 1], [1, 2], [2, 1]]); // prettier-ignore
    await allSettled();
  });

  it('is taken over by an owner without it with the attempts that were made', async () => {
    failures.set(1, 9);
    const first = await open({ ...byKey, retryMaxAttempts: 3, retryBaseBackoffMs: 300, retryMaxBackoffMs: 300 });
    await send(first, [1, 'a'], [2, 'a']);
    await waitFor(async () => (await mq.client.hlen(keys().held)) === 1);
    await first.close();
    const next = await open({ retryMaxAttempts: 3 }, {}, 'b');
    await waitFor(async () => (await next.runtime.deadLetters.size(topic)) === 1 && handling.handled === 2);
    expect(ofKey('a').filter(([n]) => n === 1)).toEqual([[1, 1], [1, 2], [1, 3]]); // prettier-ignore
    await allSettled();
  });

  it('waits as long as RetryLater says', async () => {
    const instance = await mq.open(base);
    await instance.start({
      topic,
      group,
      options: byKey,
      handle: handling.handler('a', ({ context }, { n }) => {
        if (n === 1 && context.attempt === 1) throw new RetryLater(400);
      }),
    });
    await send(instance, [1, 'a'], [2, 'a']);
    await waitFor(() => handling.handled === 2);
    const [first, second] = handling.calls;
    expect(started()).toEqual([[1, 1], [1, 2], [2, 1]]); // prettier-ignore
    expect(second!.startedAt - first!.startedAt).toBeGreaterThan(395);
  });

  it('holds nothing behind a message without a key, which is retried as ever', async () => {
    failures.set(1, 1);
    const instance = await open({ ...byKey, retryBaseBackoffMs: 300, retryMaxBackoffMs: 300 });
    await send(instance, [1], [2], [3, 'a']);
    await waitFor(() => handling.calls.length === 4);
    expect(started()).toEqual([[1, 1], [2, 1], [3, 1], [1, 2]]); // prettier-ignore
  });

  it('reads nothing more when as many wait as may be, says so, and goes on', async () => {
    failures.set(0, 1);
    const instance = await open({
      ...byKey,
      maxHeldPerPartition: 10,
      batchCount: 5,
      retryBaseBackoffMs: 1_200,
      retryMaxBackoffMs: 1_200,
    });
    const warnings = record(instance, 'warning');
    const readiness = async () => (await instance.runtime.health.readiness()).redisStreamsMq!;
    await send(instance, [0, 'a']);
    await waitFor(() => handling.handled === 1);
    await instance.producer.sendBatch(
      topic,
      Array.from({ length: 60 }, (_, n) => ({ payload: { n: n + 1 }, key: 'a' })),
    );
    await waitFor(async () => (await readiness()).status === 'down');
    expect((await readiness()).failingPartitions).toEqual([{ partition: `${topic}:p:0:${group}`, error: 'MAX_HELD' }]);
    expect(await pending()).toBeLessThanOrEqual(10 + 3 * 5);
    expect(warnings.map(({ fields }) => fields)).toEqual([{ topic, partition: 0, group, maxHeldPerPartition: 10 }]);
    await waitFor(() => handling.handled === 61);
    expect(handling.order()).toEqual(Array.from({ length: 61 }, (_, n) => n));
    expect((await readiness()).status).toBe('up');
    await allSettled();
  });

  it('counts what waits neither as in flight nor against the other partitions', async () => {
    failures.set(0, 1);
    const instance = await open(
      { ...byKey, retryBaseBackoffMs: 4_000, retryMaxBackoffMs: 4_000 },
      { defaultPartitionCount: 2, maxInFlight: 4 },
    );
    await instance.producer.send(topic, { n: 0 }, { partition: 0, key: 'a' });
    await waitFor(() => handling.handled === 1);
    for (let n = 1; n <= 20; n++) await instance.producer.send(topic, { n }, { partition: 0, key: 'a' });
    for (let n = 21; n <= 40; n++) await instance.producer.send(topic, { n }, { partition: 1, key: 'b' });
    await waitFor(() => handling.of(1).length === 20);
    expect(handling.of(0)).toHaveLength(1);
    await waitFor(() => handling.handled === 41);
    expect(handling.order(handling.of(0))).toEqual(Array.from({ length: 21 }, (_, n) => n));
  });

  it('forgets what was deleted while it waited', async () => {
    failures.set(1, 1);
    const instance = await open({ ...byKey, retryBaseBackoffMs: 400, retryMaxBackoffMs: 400 });
    const missing = record(instance, 'payloadMissing');
    await send(instance, [1, 'a']);
    const { id } = await instance.producer.send(topic, { n: 2 }, { key: 'a' });
    await send(instance, [3, 'a']);
    await waitFor(async () => handling.handled === 1 && (await pending()) === 3);
    await mq.client.xdel(keys().stream, id!);
    await waitFor(() => handling.handled === 2);
    expect(ofKey('a')).toEqual([[1, 1], [1, 2], [3, 1]]); // prettier-ignore
    expect(missing.flatMap(({ ids }) => ids)).toEqual([id]);
    await allSettled();
  });

  it('goes on when what is held was settled past the owner', async () => {
    failures.set(1, 1);
    const instance = await open(
      { ...byKey, retryBaseBackoffMs: 60_000, retryMaxBackoffMs: 60_000 },
      { pendingScanIntervalSec: 0.3 },
    );
    const { id } = await instance.producer.send(topic, { n: 1 }, { key: 'a' });
    await send(instance, [2, 'a']);
    await waitFor(async () => (await mq.client.hlen(keys().held)) === 1);
    await mq.client.xack(keys().stream, group, id!);
    await waitFor(() => handling.handled === 2);
    expect(ofKey('a')).toEqual([[1, 1], [2, 1]]); // prettier-ignore
  });

  it.each(['reply', 'request'] as const)('survives that the %s of the note is lost', async (what) => {
    failures.set(1, 1);
    const proxy = await mq.proxy();
    const instance = await open(
      { ...byKey, retryBaseBackoffMs: 300, retryMaxBackoffMs: 300 },
      { redis: proxy.url, leaseTtlSeconds: 10 },
    );
    await send(instance, [0, 'a']);
    await waitFor(() => handling.handled === 1);
    await allSettled();
    // Both keys are in a settle too, the other way round.
    const isNote = (bytes: Buffer): boolean => {
      const [held, crash] = [bytes.indexOf(keys().held), bytes.indexOf(keys().crash)];
      return held >= 0 && held < crash;
    };
    const sprung = what === 'reply' ? proxy.dropNextReplyMatching(isNote) : proxy.dropNextRequestMatching(isNote);
    await send(instance, [1, 'a']).catch(() => undefined);
    await sprung;
    await waitFor(() => handling.calls.some(({ n, attempt }) => n === 1 && attempt === 2));
    await waitFor(async () => (await pending()) === 0);
    expect(handling.repeated).toEqual([]);
  });

  it('passes nothing while a full Redis refuses the note', async () => {
    failures.set(1, 1);
    const full = async (on: boolean): Promise<unknown> => mq.client.config('SET', 'maxmemory', on ? '1' : '0');
    const instance = await mq.open(base);
    const faults = record(instance, 'fault');
    await instance.start({
      topic,
      group,
      options: byKey,
      handle: handling.handler('a', async ({ context }, { n }) => {
        if (n !== 1 || context.attempt > 1) return;
        await waitFor(async () => (await pending()) === 2);
        await full(true);
        throw new Error('not yet');
      }),
    });
    await send(instance, [1, 'a'], [2, 'a']);
    try {
      await waitFor(() => faults.some(({ component }) => component.startsWith('settle:')));
      expect(started()).toEqual([[1, 1]]);
    } finally {
      await full(false);
    }
    await waitFor(() => handling.handled === 2);
    expect(started()).toEqual([[1, 1], [1, 2], [2, 1]]); // prettier-ignore
    await allSettled();
  });
});

describe('retryOrdering partition', () => {
  it('lets nothing pass a message that fails, with or without a key', async () => {
    failures.set(1, 2);
    const instance = await open({ retryOrdering: 'partition' });
    await send(instance, [1, 'a'], [2, 'b'], [3], [4, 'a']);
    await waitFor(() => handling.handled === 4);
    expect(started()).toEqual([[1, 1], [1, 2], [1, 3], [2, 1], [3, 1], [4, 1]]); // prettier-ignore
    await allSettled();
  });

  it('survives the death of the owner', async () => {
    failures.set(1, 2);
    const first = await open({ retryOrdering: 'partition', retryBaseBackoffMs: 500, retryMaxBackoffMs: 500 });
    await send(first, [1, 'a'], [2, 'b']);
    await waitFor(async () => (await mq.client.hlen(keys().held)) === 1);
    await dies(first);
    await open({ retryOrdering: 'partition' }, {}, 'b');
    await waitFor(() => handling.handled === 2);
    expect(started()).toEqual([[1, 1], [1, 2], [1, 3], [2, 1]]); // prettier-ignore
    await allSettled();
  });
});
