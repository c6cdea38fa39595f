import { MqHandlerTimeoutError } from '../../libs/redis-streams-mq/src/core/errors.js';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { encodeMessage } from '../../libs/redis-streams-mq/src/core/message.js';
import { newWireEventId } from '../../libs/redis-streams-mq/src/core/event-id.js';
import { DeadLetter, MessageHandleResult, RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import type { DeadLetter as Letter } from '../../libs/redis-streams-mq/src/dlq/dead-letter.js';
import { moveRetries } from '../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { moveDelayed } from '../../libs/redis-streams-mq/src/redis/scripts/send.script.js';
import { dead, fail, settle } from '../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';
import { mentions } from '../support/tcp-proxy.js';
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

/** Puts messages into the bucket in the product's format, as if each had failed once; returns their item ids. */
async function fillBucket(values: readonly unknown[], due: number): Promise<string[]> {
  const { retry, retryItems } = keys();
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

describe('the back-off', () => {
  it.each([
    ['the shortest', () => 0, [10, 20, 40, 50]],
    ['the longest', () => 0.999_999, [20, 40, 80, 100]],
  ])('doubles from retryBaseBackoffMs to retryMaxBackoffMs: %s waits', async (_, random, expected) => {
    const instance = await mq.open({ retryBaseBackoffMs: 20, retryMaxBackoffMs: 100 }, { random });
    const retried = record(instance, 'retried');
    const calledAt: number[] = [];
    await instance.start({
      topic,
      group,
      handle: () => {
        calledAt.push(performance.now());
        throw new Error('never');
      },
    });
    await instance.producer.send(topic, 'x');
    await oneLetter(instance);
    expect(retried.map(({ attempt, delayMs }) => [attempt, delayMs])).toEqual(expected.map((ms, i) => [i + 1, ms]));
    // The due time is in whole milliseconds of the server's clock.
    for (const [i, ms] of expected.entries()) expect(calledAt[i + 1]! - calledAt[i]!).toBeGreaterThanOrEqual(ms - 1);
  });

  it('is spread by chance, so that what failed together does not come back together', async () => {
    const instance = await mq.open({ retryBaseBackoffMs: 100, retryMaxBackoffMs: 100 });
    const retried = record(instance, 'retried');
    await instance.start({
      topic,
      group,
      handle: ({ context }) => {
        if (context.attempt === 1) throw new Error('once');
      },
    });
    await instance.producer.sendBatch(
      topic,
      range(60).map((payload) => ({ payload, partition: 0 })),
    );
    await waitFor(() => retried.length === 60);
    const delays = retried.map(({ delayMs }) => delayMs);
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(50);
    expect(Math.max(...delays)).toBeLessThanOrEqual(100);
    expect(new Set(delays).size).toBeGreaterThan(15);
  });

  it('ends when the retry is due, not at the next tick of the mover', async () => {
    const instance = await mq.open({ retryMoverIntervalSec: 60 });
    const attempts: number[] = [];
    await instance.start({
      topic,
      group,
      handle: ({ context }) => {
        attempts.push(context.attempt);
        if (context.attempt < 4) throw new Error('not yet');
      },
    });
    await instance.producer.send(topic, 'x');
    await waitFor(() => attempts.length === 4);
    expect(attempts).toEqual([1, 2, 3, 4]);
  });
});

describe('what the handler says', () => {
  it('RetryLater(ms) decides when, and counts as an attempt', async () => {
    const instance = await mq.open({ retryMaxAttempts: 3 });
    const retried = record(instance, 'retried');
    const calledAt: number[] = [];
    await instance.start({
      topic,
      group,
      handle: () => {
        calledAt.push(performance.now());
        throw new RetryLater(150, 'rate limited');
      },
    });
    await instance.producer.send(topic, 'x');
    const letter = await oneLetter(instance);
    expect(letter).toMatchObject({
      reason: 'exhausted',
      attempts: 3,
      error: { name: 'RetryLater', message: 'rate limited' },
    });
    expect(retried.map(({ attempt, delayMs }) => [attempt, delayMs])).toEqual([
      [1, 150],
      [2, 150],
    ]);
    for (const i of [1, 2]) expect(calledAt[i]! - calledAt[i - 1]!).toBeGreaterThanOrEqual(149);
  });

  it('DEL-19 RetryLater with no usable time waits as the back-off says', async () => {
    const times = [NaN, -1, Infinity, '5', null, {}] as number[];
    const instance = await mq.open({}, { random: () => 0 });
    const retried = record(instance, 'retried');
    let done = 0;
    await instance.start({
      topic,
      group,
      handle: ({ payload, context }) => {
        if (context.attempt === 1) throw new RetryLater(times[payload as number]);
        done++;
      },
    });
    await instance.producer.sendBatch(
      topic,
      times.map((_, payload) => ({ payload })),
    );
    await waitFor(() => done === times.length);
    expect(retried.map(({ delayMs }) => delayMs)).toEqual(times.map(() => 10));
  });

  it('DeadLetter(reason) makes a dead letter at the first call', async () => {
    const instance = await mq.open();
    await instance.start({
      topic,
      group,
      handle: () => {
        throw new DeadLetter('no customer 7', { cause: new Error('404') });
      },
    });
    await instance.producer.send(topic, 'x');
    const letter = await oneLetter(instance);
    expect(letter).toMatchObject({
      reason: 'rejected',
      attempts: 1,
      error: { name: 'DeadLetter', message: 'no customer 7' },
    });
  });

  it('each MessageHandleResult decides, and its name as a text is a success like any other value', async () => {
    const instance = await mq.open({ retryMaxAttempts: 2 });
    const { SUCCESS, RETRY, FAIL, DEAD_LETTER } = MessageHandleResult;
    const returned = {
      SUCCESS,
      RETRY,
      FAIL,
      DEAD_LETTER,
      text: 'RETRY',
      nothing: undefined,
      error: new Error('returned'),
      later: new RetryLater(1),
    };
    const calls: string[] = [];
    await instance.start({
      topic,
      group,
      handle: ({ payload }) => {
        calls.push(payload as string);
        return returned[payload as keyof typeof returned];
      },
    });
    await instance.producer.sendBatch(
      topic,
      Object.keys(returned).map((payload) => ({ payload, partition: 0 })),
    );
    await waitFor(async () => (await instance.runtime.deadLetters.size(topic)) === 3 && (await isDone()));
    const letters = (await instance.runtime.deadLetters.list(topic)).items;
    expect(
      letters.map(({ payload, reason, attempts, error }) => [JSON.parse(payload!.toString()), reason, attempts, error]),
    ).toEqual([
      ['FAIL', 'rejected', 1, null],
      ['DEAD_LETTER', 'rejected', 1, null],
      ['RETRY', 'exhausted', 2, null],
    ]);
    expect(calls.toSorted()).toEqual([...Object.keys(returned), 'RETRY'].toSorted());
  });

  it('attempts used up: the dead letter has the cause, the attempts and the reason', async () => {
    class PaymentError extends Error {
      override name = 'PaymentError';
    }
    const instance = await mq.open({ retryMaxAttempts: 2 });
    const deadEvents = record(instance, 'dead');
    await instance.start({
      topic,
      group,
      handle: ({ context }) => {
        throw new PaymentError(`declined at attempt ${context.attempt}`);
      },
    });
    const sent = await instance.producer.send(topic, { id: 7 }, { key: 'k', headers: { a: 'b' } });
    const letter = await oneLetter(instance);
    expect(letter).toMatchObject({
      topic,
      group,
      partition: sent.partition,
      originalMessageId: sent.id,
      eventId: sent.eventId,
      key: 'k',
      headers: { a: 'b' },
      reason: 'exhausted',
      attempts: 2,
      error: { name: 'PaymentError', message: 'declined at attempt 2' },
    });
    expect(letter.error!.stack).toContain('retry.spec');
    expect(deadEvents).toMatchObject([{ topic, group, id: sent.id, attempt: 2, reason: 'exhausted' }]);
  });

  const { proxy: revoked, revoke } = Proxy.revocable({}, {});
  revoke();
  const odd: [name: string, thrown: unknown, text: unknown][] = [
    ['a text', 'plain text', 'plain text'],
    ['nothing', undefined, undefined],
    ['null', null, 'null'],
    ['a number', 7, '7'],
    ['a symbol', Symbol('s'), 'Symbol(s)'],
    ['an object without a prototype', Object.create(null), expect.any(String)],
    [
      'an object with a toString that throws',
      {
        toString: () => {
          throw new Error('x');
        },
      },
      expect.any(String),
    ],
    ['a revoked proxy', revoked, expect.any(String)],
    [
      'an error without a text',
      Object.assign(new Error(), { message: undefined, name: undefined, stack: undefined }),
      expect.any(String),
    ],
    ['an error with an object for its message', Object.assign(new Error(), { message: { a: 1 } }), expect.any(String)],
    [
      'an error that throws when looked at',
      Object.defineProperty(new Error('m'), 'message', {
        get: () => {
          throw new Error('x');
        },
      }),
      expect.any(String),
    ],
    ['an error with a megabyte of text', new Error('x'.repeat(1_000_000)), expect.stringMatching(/^x{900,1100}\.*$/)],
    ['an error with a lone surrogate', new Error('\ud83d'), expect.any(String)],
  ];

  it.each(odd)(
    'whatever it throws becomes a retry and then a dead letter, and holds up nothing: %s',
    async (_, thrown, text) => {
      const instance = await mq.open({ retryMaxAttempts: 2 });
      const seen: unknown[] = [];
      await instance.start({
        topic,
        group,
        handle: ({ payload }) => {
          seen.push(payload);
          if (payload === 'odd') throw thrown;
        },
      });
      await instance.producer.send(topic, 'odd', { partition: 0 });
      const letter = await oneLetter(instance);
      expect(letter).toMatchObject({ reason: 'exhausted', attempts: 2 });
      expect(letter.error?.message).toEqual(text);
      await instance.producer.send(topic, 'good', { partition: 0 });
      await waitFor(() => seen.includes('good'));
      await waitFor(isDone);
    },
  );
});

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

  it('DEL-14 with 12,000 items due at once drains in scripts of bounded size, each item once', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, retryMoverBatch: 100 });
    await instance.runtime.admin.createTopic(topic);
    await fillBucket(range(12_000), 1);
    await mq.client.config('SET', 'slowlog-log-slower-than', '50000');
    await mq.client.slowlog('RESET');
    const moved = record(instance, 'moved');
    const seen: number[] = [];
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload as number) });
    await waitFor(async () => seen.length >= 12_000 && (await isDone()), { timeoutMs: 25_000 });
    expect(seen.toSorted((a, b) => a - b)).toEqual(range(12_000));
    expect(Math.max(...moved.map((event) => event.moved))).toBeLessThanOrEqual(100);
    const slow = (await mq.client.slowlog('GET', 100)) as [number, number, number, string[]][];
    expect(slow.filter(([, , , [command]]) => /^(EVAL|XREADGROUP|XPENDING)/i.test(command!))).toEqual([]);
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

