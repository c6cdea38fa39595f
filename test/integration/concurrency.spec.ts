import type { StreamHandlerOptions } from '../../libs/redis-streams-mq/src/core/handler-options.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, type Deferred, waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
const base: MqOptions = {
  defaultPartitionCount: 1,
  leaseTtlSeconds: 1.5,
  renewIntervalSec: 0.3,
  rebalanceIntervalSec: 0.3,
  consumerPollTimeoutMs: 200,
  drainTimeoutMs: 300,
};

let topic: string;
let handling: HandlingRecord;
let gates: Map<number, Deferred<void>>;
beforeEach(() => {
  topic = uniqueName('topic');
  handling = new HandlingRecord();
  gates = new Map();
});
afterEach(() => {
  for (const gate of gates.values()) gate.resolve();
});

const gate = (n: number): Deferred<void> => {
  const known = gates.get(n) ?? deferred();
  gates.set(n, known);
  return known;
};
const started = (): number[] => handling.order();
/** Every call waits for its gate. */
const gated = (name = 'a') => handling.handler(name, async (_message, { n }) => gate(n).promise);

async function openWith(handler: StreamHandlerOptions, options: MqOptions = {}, name = 'a') {
  const instance = await mq.open({ ...base, ...options });
  await instance.start({ topic, group, options: handler, handle: gated(name) });
  return instance;
}

async function send(instance: TestInstance, ...messages: [n: number, key?: string][]) {
  for (const [n, key] of messages) await instance.producer.send(topic, { n }, key === undefined ? {} : { key });
}

const pending = async (): Promise<number> => {
  const [count] = (await mq.client.xpending(mq.keys.stream(topic, 0), group)) as [number];
  return count;
};
/** Some turns in which whatever is wrong would have happened. */
const settle = (): Promise<unknown> => new Promise((resolve) => setTimeout(resolve, 60));

