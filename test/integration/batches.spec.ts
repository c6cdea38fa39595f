import type { ReceivedMessage, StreamContext } from '../../libs/redis-streams-mq/src/core/handler.js';
import type { StreamHandlerOptions } from '../../libs/redis-streams-mq/src/core/handler-options.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { BatchFailure } from '../../libs/redis-streams-mq/src/core/batch-results.js';
import { MessageHandleResult, RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import type { TestInstance } from '../support/engine.js';
import { Child } from '../support/child.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
/** Longer than any test. */
const NEVER_MS = 600_000;
const base: MqOptions = {
  defaultPartitionCount: 1,
  leaseTtlSeconds: 1.5,
  renewIntervalSec: 0.3,
  rebalanceIntervalSec: 0.3,
  consumerPollTimeoutMs: 200,
};

interface Batch {
  readonly ns: readonly number[];
  readonly contexts: readonly StreamContext[];
}

const children: Child[] = [];
afterEach(() => Promise.all(children.splice(0).map((child) => child.kill())));

let topic: string;
let batches: Batch[];
beforeEach(() => {
  topic = uniqueName('topic');
  batches = [];
});

const noting =
  (work: (batch: Batch) => unknown = () => undefined) =>
  async (messages: readonly ReceivedMessage[]): Promise<unknown> => {
    const batch = {
      ns: messages.map(({ payload }) => (payload as { n: number }).n),
      contexts: messages.map(({ context }) => context),
    };
    batches.push(batch);
    return work(batch);
  };
const seen = (): number[][] => batches.map(({ ns }) => [...ns]);

async function openWith(
  batch: { size: number; waitMs: number },
  work?: (batch: Batch) => unknown,
  options: StreamHandlerOptions = {},
  more: MqOptions = {},
): Promise<TestInstance> {
  const instance = await mq.open({ ...base, ...more });
  await instance.runtime.admin.createTopic(topic, { partitionCount: more.defaultPartitionCount ?? 1 });
  await instance.start({ topic, group, options: { ...options, batch }, handleBatch: noting(work) });
  return instance;
}

async function send(instance: TestInstance, ns: readonly number[], key?: (n: number) => string): Promise<void> {
  await instance.producer.sendBatch(
    topic,
    ns.map((n) => ({ payload: { n }, ...(key && { key: key(n) }) })),
  );
}

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const nothingPending = (): Promise<unknown> =>
  waitFor(async () => (await mq.client.xpending(mq.keys.stream(topic, 0), group))[0] === 0);

describe('a handler of batches', () => {
  it('gets as many messages as it says at once, also more than a read brings', async () => {
    const instance = await openWith({ size: 25, waitMs: NEVER_MS }, undefined, { batchCount: 4 });
    await send(instance, range(75));
    await waitFor(() => batches.length === 3);
    expect(seen()).toEqual([range(25), range(50).slice(25), range(75).slice(50)]);
    await nothingPending();
  });

  it('gets fewer after waitMs, and in order', async () => {
    const instance = await openWith({ size: 50, waitMs: 150 });
    await send(instance, range(3));
    await waitFor(() => batches.flatMap(({ ns }) => ns).length === 3);
    expect(batches).toHaveLength(1);
    expect(batches[0]!.contexts.map(({ attempt }) => attempt)).toEqual([1, 1, 1]);
    await nothingPending();
  });

  it('never gets messages of several partitions at once', async () => {
    const instance = await openWith({ size: 5, waitMs: 100 }, undefined, {}, { defaultPartitionCount: 3 });
    for (const n of range(30)) await instance.producer.send(topic, { n }, { partition: n % 3 });
    await waitFor(() => batches.flatMap(({ ns }) => ns).length === 30);
    for (const { contexts } of batches) expect(new Set(contexts.map(({ partition }) => partition)).size).toBe(1);
  });

  it('has what it says failed retried, and nothing else, each with its own attempts to the dead letters', async () => {
    const instance = await openWith(
      { size: 4, waitMs: 100 },
      ({ ns }) =>
        ns.map((n) => {
          if (n === 1) return MessageHandleResult.RETRY;
          if (n === 2) return { status: 'rejected', reason: new Error('two') };
          return n === 3 ? MessageHandleResult.FAIL : undefined;
        }),
      { retryMaxAttempts: 3 },
    );
    await send(instance, range(4));
    const letters = await waitFor(async () => {
      const { items } = await instance.runtime.deadLetters.list(topic);
      return items.length === 3 && items;
    });
    await nothingPending();
    const byReason = letters.map(({ reason, attempts, error }) => `${reason} ${attempts} ${error?.message}`);
    expect(byReason.toSorted()).toEqual([
      'exhausted 3 two',
      expect.stringMatching(/^exhausted 3 /),
      expect.stringMatching(/^rejected 1 /),
    ]);
    const calls = (of: number): number[] =>
      batches.flatMap(({ ns, contexts }) => (ns.includes(of) ? [contexts[ns.indexOf(of)]!.attempt] : []));
    expect([calls(0), calls(1), calls(2), calls(3)]).toEqual([[1], [1, 2, 3], [1, 2, 3], [1]]);
  });

  it('names those that failed by a BatchFailure, by index or id', async () => {
    let failures = 0;
    const instance = await openWith({ size: 4, waitMs: 100 }, ({ contexts }) => {
      if (failures++ > 0) return;
      throw new BatchFailure([
        { index: 1, error: new RetryLater(1) },
        { id: contexts[2]!.id },
        { eventId: contexts[3]!.eventId, error: new Error('no') },
      ]);
    });
    await send(instance, range(4));
    await waitFor(() => new Set(batches.slice(1).flatMap(({ ns }) => ns)).size === 3);
    await nothingPending();
    expect(batches[0]!.ns).toEqual(range(4));
    expect(
      batches
        .slice(1)
        .flatMap(({ ns }) => ns)
        .toSorted((a, b) => a - b),
    ).toEqual([1, 2, 3]);
    for (const { contexts } of batches.slice(1)) expect(contexts.map(({ attempt }) => attempt)).not.toContain(1);
  });

  it.each([
    ['throws', () => Promise.reject(new Error('all'))],
    ['returns results of another number', () => [MessageHandleResult.SUCCESS]],
    ['names what is not in the batch', () => Promise.reject(new BatchFailure([{ index: 9 }]))],
    ['names nothing', () => Promise.reject(new BatchFailure([]))],
  ])('that %s has all of them retried', async (_what, end) => {
    let calls = 0;
    const instance = await openWith({ size: 3, waitMs: 100 }, () => (calls++ === 0 ? end() : undefined));
    await send(instance, range(3));
    await waitFor(() => new Set(batches.slice(1).flatMap(({ ns }) => ns)).size === 3);
    await nothingPending();
    expect(batches[0]!.ns).toEqual(range(3));
    expect(batches.slice(1).flatMap(({ contexts }) => contexts.map(({ attempt }) => attempt))).toEqual([2, 2, 2]);
  });

  it('has one time limit for a batch, after which all of it is retried', async () => {
    const aborted: boolean[] = [];
    const instance = await openWith(
      { size: 2, waitMs: NEVER_MS },
      ({ contexts }) =>
        new Promise<void>((resolve) => {
          if (contexts[0]!.attempt > 1) return resolve();
          contexts[1]!.signal.addEventListener('abort', () => {
            aborted.push(contexts[0]!.signal.aborted);
            resolve();
          });
        }),
      { handlerTimeoutMs: 100 },
    );
    const handled = record(instance, 'handled');
    await send(instance, range(2));
    await waitFor(() => batches.length >= 2);
    expect(aborted).toEqual([true]);
    await nothingPending();
    expect(handled.map(({ outcome }) => outcome)).toEqual(['retry', 'retry', 'success', 'success']);
  });

  it('with a rate limit gets no more messages than it allows', async () => {
    const instance = await openWith({ size: 4, waitMs: 50 }, undefined, { rateLimit: { count: 3, perMs: 600_000 } });
    await send(instance, range(8));
    await waitFor(() => batches.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(batches.flatMap(({ ns }) => ns)).toEqual(range(3));
  });

  it('with retryOrdering key gets one message of a key at once, and none of it before the failed one is done', async () => {
    let failures = 0;
    const instance = await openWith(
      { size: 6, waitMs: 50 },
      ({ ns }) => ns.map((n) => (n === 0 && failures++ < 2 ? MessageHandleResult.RETRY : undefined)),
      { retryOrdering: 'key', retryMaxAttempts: 5 },
    );
    await send(instance, range(9), (n) => `key ${n % 3}`);
    await nothingPendingOf(9);
    for (const { contexts } of batches) expect(new Set(contexts.map(({ key }) => key)).size).toBe(contexts.length);
    const order = batches.flatMap(({ ns }) => ns);
    expect(order.filter((n) => n % 3 === 0)).toEqual([0, 0, 0, 3, 6]);
    expect(order.filter((n) => n % 3 === 1)).toEqual([1, 4, 7]);
    expect(order.filter((n) => n % 3 === 2)).toEqual([2, 5, 8]);
  });

  it('gets the batch of an owner that died again, one message after the other until each has succeeded', async () => {
    const instance = await mq.open(base);
    await instance.runtime.admin.createTopic(topic, { partitionCount: 1 });
    await send(instance, range(3));
    const stream = mq.keys.stream(topic, 0);
    await mq.client.xgroup('CREATE', stream, group, '0');
    await mq.client.xreadgroup('GROUP', group, 'a dead one', 'COUNT', 3, 'STREAMS', stream, '>');
    await send(instance, [3, 4]);
    const batch = { size: 10, waitMs: 200 };
    await instance.start({ topic, group, options: { batch }, handleBatch: noting() });
    await waitFor(() => batches.flatMap(({ ns }) => ns).length === 5);
    await nothingPending();
    expect(seen().slice(0, 3)).toEqual([[0], [1], [2]]);
    expect(batches.slice(3).flatMap(({ ns }) => ns)).toEqual([3, 4]);
  });

  it('takes over more than it holds at once, with pages that are smaller than a batch', async () => {
    const instance = await mq.open({ ...base, claimBatchSize: 5 });
    await instance.runtime.admin.createTopic(topic, { partitionCount: 1 });
    await send(instance, range(40));
    const stream = mq.keys.stream(topic, 0);
    await mq.client.xgroup('CREATE', stream, group, '0');
    await mq.client.xreadgroup('GROUP', group, 'a dead one', 'COUNT', 40, 'STREAMS', stream, '>');
    const options = { batchCount: 4, batch: { size: 12, waitMs: 50 } };
    await instance.start({ topic, group, options, handleBatch: noting() });
    await nothingPendingOf(40);
    expect(batches.flatMap(({ ns }) => ns)).toEqual(range(40));
  });

  it('is not waited for once maxInFlight lets nothing more be read', async () => {
    const instance = await openWith({ size: 10, waitMs: NEVER_MS }, undefined, {}, { maxInFlight: 4 });
    await send(instance, range(12));
    await nothingPendingOf(12);
    expect(batches.flatMap(({ ns }) => ns)).toEqual(range(12));
    expect(Math.max(...batches.map(({ ns }) => ns.length))).toBeLessThanOrEqual(4);
  });

  it('that kills its process on one message gets the batch again, one message after the other', async () => {
    const instance = await mq.open(base);
    await instance.runtime.admin.createTopic(topic, { partitionCount: 1 });
    await send(instance, range(4));
    const handling = new HandlingRecord();
    const { url, keyPrefix: prefix } = mq.redis;
    const options = { ...base, redis: url, keyPrefix: `${prefix}:mq`, streamKeyPrefix: `${prefix}:topic` };
    const victims = ['a', 'b', 'c'];
    for (const name of victims) {
      const child = await Child.load();
      children.push(child);
      const handler = { topic, group, options: { batch: { size: 4, waitMs: NEVER_MS } }, behaviour: { dieOn: [2] } };
      await child.begin({ name, options, handlers: [handler] }, handling);
      await waitFor(() => child.hasEnded, { timeoutMs: 15_000 });
    }
    await instance.start({ topic, group, options: { batch: { size: 4, waitMs: 100 } }, handleBatch: noting() });
    await waitFor(() => batches.flatMap(({ ns }) => ns).includes(3));
    await nothingPending();
    // The batch; then one after the other, up to the one that kills, of those whose acknowledgements did not die with the second.
    const [first, second, third] = victims.map((name) => handling.by(name).map(({ n }) => n));
    expect([first, second]).toEqual([
      [0, 1, 2],
      [0, 1, 2],
    ]);
    expect(third!.length).toBeGreaterThan(0);
    expect(third).toEqual([0, 1, 2].slice(-third!.length));
    expect(seen()).toEqual([[2], [3]]);
  }, 60_000);

  it('is given its batch again when it lost its lease meanwhile', async () => {
    const release = deferred();
    const instance = await openWith({ size: 2, waitMs: NEVER_MS }, () =>
      batches.length === 1 ? release.promise : null,
    );
    await send(instance, range(2));
    await waitFor(() => batches.length === 1);
    await mq.client.del(mq.keys.groupPartition(topic, 0, group).lease);
    await waitFor(() => batches[0]!.contexts[1]!.signal.aborted);
    release.resolve();
    await waitFor(() => new Set(batches.slice(1).flatMap(({ ns }) => ns)).size === 2);
    await nothingPending();
    for (const { contexts } of batches) for (const { attempt } of contexts) expect(attempt).toBe(1);
  });

  it('is not waited for at a shutdown while its batch is not full; the next owner has what was there', async () => {
    const instance = await openWith({ size: 10, waitMs: NEVER_MS });
    await send(instance, range(2));
    await waitFor(async () => (await mq.client.xpending(mq.keys.stream(topic, 0), group))[0] === 2);
    await instance.close();
    expect(batches).toEqual([]);
    await openWith({ size: 2, waitMs: NEVER_MS });
    await waitFor(() => batches.length === 1);
    expect(seen()).toEqual([[0, 1]]);
  });

  it('may run several batches of a partition at once with ordering none', async () => {
    const release = deferred();
    const options = { concurrency: 2, ordering: 'none' } as const;
    const instance = await openWith({ size: 2, waitMs: NEVER_MS }, () => release.promise, options);
    await send(instance, range(6));
    await waitFor(() => batches.length === 2);
    expect(seen()).toEqual([
      [0, 1],
      [2, 3],
    ]);
    release.resolve();
    await waitFor(() => batches.length === 3);
    await nothingPending();
  });

  it('leaves malformed and expired messages out, which become dead letters', async () => {
    const instance = await openWith({ size: 3, waitMs: 100 });
    await mq.client.xadd(mq.keys.stream(topic, 0), '*', 'payload', '{');
    await send(instance, range(2));
    await waitFor(() => batches.flatMap(({ ns }) => ns).length === 2);
    await waitFor(async () => (await instance.runtime.deadLetters.size(topic)) === 1);
    await nothingPending();
    expect(seen()).toEqual([[0, 1]]);
  });
});

async function nothingPendingOf(count: number): Promise<void> {
  await waitFor(() => new Set(batches.flatMap(({ ns }) => ns)).size === count);
  await nothingPending();
}