describe('a broken connection', () => {
  /** Fails on each message until `attempts` calls were made, then succeeds. */
  async function through(attempts: number, payloads: readonly unknown[], sha: string) {
    const proxy = await mq.proxy();
    const instance = await mq.open({ redis: proxy.url, failFast: true, defaultPartitionCount: 1, retryMaxAttempts: 3 });
    const calls = new Map<string, ReceivedMessage[]>();
    await instance.start({
      topic,
      group,
      handle: (message) => {
        const { eventId, attempt } = message.context;
        calls.set(eventId, [...(calls.get(eventId) ?? []), message]);
        if (attempt < attempts) throw new Error('not yet');
      },
    });
    // Now the server knows every script that is needed.
    const warm = await instance.producer.send(topic, 'warm');
    const ended = async (): Promise<boolean> =>
      (await isDone()) || (attempts > 3 && (await instance.runtime.deadLetters.size(topic)) > 0);
    await waitFor(async () => calls.get(warm.eventId)?.length === Math.min(attempts, 3) && (await ended()));
    if (attempts > 3) await instance.runtime.deadLetters.clear(topic);
    calls.clear();
    const lost = proxy.dropNextReplyMatching(mentions(sha));
    const { results } = await instance.producer.sendBatch(
      topic,
      payloads.map((payload) => ({ payload })),
    );
    await lost;
    return { instance, calls, eventIds: results.map((result) => (result.status === 'sent' ? result.eventId : '')) };
  }

  it.each([
    ['when a failed message is put into the bucket', fail.sha],
    ['when the mover puts it back', moveRetries.sha],
    ['when it is acknowledged', settle.sha],
  ])('DEL-13 %s: handled to the end, with no attempt counted twice', async (_, sha) => {
    const { calls, eventIds } = await through(3, range(5), sha);
    await waitFor(async () => eventIds.every((id) => (calls.get(id)?.length ?? 0) >= 3) && (await isDone()));
    for (const eventId of eventIds) {
      expect(calls.get(eventId)!.map(({ context }) => context.attempt)).toEqual([1, 2, 3]);
    }
  });

  it('DEL-13 when it becomes a dead letter: one letter, and nothing left pending', async () => {
    const { instance, calls, eventIds } = await through(4, range(5), dead.sha);
    const { deadLetters } = instance.runtime;
    await waitFor(async () => (await deadLetters.size(topic)) >= 5 && (await isDone()));
    const letters = (await deadLetters.list(topic)).items;
    expect(letters.map(({ eventId }) => eventId!).toSorted()).toEqual(eventIds.toSorted());
    for (const eventId of eventIds) expect(calls.get(eventId)).toHaveLength(3);
  });

  it('DEL-13 when a delayed message is moved: delivered once', async () => {
    const proxy = await mq.proxy();
    const instance = await mq.open({ redis: proxy.url, failFast: true, defaultPartitionCount: 1 });
    const seen: unknown[] = [];
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload) });
    await instance.producer.send(topic, 'warm', { delayMs: 1 });
    await waitFor(() => seen.length === 1);
    const lost = proxy.dropNextReplyMatching(mentions(moveDelayed.sha));
    await instance.producer.send(topic, 'x', { delayMs: 1 });
    await lost;
    await instance.producer.send(topic, 'after', { delayMs: 1 });
    await waitFor(async () => seen.includes('after') && (await isDone()));
    expect(seen).toEqual(['warm', 'x', 'after']);
  });

  it('DEL-13 connections that break again and again while messages fail: each is handled to the end', async () => {
    const proxy = await mq.proxy();
    const instance = await mq.open({
      redis: proxy.url,
      failFast: true,
      defaultPartitionCount: 1,
      retryMaxAttempts: 10,
    });
    const done = new Map<unknown, number>();
    let calls = 0;
    await instance.start({
      topic,
      group,
      handle: ({ payload, context }) => {
        if (++calls % 10 === 0 && calls <= 100) proxy.cutAll();
        if (context.attempt < 3) throw new Error('not yet');
        done.set(payload, (done.get(payload) ?? 0) + 1);
      },
    });
    const producer = await mq.open();
    await producer.producer.sendBatch(
      topic,
      range(40).map((payload) => ({ payload })),
    );
    await waitFor(async () => done.size === 40 && (await isDone()), { timeoutMs: 25_000 });
    expect(calls).toBeGreaterThanOrEqual(120);
    // The promise is at least once.
    for (const count of done.values()) expect(count).toBeLessThanOrEqual(2);
    await expect(producer.runtime.deadLetters.size(topic)).resolves.toBe(0);
  });
});

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

