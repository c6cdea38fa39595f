import { DeadLetter, RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import type { DeadLetter as Letter } from '../../libs/redis-streams-mq/src/core/dead-letter.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

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

const oneLetter = (instance: TestInstance): Promise<Letter> =>
  waitFor(async () => (await instance.runtime.deadLetters.list(topic)).items[0]);

describeWithServer('a full Redis', () => {
  afterEach(() => mq.client.config('SET', 'maxmemory', '0'));

  it('DEL-20 goes on handling and acknowledging; what fails stays pending and is retried when there is room', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, retryMaxAttempts: 50 });
    const lost = record(instance, 'leaseLost');
    const gate = deferred();
    const early = range(5).map((n) => `early ${n}`);
    const calls = new Map<string, number>();
    const done: string[] = [];
    let isFull = true;
    await instance.start({
      topic,
      group,
      handle: async ({ payload, context }) => {
        const name = payload as string;
        calls.set(name, (calls.get(name) ?? 0) + 1);
        if (name === 'gate') await gate.promise;
        if (name.startsWith('early') && context.attempt === 1) throw new RetryLater(500);
        if (name.startsWith('bad') && isFull) throw new Error('downstream is away');
        done.push(name);
      },
    });
    for (const name of early) await instance.producer.send(topic, name);
    await waitFor(async () => (await mq.client.zcard(keys().retry)) === 5);
    const rest = range(40).map((n) => (n % 4 === 3 ? `bad ${n}` : `good ${n}`));
    await instance.producer.sendBatch(
      topic,
      ['gate', ...rest].map((payload) => ({ payload })),
    );
    await waitFor(() => calls.has('gate'));
    await mq.client.config('SET', 'maxmemory', '1');
    gate.resolve();
    await waitFor(async () => done.length === 31 && (await pending()) === 10);
    // Past the time at which the early ones are due.
    const dueAt = Number((await mq.client.zrange(keys().retry, '-1', '-1', 'WITHSCORES'))[1]);
    const faults = record(instance, 'fault');
    await waitFor(async () => Number((await mq.client.time())[0]) * 1_000 > dueAt + 1_000);
    await waitFor(() => faults.some(({ component }) => component.startsWith('mover:')));
    await expect(mq.client.zcard(keys().retry)).resolves.toBe(5);
    await expect(pending()).resolves.toBe(10);
    expect([...calls.values()].every((count) => count === 1)).toBe(true);
    await expect(instance.producer.send(topic, 'x')).rejects.toMatchObject({ code: 'MQ_SEND_REFUSED' });
    isFull = false;
    await mq.client.config('SET', 'maxmemory', '0');
    await waitFor(async () => done.length === 46 && (await isDone()));
    expect(done.toSorted()).toEqual(['gate', ...early, ...rest].toSorted());
    expect(lost).toEqual([]);
    await expect(instance.runtime.deadLetters.size(topic)).resolves.toBe(0);
  });

  it('DEL-20 an instance that starts while it is full handles what is there', async () => {
    const producer = await mq.open({ defaultPartitionCount: 1 });
    const { results } = await producer.producer.sendBatch(
      topic,
      range(20).map((payload) => ({ payload })),
    );
    expect(results).toHaveLength(20);
    await mq.client.config('SET', 'maxmemory', '1');
    const instance = await mq.open();
    const seen: unknown[] = [];
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload) });
    await waitFor(() => seen.length === 20);
    expect(seen).toEqual(range(20));
    await waitFor(async () => (await pending()) === 0);
  });
});