describe('messages of a partition that are handled at once', () => {
  it('are one, unless the handler says more', async () => {
    const instance = await openWith({});
    await send(instance, [1, 'a'], [2, 'b']);
    await waitFor(() => started().length === 1);
    await settle();
    expect(started()).toEqual([1]);
    gate(1).resolve();
    await waitFor(() => started().length === 2);
  });

  it('are of different keys with ordering key, and one key keeps its order', async () => {
    const instance = await openWith({ concurrency: 3 });
    await send(instance, [1, 'a'], [2, 'a'], [3, 'b'], [4, 'a'], [5, 'c'], [6, 'd']);
    await waitFor(() => started().length === 3);
    await settle();
    expect(started()).toEqual([1, 3, 5]);
    gate(3).resolve();
    await waitFor(() => started().length === 4);
    expect(started()).toEqual([1, 3, 5, 6]);
    gate(1).resolve();
    await waitFor(() => started().length === 5);
    expect(started()).toEqual([1, 3, 5, 6, 2]);
    gate(2).resolve();
    await waitFor(() => started().length === 6);
    for (const n of [4, 5, 6]) gate(n).resolve();
    await waitFor(async () => (await pending()) === 0);
    expect(handling.calls).toHaveLength(6);
  });

  it('may be any without a key', async () => {
    const instance = await openWith({ concurrency: 3 });
    await send(instance, [1], [2], [3], [4]);
    await waitFor(() => started().length === 3);
    await settle();
    expect(started()).toEqual([1, 2, 3]);
  });

  it('are whatever is there with ordering none', async () => {
    const instance = await openWith({ concurrency: 3, ordering: 'none' });
    await send(instance, [1, 'a'], [2, 'a'], [3, 'a'], [4, 'a']);
    await waitFor(() => started().length === 3);
    gate(2).resolve();
    await waitFor(() => started().length === 4);
    expect(started()).toEqual([1, 2, 3, 4]);
  });

  it('are together bounded by workerThreads over all partitions', async () => {
    const instance = await openWith(
      { concurrency: 5, ordering: 'none' },
      { workerThreads: 3, defaultPartitionCount: 2 },
    );
    for (let n = 0; n < 12; n++) await instance.producer.send(topic, { n }, { partition: n % 2 });
    await waitFor(() => started().length === 3);
    await settle();
    expect(started()).toHaveLength(3);
    for (let n = 0; n < 12; n++) gate(n).resolve();
    await waitFor(() => started().length === 12);
    expect(handling.repeated).toEqual([]);
  });

  it('are acknowledged in the order in which they end; the commit position waits for the oldest', async () => {
    const instance = await openWith({ concurrency: 3 });
    const ids: string[] = [];
    for (const [n, key] of [
      [1, 'a'],
      [2, 'b'],
      [3, 'c'],
    ] as const) {
      ids.push((await instance.producer.send(topic, { n }, { key })).id!);
    }
    await waitFor(() => started().length === 3);
    gate(3).resolve();
    gate(2).resolve();
    await waitFor(async () => (await pending()) === 1);
    const position = async (): Promise<string> => (await mq.client.hget(mq.keys.partition(topic, 0).commit, group))!;
    const [ms, seq] = ids[0]!.split('-').map(Number) as [number, number];
    const before = seq > 0 ? `${ms}-${seq - 1}` : `${ms - 1}-18446744073709551615`;
    expect(await position()).toBe(before);
    gate(1).resolve();
    await waitFor(async () => (await pending()) === 0);
    expect(await position()).toBe(ids[2]);
  });

  it('that outlive their time keep their key and their place alone', async () => {
    const instance = await openWith(
      { concurrency: 2, handlerTimeoutMs: 100 },
      { retryBaseBackoffMs: 10_000, retryMaxBackoffMs: 10_000 },
    );
    await send(instance, [1, 'a'], [2, 'a'], [3, 'b'], [4, 'b']);
    await waitFor(() => started().length === 2);
    gate(3).resolve();
    gate(4).resolve();
    await waitFor(() => started().length === 3);
    const health = async () => (await instance.runtime.health.readiness()).redisStreamsMq!;
    await waitFor(async () => (await health()).status === 'down');
    expect((await health()).stuckHandlers).toHaveLength(1);
    await settle();
    expect(started()).toEqual([1, 3, 4]);
    gate(1).resolve();
    await waitFor(() => started().length === 4);
    expect((await health()).status).toBe('up');
  });

  it('are all waited for at a hand-over, and none is repeated', async () => {
    const first = await openWith({ concurrency: 4 }, { defaultPartitionCount: 2 });
    for (let n = 0; n < 16; n++) await first.producer.send(topic, { n }, { partition: n % 2, key: `k${n}` });
    await waitFor(() => started().length === 8);
    const second = await openWith({ concurrency: 4 }, {}, 'b');
    const got = record(second, 'leaseAcquired');
    await settle();
    expect(got).toEqual([]);
    for (let n = 0; n < 16; n++) gate(n).resolve();
    await waitFor(() => got.length === 1 && handling.handled === 16);
    expect(handling.repeated).toEqual([]);
  });

  it('are told, all of them, that the lease was lost', async () => {
    const aborted: number[] = [];
    const instance = await mq.open(base);
    await instance.start({
      topic,
      group,
      options: { concurrency: 3 },
      handle: handling.handler('a', async ({ context }, { n }) => {
        context.signal.addEventListener('abort', () => aborted.push(n));
        await gate(n).promise;
      }),
    });
    await send(instance, [1, 'a'], [2, 'b'], [3, 'c']);
    await waitFor(() => started().length === 3);
    await mq.client.set(mq.keys.groupPartition(topic, 0, group).lease, 'someone#1');
    await waitFor(() => aborted.length === 3);
    await mq.client.del(mq.keys.groupPartition(topic, 0, group).lease);
  });

  it('are told, all of them, that the process stops, and come again', async () => {
    const instance = await openWith({ concurrency: 3 }, { drainTimeoutMs: 100 });
    await send(instance, [1, 'a'], [2, 'b'], [3, 'c']);
    await waitFor(() => started().length === 3);
    await instance.close();
    expect(await pending()).toBe(3);
    await openWith({ concurrency: 3 }, {}, 'b');
    for (const n of [1, 2, 3]) gate(n).resolve();
    await waitFor(() => handling.by('b').length === 3);
    await waitFor(async () => (await pending()) === 0);
  });

  it('are one, in the order of the partition, of what an owner may have died on', async () => {
    const dead = await openWith({ concurrency: 3 });
    await send(dead, [1, 'a'], [2, 'b'], [3, 'c'], [4, 'd'], [5, 'e']);
    await waitFor(() => started().length === 3);
    await mq.client.set(mq.keys.groupPartition(topic, 0, group).lease, 'someone#1');
    const lost = record(dead, 'leaseLost');
    await waitFor(() => lost.length === 1);
    void dead.close();
    await mq.client.del(mq.keys.groupPartition(topic, 0, group).lease);
    for (const n of [1, 2, 3]) gate(n).resolve();
    gates.clear();
    await openWith({ concurrency: 3 }, {}, 'b');
    await waitFor(() => handling.by('b').length === 1);
    await settle();
    expect(handling.by('b').map(({ n }) => n)).toEqual([1]);
    for (const n of [1, 2, 3, 4, 5]) gate(n).resolve();
    await waitFor(() => handling.by('b').length === 5);
    expect(handling.order(handling.by('b'))).toEqual([1, 2, 3, 4, 5]);
  });
});