describe('a time to live', () => {
  const expire = async (ttlMs: number): Promise<void> => {
    const until = Date.now() + ttlMs + 5;
    await waitFor(async () => {
      const [seconds, micros] = await mq.client.time();
      return Number(seconds) * 1_000 + Number(micros) / 1_000 > until;
    });
  };

  it('that is over makes a dead letter without a handler call', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    await instance.producer.send(topic, 'late', { ttlMs: 1 });
    await instance.producer.send(topic, 'in time', { ttlMs: 60_000 });
    await expire(1);
    const seen: unknown[] = [];
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload) });
    const letter = await oneLetter(instance);
    expect(letter).toMatchObject({ reason: 'expired', attempts: 0, error: null });
    expect(letter.payload!.toString()).toBe('"late"');
    await waitFor(isDone);
    expect(seen).toEqual(['in time']);
  });

  it('that ends while a retry waits makes a dead letter with the attempts made', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const seen: unknown[] = [];
    await instance.start({
      topic,
      group,
      handle: ({ payload }) => {
        seen.push(payload);
        throw new RetryLater(400);
      },
    });
    await instance.producer.send(topic, 'x', { ttlMs: 200 });
    await expect(oneLetter(instance)).resolves.toMatchObject({ reason: 'expired', attempts: 1 });
    expect(seen).toEqual(['x']);
  });

  it('counts from when a delayed message was stored', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const seen: unknown[] = [];
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload) });
    await instance.producer.send(topic, 'x', { ttlMs: 10_000, delayMs: 100 });
    await waitFor(() => seen.length === 1);
    await expect(instance.runtime.deadLetters.size(topic)).resolves.toBe(0);
  });
});

