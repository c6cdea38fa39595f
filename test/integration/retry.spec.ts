import { MqHandlerTimeoutError } from '../../libs/redis-streams-mq/src/core/errors.js';
import { DeadLetter, MessageHandleResult, RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import type { DeadLetter as Letter } from '../../libs/redis-streams-mq/src/core/dead-letter.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
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

  it('DEL-19 stays finite and within its maximum through more than a thousand attempts, and the message is not lost', async () => {
    const ATTEMPTS = 1_100;
    const instance = await mq.open({ retryMaxAttempts: ATTEMPTS, retryBaseBackoffMs: 1, retryMaxBackoffMs: 2 });
    const retried = record(instance, 'retried');
    await instance.start({
      topic,
      group,
      handle: () => {
        throw new Error('never');
      },
    });
    await instance.producer.send(topic, 'x');
    await waitFor(() => retried.length === ATTEMPTS - 1, { timeoutMs: 60_000 });
    await expect(oneLetter(instance)).resolves.toMatchObject({ reason: 'exhausted', attempts: ATTEMPTS });
    expect(new Set(retried.map(({ delayMs }) => delayMs))).toEqual(new Set([1, 2]));
  }, 70_000);

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
        throw new RetryLater(1_500);
      },
    });
    await instance.producer.send(topic, 'x', { ttlMs: 1_000 });
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
