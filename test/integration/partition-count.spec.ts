import { keyPartition } from '../../libs/redis-streams-mq/src/core/partitioner.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
const quick = { rebalanceIntervalSec: 0.3 };
const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

let topic: string;
let handling: HandlingRecord;
beforeEach(() => {
  topic = uniqueName('topic');
  handling = new HandlingRecord();
});

const setCount = (count: number): Promise<number> => mq.client.hset(mq.keys.topic(topic).meta, 'partitionCount', count);

const owned = async (partitions: number): Promise<number> =>
  mq.client.exists(...range(partitions).map((p) => mq.keys.groupPartition(topic, p, group).lease));

/** Everything the topic has, in `partitions` partitions, is handled and acknowledged. */
async function nothingLeft(partitions: number): Promise<boolean> {
  for (const p of range(partitions)) {
    const groups = (await mq.client.xinfo('GROUPS', mq.keys.stream(topic, p))) as unknown[][];
    const fields = new Map(groups.map((flat) => [flat[1], { pending: flat[5], lag: flat.at(-1) }]));
    const { pending, lag } = fields.get(group) ?? {};
    if (pending !== 0 || lag !== 0) return false;
  }
  return true;
}

async function consumer(name: string): Promise<TestInstance> {
  const instance = await mq.open({ ...quick, defaultPartitionCount: 4 });
  return instance.start({ topic, group, handle: handling.handler(name) });
}

describe('DEL-29 a partition count that is raised while instances run', () => {
  it('is noticed by producers and consumers and reported; new partitions are read, and nothing is lost or doubled', async () => {
    const [a, b] = [await consumer('a'), await consumer('b')];
    const warnings = [record(a, 'warning'), record(b, 'warning')];
    await waitFor(async () => (await owned(4)) === 4);
    let sent = 0;
    const send = async (producer: TestInstance['producer']): Promise<number> =>
      (await producer.send(topic, { n: sent++ }, { key: `key-${sent % 50}` })).partition;
    for (let i = 0; i < 100; i++) expect(await send(a.producer)).toBeLessThan(4);

    await setCount(8);
    // A producer without handlers notices it by itself, beside its sends.
    const producer = (await mq.open(quick)).producer;
    await waitFor(async () => (await send(a.producer)) >= 4 && (await send(producer)) >= 4);
    for (let i = 0; i < 200; i++) await send(i % 2 === 0 ? a.producer : producer);
    await waitFor(async () => (await owned(8)) === 8);
    await waitFor(() => handling.handled === sent);
    await waitFor(() => nothingLeft(8));
    expect(handling.calls).toHaveLength(sent);
    expect(handling.disorder).toEqual([]);
    // From then on a key has one partition, and it is the one of the new count.
    for (const key of ['key-1', 'key-2', 'key-3']) {
      const { partition } = await producer.send(topic, { n: sent++ }, { key });
      expect(partition).toBe(keyPartition(key, 8));
    }
    for (const seen of warnings) {
      expect(seen).toEqual([
        {
          message: 'the partition count of a topic was raised: keys have moved to other partitions',
          fields: { topic, group, before: 4, partitionCount: 8 },
        },
      ]);
    }
  });

  it('keeps retries, dead letters and replays in the partitions they came from', async () => {
    const instance = await mq.open({ ...quick, defaultPartitionCount: 2, retryMaxAttempts: 2 });
    let isFixed = false;
    await instance.start({
      topic,
      group,
      handle: handling.handler('a', () => {
        if (!isFixed) throw new Error('not yet');
      }),
    });
    for (const n of range(10)) await instance.producer.send(topic, { n }, { key: `key-${n}` });
    const { deadLetters } = instance.runtime;
    await waitFor(async () => (await deadLetters.size(topic)) === 10);
    await setCount(5);
    await waitFor(async () => (await owned(5)) === 5);
    isFixed = true;
    const before = new Map(handling.calls.map((call) => [call.n, call.partition]));
    handling.calls.length = 0;
    await deadLetters.replayAll(topic);
    await waitFor(() => handling.handled === 10);
    expect(new Map(handling.calls.map((call) => [call.n, call.partition]))).toEqual(before);
  });
});