describe('what cannot be settled', () => {
  it('DEL-21 a DLQ key of the wrong type: the message stays pending, the partition goes on, and it gets there after the repair', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, retryMaxAttempts: 2 });
    const faults = record(instance, 'fault');
    const deadEvents = record(instance, 'dead');
    const calls: unknown[] = [];
    await instance.start({
      topic,
      group,
      handle: ({ payload }) => {
        calls.push(payload);
        if (payload === 'bad') throw new Error('never');
      },
    });
    await instance.producer.send(topic, 'before');
    await mq.client.set(keys().dlq, 'foreign');
    await instance.producer.sendBatch(
      topic,
      ['bad', ...range(10)].map((payload) => ({ payload })),
    );
    await waitFor(() =>
      faults.some(({ component, error }) => component.startsWith('settle:') && /WRONGTYPE/.test(String(error))),
    );
    await waitFor(() => calls.length === 13);
    await instance.producer.send(topic, 'after');
    await waitFor(
      async () => calls.at(-1) === 'after' && (await pending()) === 0 && (await pending(keys().retryStream)) === 1,
    );
    expect(deadEvents).toEqual([]);
    await mq.client.del(keys().dlq);
    const letter = await oneLetter(instance);
    expect(letter).toMatchObject({ reason: 'exhausted', attempts: 2 });
    await waitFor(isDone);
    expect(calls).toEqual(['before', 'bad', ...range(10), 'bad', 'after']);
  });

  it('DATA-08 a bucket of the wrong type: the message stays pending, the partition goes on, and it is retried after the repair', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const faults = record(instance, 'fault');
    const calls: [unknown, number][] = [];
    await instance.start({
      topic,
      group,
      handle: ({ payload, context }) => {
        calls.push([payload, context.attempt]);
        if (payload === 'bad' && context.attempt === 1) throw new Error('once');
      },
    });
    await instance.producer.send(topic, 'before');
    await mq.client.set(keys().retryItems, 'foreign');
    await instance.producer.sendBatch(
      topic,
      ['bad', ...range(10)].map((payload) => ({ payload })),
    );
    await waitFor(() => faults.some(({ component }) => component.startsWith('settle:')));
    await waitFor(async () => calls.length === 12 && (await pending()) === 1);
    await mq.client.del(keys().retryItems);
    await waitFor(async () => calls.length === 13 && (await isDone()));
    expect(calls.at(-1)).toEqual(['bad', 2]);
  });

  it('DEL-26 an entry that someone else acknowledged during its handler: nothing is in flight afterwards, and all goes on', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const seen: unknown[] = [];
    await instance.start({
      topic,
      group,
      handle: async ({ payload, context }) => {
        seen.push(payload);
        if (payload === 'acked' || payload === 'failed') await mq.client.xack(keys().stream, group, context.id);
        if (payload === 'failed') throw new Error('too late');
      },
    });
    await instance.producer.sendBatch(
      topic,
      ['acked', 'failed', 'good'].map((payload) => ({ payload })),
    );
    await waitFor(async () => seen.includes('good') && (await pending()) === 0);
    await instance.producer.send(topic, 'after');
    await waitFor(() => seen.includes('after'));
    await waitFor(isDone);
    const closing = instance.runtime.stop();
    await closing;
    expect(seen).toEqual(['acked', 'failed', 'good', 'after']);
    await expect(instance.runtime.deadLetters.size(topic)).resolves.toBe(0);
  });

  it('DEL-26 an entry that was deleted during its handler: a retry of it is not possible, is reported, and all goes on', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const missing = record(instance, 'payloadMissing');
    const seen: unknown[] = [];
    await instance.start({
      topic,
      group,
      handle: async ({ payload, context }) => {
        seen.push(payload);
        if (payload === 'good') return;
        await mq.client.xdel(keys().stream, context.id);
        if (payload === 'failed') throw new Error('too late');
        if (payload === 'rejected') throw new DeadLetter('too late');
      },
    });
    const { results } = await instance.producer.sendBatch(
      topic,
      ['done', 'failed', 'rejected', 'good'].map((payload) => ({ payload })),
    );
    const ids = results.map((result) => (result.status === 'sent' ? result.id : null));
    await waitFor(async () => seen.includes('good') && (await isDone()));
    expect(seen).toEqual(['done', 'failed', 'rejected', 'good']);
    expect(missing.flatMap((event) => event.ids)).toEqual([ids[1], ids[2]]);
    await expect(instance.runtime.deadLetters.size(topic)).resolves.toBe(0);
  });

  it('DEL-26 the stream deleted during a handler: it is made again, and messages sent afterwards are handled', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const seen: unknown[] = [];
    await instance.start({
      topic,
      group,
      handle: async ({ payload }) => {
        if (payload === 'last of the old') await mq.client.del(keys().stream);
        seen.push(payload);
      },
    });
    await instance.producer.send(topic, 'last of the old');
    await waitFor(() => seen.length > 0);
    await instance.producer.send(topic, 'first of the new');
    await waitFor(() => seen.includes('first of the new'));
    await waitFor(isDone);
    expect(seen).toEqual(['last of the old', 'first of the new']);
  });
});