describe('a handler that runs too long', () => {
  it('fails its attempt and gets the abort signal; its partition alone waits until it has really ended', async () => {
    const instance = await mq.open({ defaultPartitionCount: 2 });
    const handled = record(instance, 'handled');
    const release = deferred();
    const timeline: string[] = [];
    let reason: unknown;
    await instance.start({
      topic,
      group,
      options: { handlerTimeoutMs: 100 },
      handle: async ({ payload, context }) => {
        timeline.push(`${String(payload)} ${context.attempt}`);
        if (payload !== 'slow' || context.attempt > 1) return;
        context.signal.addEventListener('abort', () => (reason = context.signal.reason));
        await release.promise;
        timeline.push('slow ended');
      },
    });
    await instance.producer.send(topic, 'slow', { partition: 0 });
    await instance.producer.send(topic, 'behind', { partition: 0 });
    // The attempt is over and its retry is due, the handler is not.
    await waitFor(async () => (await mq.client.zcard(keys().retry)) + (await mq.client.xlen(keys().retryStream)) === 1);
    expect(reason).toBeInstanceOf(MqHandlerTimeoutError);
    expect(handled).toMatchObject([{ partition: 0, outcome: 'retry' }]);
    await instance.producer.send(topic, 'elsewhere', { partition: 1 });
    await waitFor(() => timeline.includes('elsewhere 1'));
    await waitFor(async () => (await mq.client.xlen(keys().retryStream)) === 1);
    expect(timeline).toEqual(['slow 1', 'elsewhere 1']);
    release.resolve();
    await waitFor(async () => timeline.length === 5 && (await isDone()));
    expect(timeline.slice(2)[0]).toBe('slow ended');
    expect(timeline.slice(3).toSorted()).toEqual(['behind 1', 'slow 2']);
  });

  it('is not counted as a success however it ends afterwards, and uses up its attempts', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, retryMaxAttempts: 2 });
    const signals: AbortSignal[] = [];
    await instance.start({
      topic,
      group,
      options: { handlerTimeoutMs: 50 },
      handle: ({ context }) =>
        new Promise<void>((resolve) => {
          signals.push(context.signal);
          context.signal.addEventListener('abort', () => resolve());
        }),
    });
    await instance.producer.send(topic, 'x');
    const letter = await oneLetter(instance);
    expect(letter).toMatchObject({ reason: 'exhausted', attempts: 2, error: { name: 'MqHandlerTimeoutError' } });
    expect(signals).toHaveLength(2);
    await waitFor(isDone);
  });

  it('is granted more time by heartbeat()', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const handled = record(instance, 'handled');
    let beats = 0;
    await instance.start({
      topic,
      group,
      options: { handlerTimeoutMs: 400 },
      handle: async ({ context }) => {
        const startedAt = performance.now();
        while (performance.now() - startedAt < 900) {
          await new Promise((resolve) => setTimeout(resolve, 20));
          await context.heartbeat();
          beats++;
        }
      },
    });
    await instance.producer.send(topic, 'x');
    await waitFor(() => handled.length === 1);
    expect(handled).toMatchObject([{ outcome: 'success' }]);
    expect(beats).toBeGreaterThan(5);
  });
});
