import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { encodeMessage } from '../../libs/redis-streams-mq/src/core/message.js';
import { newWireEventId } from '../../libs/redis-streams-mq/src/core/event-id.js';
import { RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import { quantile } from '../support/fleet.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

let topic: string;
beforeEach(() => (topic = uniqueName('topic')));

const keys = (partition = 0) => mq.keys.groupPartition(topic, partition, group);

const pending = async (source = keys().stream): Promise<number> =>
  ((await mq.client.xpending(source, group)) as [number])[0];

/** Everything is handled and nothing of the group waits anywhere. */
const isDone = async (): Promise<boolean> => {
  const { stream, retryStream, retry } = keys();
  const [streamPending, retryLength, bucket] = [
    await pending(stream),
    await mq.client.xlen(retryStream),
    await mq.client.zcard(retry),
  ];
  return streamPending + retryLength + bucket === 0;
};

/** Puts messages into the bucket in the product's format, as if each had failed once; returns their item ids. */
async function fillBucket(values: readonly unknown[], due: number, { retry, retryItems } = keys()): Promise<string[]> {
  const ids = values.map((_, i) => `${i + 1}-1`);
  const script = `local fields = {}
    for i = 4, #ARGV do fields[#fields + 1] = ARGV[i] end
    redis.call('HSET', KEYS[2], ARGV[1], cmsgpack.pack({ ARGV[2], 'Error: before', fields }))
    redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])`;
  const pipeline = mq.client.pipeline();
  for (const [i, value] of values.entries()) {
    const fields = encodeMessage({ payload: Buffer.from(JSON.stringify(value)), key: null, eventId: newWireEventId() });
    pipeline.eval(script, 2, retry, retryItems, ids[i]!, '1', due, ...fields);
  }
  for (const [error] of (await pipeline.exec())!) expect(error).toBeNull();
  return ids;
}

const workers: Worker[] = [];
afterEach(() => Promise.all(workers.splice(0).map((worker) => worker.terminate())));

/** What a PING on a connection of its own takes, by which a script that holds up Redis is seen. */
async function watchLatency(): Promise<() => Promise<number[]>> {
  const worker = new Worker(
    `const { parentPort, workerData } = require('node:worker_threads');
    const { connect } = require('node:net');
    const socket = connect(workerData, '127.0.0.1');
    let since = 0, took = [];
    const ping = () => { since = performance.now(); socket.write('PING\\r\\n'); };
    socket.setNoDelay(true).on('connect', ping);
    socket.on('data', () => { took.push(performance.now() - since); setTimeout(ping, 2); });
    parentPort.on('message', () => { parentPort.postMessage(took); took = []; });`,
    { eval: true, workerData: mq.redis.port },
  );
  const take = async (): Promise<number[]> => {
    worker.postMessage('take');
    const [took] = (await once(worker, 'message')) as [number[]];
    return took;
  };
  workers.push(worker);
  await waitFor(async () => (await take()).length > 0);
  return take;
}

describe('the bucket', () => {
  it('DEL-15 bad items in it do not hold up the others, and are reported', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    await instance.runtime.admin.createTopic(topic);
    const { retry, retryItems } = keys();
    await fillBucket(range(10), 1);
    await mq.client.zadd(retry, 0, 'no item', 0, 'garbage', 0, 'no table', 0, 'no fields');
    await mq.client.hset(
      retryItems,
      'garbage',
      Buffer.from('c1ff00', 'hex'),
      'no table',
      Buffer.from('a178', 'hex'),
      'no fields',
      Buffer.from('9101', 'hex'),
    );
    const moved = record(instance, 'moved');
    const seen: [unknown, number][] = [];
    await instance.start({
      topic,
      group,
      handle: ({ payload, context }) => void seen.push([payload, context.attempt]),
    });
    await waitFor(async () => seen.length === 10 && (await mq.client.xlen(keys().retryStream)) === 0);
    expect(seen.toSorted(([a], [b]) => Number(a) - Number(b))).toEqual(range(10).map((n) => [n, 2]));
    expect(moved.flatMap(({ bad }) => bad).toSorted()).toEqual(['garbage', 'no fields', 'no item', 'no table']);
    // What cannot be read is kept for a person to look at; what has no content is forgotten.
    expect((await mq.client.zrange(retry, '0', '-1')).toSorted()).toEqual(['garbage', 'no fields', 'no table']);
    const [, due] = await mq.client.zrange(retry, '0', '0', 'WITHSCORES');
    expect(Number(due)).toBeGreaterThan(Date.now() + 3_000_000);
  });

  it('DEL-14 with 20,000 items due at once drains in scripts of bounded size, each item once, and Redis answers others meanwhile', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, retryMoverBatch: 100 });
    await instance.runtime.admin.createTopic(topic);
    await fillBucket(range(20_000), 1);
    await mq.client.config('SET', 'slowlog-log-slower-than', '50000');
    await mq.client.slowlog('RESET');
    const moved = record(instance, 'moved');
    const seen: number[] = [];
    const latencies = await watchLatency();
    await sleep(1_000);
    const idle = await latencies();
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload as number) });
    await waitFor(async () => seen.length >= 20_000 && (await isDone()), { timeoutMs: 60_000 });
    const busy = await latencies();
    expect(seen.toSorted((a, b) => a - b)).toEqual(range(20_000));
    expect(Math.max(...moved.map((event) => event.moved))).toBeLessThanOrEqual(100);
    const slow = (await mq.client.slowlog('GET', 100)) as [number, number, number, string[]][];
    expect(slow.filter(([, , , [command]]) => /^(EVAL|XREADGROUP|XPENDING)/i.test(command!))).toEqual([]);
    // On a machine that others use, Redis waits for the processor without a drain, too.
    expect(quantile(busy, 0.99)).toBeLessThan(Math.max(50, 3 * Math.max(...idle)));
  }, 90_000);

  it('DEL-15 a bucket that leads to a key of another type holds up no other topic, and is emptied after the repair', async () => {
    const other = topic;
    topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    for (const name of [topic, other]) await instance.runtime.admin.createTopic(name);
    const blocked = mq.keys.groupPartition(other, 0, group);
    await fillBucket(range(10), 1);
    await fillBucket(['late'], 1, blocked);
    await mq.client.set(blocked.retryStream, 'foreign');
    const faults = record(instance, 'fault');
    const seen: unknown[] = [];
    const handle = ({ payload }: { payload: unknown }): void => void seen.push(payload);
    await instance.start({ topic, group, handle }, { topic: other, group, handle });
    await waitFor(async () => seen.length === 10 && (await isDone()));
    await waitFor(() => faults.some(({ error }) => /WRONGTYPE/.test(String(error))));
    await expect(mq.client.zcard(blocked.retry)).resolves.toBe(1);
    expect(new Set(seen)).toEqual(new Set(range(10)));
    await mq.client.del(blocked.retryStream);
    await waitFor(() => seen.length === 11);
    expect(seen.at(-1)).toBe('late');
  });

  it('DEL-15 bad items among delayed messages do not hold up the others, and are reported', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    await instance.producer.sendBatch(
      topic,
      range(10).map((payload) => ({ payload, deliverAt: 1 })),
    );
    const { delayed, delayedItems } = keys();
    const [noItem, garbage] = ['0000000000000001:no item', '0000000000000002:garbage'];
    await mq.client.zadd(delayed, 0, noItem, 0, garbage);
    await mq.client.hset(delayedItems, 'garbage', Buffer.from('c1ff00', 'hex'));
    const moved = record(instance, 'moved');
    const seen: unknown[] = [];
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload) });
    await waitFor(async () => seen.length === 10 && (await isDone()));
    expect(seen).toEqual(range(10));
    expect(moved.flatMap(({ bad }) => bad)).toEqual([noItem, garbage]);
    await expect(mq.client.zrange(delayed, '0', '-1')).resolves.toEqual([garbage]);
  });

  it('an item whose group stopped meanwhile is handled by the next owner, attempts kept', async () => {
    const first = await mq.open({ defaultPartitionCount: 1 });
    const retried = record(first, 'retried');
    await first.start({
      topic,
      group,
      handle: () => {
        throw new RetryLater(100);
      },
    });
    await first.producer.send(topic, 'x');
    await waitFor(() => retried.length === 1);
    await first.close();
    const attempts: number[] = [];
    const second = await mq.open();
    await second.start({ topic, group, handle: ({ context }) => void attempts.push(context.attempt) });
    await waitFor(async () => attempts.length > 0 && (await isDone()));
    expect(attempts.at(-1)).toBe(retried.length + 1);
  });
});