describe('DEL-29 a partition count that is lowered', () => {
  it('is reported, holds up nothing, and what waited beyond it is handled once it is raised again', async () => {
    // It will not notice.
    const producer = await mq.open({ rebalanceIntervalSec: 60 });
    await producer.runtime.admin.createTopic(topic, { partitionCount: 8 });
    await producer.producer.send(topic, { n: 0 }, { partition: 0 });
    const a = await consumer('a');
    const warnings = record(a, 'warning');
    await waitFor(async () => (await owned(8)) === 8);
    await setCount(4);
    await waitFor(async () => warnings.length === 1 && (await owned(8)) === 4);
    expect(warnings[0]).toEqual({
      message: 'the partition count of a topic was lowered: what waits in the partitions beyond it is not read',
      fields: { topic, group, before: 8, partitionCount: 4 },
    });
    for (const n of range(80).slice(1)) await producer.producer.send(topic, { n }, { partition: n % 8 });
    await waitFor(() => handling.handled >= 40);
    expect(handling.calls.every((call) => call.partition < 4)).toBe(true);
    await setCount(8);
    await waitFor(() => handling.handled === 80);
    expect(handling.calls).toHaveLength(80);
    expect(handling.disorder).toEqual([]);
  });

  it('by making the topic again: what was bound for a partition that is no more goes where its key goes, in order', async () => {
    const producer = await mq.open({ rebalanceIntervalSec: 60 });
    const { admin } = producer.runtime;
    await admin.createTopic(topic, { partitionCount: 8 });
    for (const partition of range(8)) await producer.producer.send(topic, { n: -1 }, { partition });
    const { meta, partitions } = mq.keys.topic(topic);
    await mq.client.del(meta, partitions, ...range(8).map((p) => mq.keys.stream(topic, p)));
    const other = await mq.open();
    await other.runtime.admin.createTopic(topic, { partitionCount: 2 });
    const results = await Promise.all(
      range(200).map((n) => producer.producer.send(topic, { n }, { key: `key-${n % 20}`, timeoutMs: 5_000 })),
    );
    expect(new Set(results.map(({ partition }) => partition))).toEqual(new Set([0, 1]));
    await expect(producer.producer.send(topic, {}, { partition: 5 })).rejects.toMatchObject({
      code: 'MQ_INVALID_PARTITION',
    });
    await other.start({ topic, group, handle: handling.handler('a') });
    await waitFor(() => handling.handled === 200);
    expect(handling.calls).toHaveLength(200);
    for (const call of handling.calls)
      expect(results[call.n]).toMatchObject({ partition: call.partition, id: call.id });
    for (const key of range(20).map((n) => `key-${n}`)) {
      const ns = handling.calls.filter((call) => call.key === key).map((call) => call.n);
      expect(ns).toEqual(ns.toSorted((x, y) => x - y));
    }
  });
});

describe('DEL-29 instances that want other counts than the topic has', () => {
  it('use the one it has, and whoever asked for another by name is told', async () => {
    const four = await mq.open({ defaultPartitionCount: 4 });
    const eight = await mq.open({ defaultPartitionCount: 8 });
    const warnings = record(eight, 'warning');
    await four.runtime.admin.createTopic(topic);
    await expect(eight.runtime.admin.createTopic(topic)).resolves.toMatchObject({ partitionCount: 4 });
    expect(warnings).toEqual([]);
    await expect(eight.runtime.admin.createTopic(topic, { partitionCount: 8 })).resolves.toMatchObject({
      partitionCount: 4,
    });
    expect(warnings).toEqual([
      {
        message: 'a topic exists with another partition count than was asked for, and keeps it',
        fields: { topic, partitionCount: 4, asked: 8 },
      },
    ]);
    await four.start({ topic, group, handle: handling.handler('four') });
    const partitions = new Set<number>();
    for (const n of range(100)) partitions.add((await eight.producer.send(topic, { n }, { key: `${n}` })).partition);
    expect(partitions).toEqual(new Set([0, 1, 2, 3]));
    await expect(eight.producer.send(topic, {}, { partition: 6 })).rejects.toMatchObject({
      code: 'MQ_INVALID_PARTITION',
    });
    await waitFor(() => handling.handled === 100);
  });
});
