import { MqError } from '../../libs/redis-streams-mq/src/core/errors.js';
import { decodeMessage } from '../../libs/redis-streams-mq/src/core/message.js';
import { keyPartition } from '../../libs/redis-streams-mq/src/core/partitioner.js';
import { bytesSerializer } from '../../libs/redis-streams-mq/src/core/serializer.js';
import type { OutgoingMessage, SendOptions } from '../../libs/redis-streams-mq/src/producer/outgoing-message.js';
import type { SendResult } from '../../libs/redis-streams-mq/src/producer/producer.js';
import { schedule, sendOnce } from '../../libs/redis-streams-mq/src/redis/scripts/send.script.js';
import type { TestInstance } from '../support/engine.js';
import { HoldingProxy } from '../support/holding-proxy.js';
import { record, useMq } from '../support/mq-fixture.js';
import { describeWithServer, startRedis } from '../support/redis-server.js';
import { mentions } from '../support/tcp-proxy.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq({ aof: true });

interface Stored {
  id: string;
  payload: unknown;
  key: string | null;
  eventId: string;
}

async function stored(topic: string, partition = 0): Promise<Stored[]> {
  const entries = await mq.client.xrangeBuffer(mq.keys.stream(topic, partition), '-', '+');
  return entries.map(([id, fields]) => {
    const { payload, key, eventId } = decodeMessage(fields);
    return { id: id.toString(), payload: JSON.parse(payload.toString()) as unknown, key, eventId };
  });
}

const payloads = async (topic: string, partition = 0): Promise<unknown[]> =>
  (await stored(topic, partition)).map(({ payload }) => payload);

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** What a promise rejects with; it has to be one of our errors. */
async function failure(promise: Promise<unknown>): Promise<MqError & { eventId?: string }> {
  const error: unknown = await promise.then(
    (value) => new Error(`it resolved with ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(MqError);
  return error as MqError;
}

const codes = (settled: readonly PromiseSettledResult<unknown>[]): string[] =>
  settled.map((result) => (result.status === 'fulfilled' ? 'sent' : String((result.reason as MqError).code)));

/** How often the server has answered with this error; Redis counts them by their first word. */
async function errorCount(code: string): Promise<number> {
  const stats = await mq.client.info('errorstats');
  return Number(new RegExp(`errorstat_${code}:count=(\\d+)`).exec(stats)?.[1] ?? 0);
}

async function withTopic(instance: TestInstance, partitionCount = 1): Promise<string> {
  const topic = uniqueName('topic');
  await instance.runtime.admin.createTopic(topic, { partitionCount });
  return topic;
}

describe('order', () => {
  it.each([
    ['of 5,000 concurrent sends', true],
    ['of 5,000 concurrent sends to a topic that does not exist yet', false],
  ])('the calls %s is the order of the entries in each partition', async (_, exists) => {
    const instance = await mq.open();
    const topic = exists ? await withTopic(instance, 4) : uniqueName('topic');
    const results = await Promise.all(
      range(5_000).map((n) => instance.producer.send(topic, n, { key: `k${n % 100}` })),
    );
    let total = 0;
    for (const partition of range(4)) {
      const entries = await stored(topic, partition);
      const expected = range(5_000).filter((n) => results[n]!.partition === partition);
      expect(entries.map(({ payload }) => payload)).toEqual(expected);
      expect(entries.map(({ id }) => id)).toEqual(expected.map((n) => results[n]!.id));
      expect(entries.map(({ eventId }) => eventId)).toEqual(expected.map((n) => results[n]!.eventId));
      for (const { key } of entries) expect(keyPartition(key!, 4)).toBe(partition);
      total += entries.length;
    }
    expect(total).toBe(5_000);
  });

  it('sends of one turn that differ in kind and size keep their order', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, maxPayloadBytes: 2_000_000 });
    const topic = uniqueName('topic');
    const big = 'x'.repeat(600_000);
    await Promise.all(
      range(60).map((n) =>
        instance.producer.send(topic, [n, n % 10 === 5 ? big : ''], n % 3 === 0 ? { dedupId: `d${n}` } : {}),
      ),
    );
    expect((await payloads(topic)).map((payload) => (payload as [number])[0])).toEqual(range(60));
  });
});

describe('dedupId', () => {
  it('a second message with it is not stored, and its sender gets the id of the first', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance, 4);
    const first = await instance.producer.send(topic, 1, { dedupId: 'a' });
    const second = await instance.producer.send(topic, 2, { dedupId: 'a' });
    expect(first.duplicate).toBe(false);
    expect(second).toMatchObject({ duplicate: true, id: first.id, partition: first.partition });
    await instance.producer.send(topic, 3, { dedupId: 'b', partition: first.partition });
    await expect(payloads(topic, first.partition)).resolves.toEqual([1, 3]);
  });

  it('of many at once, also from several instances, one is stored', async () => {
    const instances = [await mq.open(), await mq.open()];
    const topic = await withTopic(instances[0]!, 4);
    const results = await Promise.all(
      range(100).map((n) => instances[n % 2]!.producer.send(topic, n, { dedupId: 'the same' })),
    );
    expect(results.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
    expect(new Set(results.map(({ id, partition }) => `${partition}/${id}`)).size).toBe(1);
    const all = await Promise.all(range(4).map((partition) => payloads(topic, partition)));
    expect(all.flat()).toHaveLength(1);
  });

  it('is forgotten after dedupTtlMs, and counts for its own topic alone', async () => {
    const instance = await mq.open();
    const [topic, other] = [await withTopic(instance), await withTopic(instance)];
    await instance.producer.send(topic, 1, { dedupId: 'a', dedupTtlMs: 30 });
    await instance.producer.send(other, 1, { dedupId: 'a' });
    await waitFor(async () => !(await mq.client.exists(mq.keys.dedup(topic, 0, 'a'))));
    await expect(instance.producer.send(topic, 2, { dedupId: 'a' })).resolves.toMatchObject({ duplicate: false });
    await expect(payloads(topic)).resolves.toEqual([1, 2]);
    await expect(payloads(other)).resolves.toEqual([1]);
  });

  it('of a topic that was lost and made again does not suppress anything', async () => {
    const topic = uniqueName('topic');
    const before = await mq.open({ defaultPartitionCount: 1 });
    await before.producer.send(topic, 'old', { dedupId: 'a' });
    const { meta, partitions } = mq.keys.topic(topic);
    await mq.client.del(meta, partitions, mq.keys.stream(topic, 0));
    const after = await mq.open({ defaultPartitionCount: 1 });
    await expect(after.producer.send(topic, 'new', { dedupId: 'a' })).resolves.toMatchObject({ duplicate: false });
    await expect(payloads(topic)).resolves.toEqual(['new']);
  });
});

describe('a delay', () => {
  const start = async (
    topic: string,
  ): Promise<{ instance: TestInstance; seen: { payload: unknown; at: number }[] }> => {
    const seen: { payload: unknown; at: number }[] = [];
    const instance = await mq.open({ defaultPartitionCount: 1, retryMoverIntervalSec: 60 });
    await instance.start({
      topic,
      group: 'g',
      handle: ({ payload, context }) => void seen.push({ payload, at: context.publishedAt }),
    });
    await waitFor(async () => (await mq.client.exists(mq.keys.groupPartition(topic, 0, 'g').lease)) === 1);
    return { instance, seen };
  };

  it('holds a message back until it is due by the clock of Redis, and not much longer', async () => {
    const topic = uniqueName('topic');
    const { instance, seen } = await start(topic);
    const [seconds, micros] = await mq.client.time();
    const now = Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
    const delayed = await instance.producer.send(topic, 'delayed', { delayMs: 250 });
    expect(delayed).toMatchObject({ id: null, duplicate: false });
    await instance.producer.send(topic, 'at once');
    await waitFor(() => seen.length === 2);
    expect(seen.map(({ payload }) => payload)).toEqual(['at once', 'delayed']);
    expect(seen[1]!.at).toBeGreaterThanOrEqual(now + 250);
    expect(seen[1]!.at).toBeLessThan(now + 5_000);
  });

  it('messages come in the order of their due times, and for equal ones in the order of sending', async () => {
    const topic = uniqueName('topic');
    const { instance, seen } = await start(topic);
    const deliverAt = Date.now() + 400;
    const sends = range(300).map((n) => instance.producer.send(topic, n, { deliverAt: new Date(deliverAt) }));
    sends.push(instance.producer.send(topic, 'last', { deliverAt: deliverAt + 100 }));
    sends.push(instance.producer.send(topic, 'first', { deliverAt: deliverAt - 100 }));
    sends.push(instance.producer.send(topic, 'overdue', { deliverAt: 0 }));
    await Promise.all(sends);
    await waitFor(() => seen.length === 303);
    expect(seen.map(({ payload }) => payload)).toEqual(['overdue', 'first', ...range(300), 'last']);
  });

  it('a message with an eventId that waits already is not stored a second time', async () => {
    const topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const results = [];
    for (const n of range(3)) {
      results.push(await instance.producer.send(topic, n, { eventId: 'same', deliverAt: Date.now() + 60_000 }));
    }
    expect(results.map(({ duplicate }) => duplicate)).toEqual([false, true, true]);
    await expect(mq.client.zcard(mq.keys.partition(topic, 0).delayed)).resolves.toBe(1);
  });
});

describeWithServer('a deadline', () => {
  let isDown = false;
  afterEach(async () => {
    if (isDown) await restart();
    mq.redis.resume();
  });

  const restart = async (): Promise<void> => {
    await mq.redis.restart();
    isDown = false;
  };

  /** Ends Redis, and resolves when the instance has noticed. */
  const takeDown = async (instance: TestInstance): Promise<void> => {
    const seen = record(instance, 'connection');
    isDown = true;
    await mq.redis.kill();
    await waitFor(() => seen.some(({ name, state }) => name === 'command' && state === 'closed'));
  };

  it('of a message that was sent and not answered gives MQ_SEND_OUTCOME_UNKNOWN with its eventId', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    await instance.producer.send(topic, 'before');
    mq.redis.pause();
    const error = await failure(instance.producer.send(topic, 'unknown', { timeoutMs: 150, eventId: 'mine' }));
    expect(error).toMatchObject({ code: 'MQ_SEND_OUTCOME_UNKNOWN', eventId: 'mine', retryable: true });
    expect(error.context).toMatchObject({ topic, partition: 0, eventId: 'mine' });
    mq.redis.resume();
    await instance.producer.send(topic, 'after');
    await expect(payloads(topic)).resolves.toEqual(['before', 'unknown', 'after']);
  });

  it('of a message that waits behind an unanswered one gives MQ_SEND_TIMEOUT, and it is never stored', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    await instance.producer.send(topic, 'before');
    mq.redis.pause();
    const sent = failure(instance.producer.send(topic, 'unknown', { timeoutMs: 150 }));
    await waitFor(() => instance.producer.inFlight === 1);
    await new Promise((resolve) => setImmediate(resolve));
    const waiting = failure(instance.producer.send(topic, 'withdrawn', { timeoutMs: 150 }));
    expect((await sent).code).toBe('MQ_SEND_OUTCOME_UNKNOWN');
    expect((await waiting).code).toBe('MQ_SEND_TIMEOUT');
    expect(instance.producer.inFlight).toBe(0);
    mq.redis.resume();
    await instance.producer.send(topic, 'after');
    await expect(payloads(topic)).resolves.toEqual(['before', 'unknown', 'after']);
  });

  it.each([true, false])(
    'with Redis away gives MQ_SEND_TIMEOUT, and what is withdrawn is never stored (topic known: %s)',
    async (isKnown) => {
      const instance = await mq.open({ defaultPartitionCount: 1 });
      const topic = isKnown ? await withTopic(instance) : uniqueName('topic');
      if (isKnown) await instance.producer.send(topic, 'before');
      await takeDown(instance);
      const errors = await Promise.all(
        range(20).map((n) => failure(instance.producer.send(topic, n, { timeoutMs: 150 }))),
      );
      expect(new Set(errors.map(({ code }) => code))).toEqual(new Set(['MQ_SEND_TIMEOUT']));
      const survivor = instance.producer.send(topic, 'survivor');
      await restart();
      await expect(survivor).resolves.toMatchObject({ topic });
      await expect(payloads(topic)).resolves.toEqual(isKnown ? ['before', 'survivor'] : ['survivor']);
    },
  );

  it('is kept by a message that waits for a new topic behind one with a later deadline', async () => {
    const instance = await mq.open();
    await takeDown(instance);
    const topic = uniqueName('topic');
    const patient = instance.producer.send(topic, 'patient');
    const startedAt = performance.now();
    const error = await failure(instance.producer.send(topic, 'impatient', { timeoutMs: 150 }));
    expect(error.code).toBe('MQ_SEND_TIMEOUT');
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    await restart();
    await patient;
  });

  it('of the producer itself: close() ends with sends unanswered, and each is told what is known of it', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    await instance.producer.send(topic, 'before');
    mq.redis.pause();
    const sent = failure(instance.producer.send(topic, 'sent'));
    const once = failure(instance.producer.send(topic, 'sent once', { partition: 0, dedupId: 'a' }));
    await new Promise((resolve) => setImmediate(resolve));
    const waiting = failure(instance.producer.send(topic, 'waiting'));
    await instance.close();
    expect((await sent).code).toBe('MQ_SEND_OUTCOME_UNKNOWN');
    expect((await once).code).toBe('MQ_CLOSED');
    expect((await waiting).code).toBe('MQ_CLOSED');
    expect((await failure(instance.producer.send(topic, 'late'))).code).toBe('MQ_CLOSED');
    mq.redis.resume();
    await expect(payloads(topic)).resolves.toEqual(['before', 'sent']);
  });

  it('sendBufferLimit: what does not fit is refused at once, and there is room again when Redis answers', async () => {
    const instance = await mq.open({ sendBufferLimit: 10 });
    const topic = await withTopic(instance);
    await instance.producer.send(topic, 'before');
    mq.redis.pause();
    const failures = record(instance, 'sendFailed');
    const fitting = range(10).map((n) => instance.producer.send(topic, n));
    const error = await failure(instance.producer.send(topic, 'too many'));
    expect(error).toMatchObject({ code: 'MQ_SEND_BUFFER_FULL', retryable: true });
    expect(failures).toEqual([{ topic, code: 'MQ_SEND_BUFFER_FULL' }]);
    mq.redis.resume();
    await Promise.all(fitting);
    await instance.producer.send(topic, 'after');
    await expect(payloads(topic)).resolves.toEqual(['before', ...range(10), 'after']);
  });
});

describe('a lost reply', () => {
  const throughProxy = async () => {
    const proxy = await mq.proxy();
    const instance = await mq.open({ failFast: true, redis: proxy.url });
    const topic = await withTopic(instance);
    await instance.producer.send(topic, 'before');
    return { proxy, instance, topic };
  };

  it('CONN-09 of XADD: the promise resolves, with the one entry there is', async () => {
    const { proxy, instance, topic } = await throughProxy();
    const lost = proxy.dropNextReplyMatching(mentions('xadd', topic));
    const result = await instance.producer.send(topic, 'once');
    await lost;
    await instance.producer.send(topic, 'after');
    const entries = await stored(topic);
    expect(entries.map(({ payload }) => payload)).toEqual(['before', 'once', 'after']);
    expect(result).toMatchObject({ id: entries[1]!.id, eventId: entries[1]!.eventId, duplicate: false });
  });

  it('CONN-09 in the middle of a batch: every message is there once and in order', async () => {
    const { proxy, instance, topic } = await throughProxy();
    const lost = proxy.dropNextReplyMatching(mentions('xadd', topic, '"n 37"'));
    const results = await Promise.all(range(100).map((n) => instance.producer.send(topic, `n ${n}`)));
    await lost;
    const entries = (await stored(topic)).slice(1);
    expect(entries.map(({ payload }) => payload)).toEqual(range(100).map((n) => `n ${n}`));
    expect(results.map(({ id }) => id)).toEqual(entries.map(({ id }) => id));
  });

  it('CONN-09 of messages that share an eventId: each promise settles and each message is there once', async () => {
    const { proxy, instance, topic } = await throughProxy();
    const lost = proxy.dropNextReplyMatching(mentions('xadd', topic));
    const results = await Promise.all(range(3).map((n) => instance.producer.send(topic, n, { eventId: 'same' })));
    await lost;
    const entries = (await stored(topic)).slice(1);
    expect(entries.map(({ payload }) => payload)).toEqual([0, 1, 2]);
    expect(results.map(({ id }) => id)).toEqual(entries.map(({ id }) => id));
  });

  it('CONN-09 of a send with a dedupId: stored once, and no duplicate for its sender to see but the id of its own', async () => {
    const { proxy, instance, topic } = await throughProxy();
    await instance.producer.send(topic, 'known', { dedupId: 'warm' });
    const lost = proxy.dropNextReplyMatching(mentions(sendOnce.sha));
    const result = await instance.producer.send(topic, 'once', { dedupId: 'a' });
    await lost;
    const entries = await stored(topic);
    expect(entries.map(({ payload }) => payload)).toEqual(['before', 'known', 'once']);
    expect(result.id).toBe(entries[2]!.id);
  });

  it('CONN-09 of a delayed send: kept once', async () => {
    const { proxy, instance, topic } = await throughProxy();
    await instance.producer.send(topic, 'known', { delayMs: 60_000 });
    const lost = proxy.dropNextReplyMatching(mentions(schedule.sha));
    await instance.producer.send(topic, 'once', { delayMs: 60_000 });
    await lost;
    const { delayed, delayedItems } = mq.keys.partition(topic, 0);
    await expect(Promise.all([mq.client.zcard(delayed), mq.client.hlen(delayedItems)])).resolves.toEqual([2, 2]);
  });

  it('CONN-09 of a delayed send that was due before Redis could be asked again: delivered once', async () => {
    const { proxy, instance, topic } = await throughProxy();
    await instance.producer.send(topic, 'known', { delayMs: 0 });
    const lost = proxy.dropNextReplyMatching(mentions(schedule.sha));
    await proxy.refuse(true);
    const sent = instance.producer.send(topic, 'once', { delayMs: 0 });
    await lost;
    const seen: unknown[] = [];
    const other = await mq.open();
    await other.start({ topic, group: 'g', handle: ({ payload }) => void seen.push(payload) });
    await waitFor(() => seen.includes('once'));
    await proxy.refuse(false);
    await expect(sent).resolves.toMatchObject({ id: null });
    await other.producer.send(topic, 'after', { delayMs: 0 });
    await waitFor(() => seen.includes('after'));
    expect(seen).toEqual(['before', 'known', 'once', 'after']);
  });

  it.each([
    ['dedupId', { dedupId: 'a' }, sendOnce.sha],
    ['delay', { delayMs: 60_000 }, schedule.sha],
  ])(
    'of a send with a %s, and Redis away until the deadline: the outcome is unknown, not "withdrawn"',
    async (_, options, sha) => {
      const { proxy, instance, topic } = await throughProxy();
      await instance.producer.send(topic, 'known', { ...options, ...('dedupId' in options && { dedupId: 'warm' }) });
      const lost = proxy.dropNextReplyMatching(mentions(sha));
      await proxy.refuse(true);
      const error = failure(instance.producer.send(topic, 'stored', { ...options, timeoutMs: 300 }));
      await lost;
      expect((await error).code).toBe('MQ_SEND_OUTCOME_UNKNOWN');
      await proxy.refuse(false);
    },
  );

  it('behind a deleted stream: what follows keeps its place', async () => {
    const { proxy, instance, topic } = await throughProxy();
    await mq.client.del(mq.keys.stream(topic, 0));
    const lost = proxy.dropNextReplyMatching(mentions('xadd', topic, '"n 2"'));
    await Promise.all(range(5).map((n) => instance.producer.send(topic, `n ${n}`)));
    await lost;
    await expect(payloads(topic)).resolves.toEqual(range(5).map((n) => `n ${n}`));
  });
});

describe('faults under load', () => {
  it('a connection cut again and again in the middle of 1,000 sends: all stored, none twice, in order per partition', async () => {
    const proxy = await mq.proxy();
    const instance = await mq.open({ failFast: true, redis: proxy.url, sendTimeoutMs: 20_000 });
    const topic = await withTopic(instance, 4);
    await instance.producer.send(topic, 'before', { partition: 0 });
    const padding = 'x'.repeat(2_000);
    let settled = 0;
    const sends: Promise<SendResult>[] = [];
    for (const n of range(1_000)) {
      sends.push(instance.producer.send(topic, [n, padding], { key: `k${n % 40}` }).finally(() => settled++));
      // In pieces, so that some are under way and some wait when the cut comes.
      if (n % 100 === 99) {
        await waitFor(() => settled >= n - 99);
        proxy.cutAll();
      }
    }
    const results = await Promise.all(sends);
    for (const partition of range(4)) {
      const found = (await payloads(topic, partition)).filter(Array.isArray).map((payload) => payload[0] as number);
      expect(found).toEqual(range(1_000).filter((n) => results[n]!.partition === partition));
    }
  });

  it.each([
    ['a dedupId', (n: number): SendOptions => ({ dedupId: `d${n}`, partition: 0 })],
    ['a delay', (): SendOptions => ({ deliverAt: 1 })],
  ])('SCRIPT FLUSH during sends with %s: all kept once and in order', async (_, options) => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    let done = false;
    const flushing = (async () => {
      while (!done) await mq.client.script('FLUSH');
    })();
    const results = [];
    for (const from of range(10)) {
      results.push(
        ...(await Promise.all(
          range(50).map((n) => instance.producer.send(topic, 50 * from + n, options(50 * from + n))),
        )),
      );
    }
    done = true;
    await flushing;
    expect(results.filter(({ duplicate }) => duplicate)).toEqual([]);
    const seen: unknown[] = [];
    await instance.start({ topic, group: 'g', handle: ({ payload }) => void seen.push(payload) });
    await waitFor(() => seen.length >= 500);
    expect(seen).toEqual(range(500));
  });

  describe('in the middle of a pipeline', () => {
    let proxy: HoldingProxy;
    beforeEach(async () => (proxy = await HoldingProxy.start(mq.redis.port)));
    afterEach(() => proxy.stop());

    it('someone else loads a script that the server had forgotten: order holds', async () => {
      const instance = await mq.open({ failFast: true, redis: proxy.url });
      const topic = await withTopic(instance);
      await instance.producer.send(topic, 'before');
      await mq.client.script('FLUSH');
      const before = await errorCount('NOSCRIPT');
      const { held, release } = proxy.holdAfter(5, mentions('eval', topic, ':dedup:'));
      const sends = range(10).map((n) => instance.producer.send(topic, n, { dedupId: `d${n}`, partition: 0 }));
      await held;
      await waitFor(
        async () =>
          (await mq.client.xlen(mq.keys.stream(topic, 0))) === 6 || (await errorCount('NOSCRIPT')) >= before + 5,
      );
      await mq.client.script('LOAD', sendOnce.lua);
      release();
      await Promise.all(sends);
      await expect(payloads(topic)).resolves.toEqual(['before', ...range(10)]);
    });

    it('Redis ends to refuse what it has refused before: order holds', async () => {
      const instance = await mq.open({ failFast: true, redis: proxy.url });
      const topic = await withTopic(instance);
      await instance.producer.send(topic, 'before');
      const before = await errorCount('NOREPLICAS');
      await mq.client.config('SET', 'min-replicas-to-write', '1');
      const { held, release } = proxy.holdAfter(101, mentions('xadd', topic));
      const sends = range(100).map((n) => instance.producer.send(topic, n));
      await held;
      await waitFor(async () => (await errorCount('NOREPLICAS')) >= before + 101);
      await mq.client.config('SET', 'min-replicas-to-write', '0');
      release();
      await Promise.all(sends);
      await expect(payloads(topic)).resolves.toEqual(['before', ...range(100)]);
    });
  });
});

describe('a message that cannot be sent', () => {
  class Throwing {
    toJSON(): never {
      throw new Error('no JSON of me');
    }
  }
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  const { proxy: revoked, revoke } = Proxy.revocable({}, {});
  revoke();
  const getter = {
    get broken(): never {
      throw new Error('broken getter');
    },
  };
  const options = (given: object): SendOptions => given as SendOptions;
  const partition = (value: unknown): SendOptions => options({ partition: value });
  const headers = (value: unknown): SendOptions => options({ headers: value });

  const cases: [name: string, code: string, payload: unknown, options?: SendOptions][] = [
    ['DATA-03 a BigInt', 'MQ_UNSERIALIZABLE', { a: 1n }],
    ['DATA-03 a cycle', 'MQ_UNSERIALIZABLE', circular],
    ['DATA-03 a toJSON that throws', 'MQ_UNSERIALIZABLE', new Throwing()],
    ['DATA-03 a getter that throws', 'MQ_UNSERIALIZABLE', getter],
    ['DATA-03 a revoked proxy', 'MQ_UNSERIALIZABLE', revoked],
    ['DATA-04 undefined', 'MQ_UNSERIALIZABLE', undefined],
    ['DATA-04 a function', 'MQ_UNSERIALIZABLE', () => 1],
    ['DATA-04 a symbol', 'MQ_UNSERIALIZABLE', Symbol('s')],
    ['DATA-01 bytes in JSON', 'MQ_UNSERIALIZABLE', Buffer.from('x')],
    ['a payload above maxPayloadBytes', 'MQ_PAYLOAD_TOO_LARGE', 'ä'.repeat(5_000)],
    ['DATA-10 partition -1', 'MQ_INVALID_PARTITION', 1, partition(-1)],
    ['DATA-10 partition 1.5', 'MQ_INVALID_PARTITION', 1, partition(1.5)],
    ['DATA-10 partition NaN', 'MQ_INVALID_PARTITION', 1, partition(NaN)],
    ['DATA-10 partition "0"', 'MQ_INVALID_PARTITION', 1, partition('0')],
    ['DATA-10 partition null', 'MQ_INVALID_PARTITION', 1, partition(null)],
    ['DATA-10 a partition that there is not', 'MQ_INVALID_PARTITION', 1, partition(4)],
    ['DATA-02 a key with a lone surrogate', 'MQ_INVALID_MESSAGE', 1, { key: '\ud83d' }],
    ['DATA-10 a key that is NaN', 'MQ_INVALID_MESSAGE', 1, { key: NaN }],
    ['a key that is an object', 'MQ_INVALID_MESSAGE', 1, options({ key: {} })],
    ['a key that is a boolean', 'MQ_INVALID_MESSAGE', 1, options({ key: true })],
    ['headers as text', 'MQ_INVALID_MESSAGE', 1, headers('a=b')],
    ['headers as an array', 'MQ_INVALID_MESSAGE', 1, headers(['a'])],
    ['headers as a Map', 'MQ_INVALID_MESSAGE', 1, headers(new Map([['a', 'b']]))],
    ['a header that is a number', 'MQ_INVALID_MESSAGE', 1, headers({ a: 1 })],
    ['a header that is null', 'MQ_INVALID_MESSAGE', 1, headers({ a: null })],
    ['headers of 70,000 characters', 'MQ_INVALID_MESSAGE', 1, headers({ a: 'x'.repeat(70_000) })],
    ['an empty eventId', 'MQ_INVALID_MESSAGE', 1, { eventId: '' }],
    ['an eventId of 129 characters', 'MQ_INVALID_MESSAGE', 1, { eventId: 'x'.repeat(129) }],
    ['an eventId outside of ASCII', 'MQ_INVALID_MESSAGE', 1, { eventId: 'ä' }],
    ['an eventId with a line break', 'MQ_INVALID_MESSAGE', 1, { eventId: 'a\nb' }],
    ['an eventId that is a number', 'MQ_INVALID_MESSAGE', 1, options({ eventId: 5 })],
    ['an empty dedupId', 'MQ_INVALID_MESSAGE', 1, { dedupId: '' }],
    ['a dedupId with a lone surrogate', 'MQ_INVALID_MESSAGE', 1, { dedupId: '\udc00' }],
    ['a dedupId with a delay', 'MQ_INVALID_MESSAGE', 1, { dedupId: 'a', delayMs: 1 }],
    ['delayMs and deliverAt', 'MQ_INVALID_MESSAGE', 1, { delayMs: 1, deliverAt: 1 }],
    ['a negative delay', 'MQ_INVALID_MESSAGE', 1, { delayMs: -1 }],
    ['a delay that is NaN', 'MQ_INVALID_MESSAGE', 1, { delayMs: NaN }],
    ['a delay as text', 'MQ_INVALID_MESSAGE', 1, options({ delayMs: '5' })],
    ['an invalid date', 'MQ_INVALID_MESSAGE', 1, { deliverAt: new Date(NaN) }],
    ['a ttl of 0', 'MQ_INVALID_MESSAGE', 1, { ttlMs: 0 }],
    ['a negative timestamp', 'MQ_INVALID_MESSAGE', 1, { timestamp: -1 }],
    ['a timeout of 0', 'MQ_INVALID_MESSAGE', 1, { timeoutMs: 0 }],
    ['options that are null', 'MQ_INVALID_MESSAGE', 1, null as unknown as SendOptions],
    ['a key in the place of the options', 'MQ_INVALID_MESSAGE', 1, 'key' as unknown as SendOptions],
  ];

  // Filled up: jest passes its `done` for an argument that a row lacks.
  it.each(cases.map(([name, code, payload, given = {}]) => [name, code, payload, given] as const))(
    '%s: the promise rejects with %s, which is counted, and nothing is stored',
    async (_, code, payload, given) => {
      const instance = await mq.open({ maxPayloadBytes: 9_999 });
      const topic = await withTopic(instance, 4);
      const failures = record(instance, 'sendFailed');
      const error = await failure(instance.producer.send(topic, payload, given));
      expect(error).toMatchObject({ code, retryable: false });
      expect(failures).toEqual([{ topic, code }]);
      expect(error.message).toContain(topic);
      expect(instance.producer.inFlight).toBe(0);
      await instance.producer.sendBatch(
        topic,
        range(4).map((p) => ({ payload: 'good', partition: p })),
      );
      for (const p of range(4)) await expect(payloads(topic, p)).resolves.toEqual(['good']);
    },
  );

  const badNames = [
    '',
    ' ',
    'a b',
    'a:b',
    'a}b',
    '{a}',
    'a\nb',
    '*',
    '[a]',
    '../x',
    'a/b',
    'é',
    '.',
    '..',
    'x'.repeat(250),
  ];
  const noNames = [undefined, null, 5, {}, Symbol('s')];

  it.each([...badNames, ...noNames])('DATA-07 a topic named %p: the promise rejects with the rule', async (topic) => {
    const instance = await mq.open();
    for (const promise of [
      instance.producer.send(topic as string, 1),
      instance.producer.sendBatch(topic as string, []),
    ]) {
      const error = await failure(promise);
      expect(error.code).toBe('MQ_INVALID_NAME');
      expect(error.message).toContain('a name has 1 to 249 of the characters');
    }
  });

  it('DATA-10 a bad answer of a partitioner: the promise rejects, and the next message is sent', async () => {
    const answers: unknown[] = [-1, 1.5, NaN, '2', 99, undefined, null, 1n];
    const calls: [key: string | undefined, count: number, topic: string][] = [];
    let answer: () => unknown = () => 3;
    const instance = await mq.open({
      partitioner: (key, count, topic) => {
        calls.push([key?.toString(), count, topic]);
        return answer() as number;
      },
    });
    const topic = await withTopic(instance, 4);
    for (const bad of answers) {
      answer = () => bad;
      expect((await failure(instance.producer.send(topic, 'bad'))).code).toBe('MQ_INVALID_PARTITION');
    }
    answer = () => {
      throw new Error('no idea');
    };
    const error = await failure(instance.producer.send(topic, 'bad'));
    expect(error).toMatchObject({ code: 'MQ_INVALID_PARTITION', cause: new Error('no idea') });
    calls.length = 0;
    answer = () => 3;
    await expect(instance.producer.send(topic, 'good', { key: 'ä' })).resolves.toMatchObject({ partition: 3 });
    expect(calls).toEqual([['ä', 4, topic]]);
    await expect(payloads(topic, 3)).resolves.toEqual(['good']);
  });

  it('DATA-08 a foreign value at the key of a partition: the error names the key, and other partitions go on', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance, 2);
    const stream = mq.keys.stream(topic, 0);
    await mq.client.set(stream, 'foreign');
    const error = await failure(instance.producer.send(topic, 'x', { partition: 0 }));
    expect(error).toMatchObject({ code: 'MQ_SEND_REFUSED', context: { topic, partition: 0 } });
    expect(error.message).toContain('WRONGTYPE');
    await instance.producer.send(topic, 'y', { partition: 1 });
    const fresh = uniqueName('topic');
    await mq.client.set(mq.keys.stream(fresh, 0), 'foreign');
    const refused = await failure(instance.producer.send(fresh, 'x'));
    expect(refused.code).toBe('MQ_SEND_REFUSED');
    expect(refused.message).toContain(mq.keys.stream(fresh, 0));
  });

  it('DATA-09 keys: none are spread evenly, "" is one, and a number is its text', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance, 8);
    const partitionsOf = async (key: string | number | null | undefined, count: number): Promise<number[]> => {
      const results = await Promise.all(range(count).map(() => instance.producer.send(topic, 'x', { key })));
      const counts = Array<number>(8).fill(0);
      for (const { partition: p } of results) counts[p]!++;
      return counts;
    };
    for (const none of [undefined, null]) {
      expect(await partitionsOf(none, 800)).toEqual(Array(8).fill(100));
    }
    const of = async (key: string | number): Promise<number[]> =>
      (await partitionsOf(key, 20)).flatMap((count, p) => (count > 0 ? [p] : []));
    expect(await of('')).toEqual([keyPartition('', 8)]);
    expect(await of(0)).toEqual([keyPartition('0', 8)]);
    expect(await of('0')).toEqual([keyPartition('0', 8)]);
  });
});

describe('sendBatch', () => {
  it('DATA-03 reports on each message: bad ones in the middle keep no other from being sent', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance, 2);
    const messages = [
      { payload: 'a', partition: 0 },
      { payload: 1n, partition: 0 },
      { payload: 'b', partition: 7 },
      null,
      { payload: 'c', partition: 0, headers: { a: 1 } },
      { payload: 'd', partition: 0 },
      { payload: 'e', partition: 1, eventId: 'mine' },
    ] as OutgoingMessage[];
    const { results, sent, failed } = await instance.producer.sendBatch(topic, messages);
    const outcomes = results.map((result) => (result.status === 'sent' ? result.partition : result.error.code));
    expect(outcomes).toEqual([
      0,
      'MQ_UNSERIALIZABLE',
      'MQ_INVALID_PARTITION',
      'MQ_INVALID_MESSAGE',
      'MQ_INVALID_MESSAGE',
      0,
      1,
    ]);
    expect({ sent, failed }).toEqual({ sent: 3, failed: 4 });
    await expect(payloads(topic, 0)).resolves.toEqual(['a', 'd']);
    await expect(stored(topic, 1)).resolves.toMatchObject([{ payload: 'e', eventId: 'mine' }]);
  });

  it('takes what comes from a generator in order, and holds a bounded number of messages', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    let most = 0;
    async function* messages(): AsyncGenerator<OutgoingMessage> {
      for (const n of range(10_000)) {
        most = Math.max(most, instance.producer.inFlight);
        yield { payload: n };
      }
    }
    const { sent, results } = await instance.producer.sendBatch(topic, messages());
    expect(sent).toBe(10_000);
    expect(results).toHaveLength(10_000);
    expect(most).toBeLessThanOrEqual(2_000);
    await expect(payloads(topic)).resolves.toEqual(range(10_000));
  });

  it('of more messages than sendBufferLimit sends them all', async () => {
    const instance = await mq.open({ sendBufferLimit: 10 });
    const topic = await withTopic(instance);
    const { sent } = await instance.producer.sendBatch(
      topic,
      range(105).map((payload) => ({ payload })),
    );
    expect(sent).toBe(105);
  });

  it('carries bytes with the bytes serializer', async () => {
    const instance = await mq.open({ serializer: bytesSerializer });
    const topic = await withTopic(instance);
    const { results } = await instance.producer.sendBatch(topic, [
      { payload: Buffer.from([0xff]) },
      { payload: 'text' },
    ]);
    expect(results.map(({ status }) => status)).toEqual(['sent', 'failed']);
  });
});

describe('the topic', () => {
  it('is not made by a send with autoCreateTopics false, and is used once it is there', async () => {
    const instance = await mq.open({ autoCreateTopics: false });
    const topic = uniqueName('topic');
    const settled = await Promise.allSettled(range(3).map((n) => instance.producer.send(topic, n)));
    expect(codes(settled)).toEqual(Array(3).fill('MQ_TOPIC_NOT_FOUND'));
    await expect(mq.client.exists(mq.keys.topic(topic).meta, mq.keys.stream(topic, 0))).resolves.toBe(0);
    const other = await mq.open();
    await other.runtime.admin.createTopic(topic, { partitionCount: 1 });
    await expect(instance.producer.send(topic, 'x')).resolves.toMatchObject({ partition: 0 });
  });

  it('is made once with one partition count by producers that do not agree on it', async () => {
    const topic = uniqueName('topic');
    const instances = await Promise.all([2, 3, 5].map((defaultPartitionCount) => mq.open({ defaultPartitionCount })));
    const results = await Promise.all(
      range(300).map((n) => instances[n % 3]!.producer.send(topic, n, { key: `k${n % 30}` })),
    );
    const count = Number(await mq.client.hget(mq.keys.topic(topic).meta, 'partitionCount'));
    expect([2, 3, 5]).toContain(count);
    for (const [n, { partition }] of results.entries()) expect(partition).toBe(keyPartition(`k${n % 30}`, count));
  });

  it.each([
    ['a stream', (topic: string) => [mq.keys.stream(topic, 0)]],
    [
      'everything of it',
      (topic: string) => [
        ...range(3).map((p) => mq.keys.stream(topic, p)),
        ...Object.values(mq.keys.topic(topic)),
        mq.keys.topics,
      ],
    ],
  ])('%s deleted under the producer is made again as it was, and order holds', async (_, keysOf) => {
    const instance = await mq.open();
    const topic = await withTopic(instance, 3);
    await instance.producer.send(topic, 'before', { partition: 0 });
    await mq.client.del(...keysOf(topic));
    const results = await Promise.all(range(200).map((n) => instance.producer.send(topic, n, { key: `k${n % 20}` })));
    for (const partition of range(3)) {
      const expected = range(200).filter((n) => results[n]!.partition === partition);
      expect((await payloads(topic, partition)).filter((payload) => payload !== 'before')).toEqual(expected);
    }
    await expect(mq.client.hget(mq.keys.topic(topic).meta, 'partitionCount')).resolves.toBe('3');
    await expect(instance.runtime.admin.listTopics({ prefix: topic })).resolves.toMatchObject({ items: [{ topic }] });
  });

  it('that was deleted on purpose is not made again by a send', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    await instance.producer.send(topic, 'before');
    await mq.client.hset(mq.keys.topic(topic).meta, 'deletedAt', Date.now());
    await mq.client.del(mq.keys.stream(topic, 0));
    expect((await failure(instance.producer.send(topic, 'x'))).code).toBe('MQ_TOPIC_DELETED');
    await expect(mq.client.exists(mq.keys.stream(topic, 0))).resolves.toBe(0);
  });
});

describeWithServer('a full Redis', () => {
  afterEach(() => mq.client.config('SET', 'maxmemory', '0'));

  it('DEL-20 refuses at once, and the same call succeeds when there is room', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    await instance.producer.send(topic, 'before');
    const failures = record(instance, 'sendFailed');
    await mq.client.config('SET', 'maxmemory', '1');
    const kinds: SendOptions[] = [{}, { dedupId: 'a', partition: 0 }, { delayMs: 60_000 }];
    const startedAt = performance.now();
    for (const options of kinds) {
      const error = await failure(instance.producer.send(topic, 'x', options));
      expect(error).toMatchObject({ code: 'MQ_SEND_REFUSED', retryable: true });
      expect((error.cause as Error).message).toContain('OOM');
    }
    expect((await failure(instance.producer.send(uniqueName('new'), 'x'))).code).toBe('MQ_SEND_REFUSED');
    await mq.client.del(mq.keys.stream(topic, 0));
    expect((await failure(instance.producer.send(topic, 'x'))).code).toBe('MQ_SEND_REFUSED');
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    expect(failures.map(({ code }) => code)).toEqual(Array(5).fill('MQ_SEND_REFUSED'));
    await mq.client.config('SET', 'maxmemory', '0');
    for (const options of kinds) await instance.producer.send(topic, 'x', options);
    await expect(payloads(topic)).resolves.toEqual(['x', 'x']);
  });
});

describe('a producer that is off', () => {
  it('enabled: false: send() rejects with MQ_DISABLED, also without any Redis', async () => {
    const instance = await mq.open({ enabled: false, redis: { port: 1 } });
    expect((await failure(instance.producer.send('orders', 1))).code).toBe('MQ_DISABLED');
    const { results } = await instance.producer.sendBatch('orders', [{ payload: 1 }]);
    expect(results[0]).toMatchObject({ status: 'failed', error: { code: 'MQ_DISABLED' } });
  });

  it('closed: send() rejects with MQ_CLOSED, and what was sent before is stored', async () => {
    const instance = await mq.open();
    const topic = await withTopic(instance);
    const before = range(100).map((n) => instance.producer.send(topic, n));
    await instance.close();
    await Promise.all(before);
    expect((await failure(instance.producer.send(topic, 'late'))).code).toBe('MQ_CLOSED');
    await expect(payloads(topic)).resolves.toEqual(range(100));
  });

  it('closed with Redis away: what waits rejects with MQ_CLOSED', async () => {
    const instance = await mq.open({ redis: { port: 1 } });
    const waiting = failure(instance.producer.send('orders', 1));
    await instance.close();
    expect((await waiting).code).toBe('MQ_CLOSED');
  });
});

describeWithServer('waitReplicas', () => {
  const kinds: [name: string, options: SendOptions][] = [
    ['plain', {}],
    ['with a dedupId', { dedupId: 'a', partition: 0 }],
    ['with a delay', { delayMs: 60_000 }],
  ];

  it.each(kinds)(
    'without a replica a %s send rejects with MQ_SEND_NOT_REPLICATED, though it is stored',
    async (_, options) => {
      const instance = await mq.open({ waitReplicas: 1, waitReplicasTimeoutMs: 50 });
      const topic = await withTopic(instance);
      const error = await failure(instance.producer.send(topic, 'x', options));
      expect(error).toMatchObject({ code: 'MQ_SEND_NOT_REPLICATED', context: { topic, partition: 0 } });
      const { delayed } = mq.keys.partition(topic, 0);
      expect((await payloads(topic)).length + (await mq.client.zcard(delayed))).toBe(1);
    },
  );

  it('without a replica, and with a stream that has to be made again first, the message is stored all the same', async () => {
    const instance = await mq.open({ waitReplicas: 1, waitReplicasTimeoutMs: 50 });
    const topic = await withTopic(instance);
    await failure(instance.producer.send(topic, 'before'));
    await mq.client.del(mq.keys.stream(topic, 0));
    expect((await failure(instance.producer.send(topic, 'x'))).code).toBe('MQ_SEND_NOT_REPLICATED');
    await expect(payloads(topic)).resolves.toEqual(['x']);
  });

  it('with a replica it resolves, also for a stream that has to be made again', async () => {
    // By default a master waits five seconds for further replicas.
    await mq.client.config('SET', 'repl-diskless-sync-delay', '0');
    const replica = await startRedis({ args: ['--replicaof', '127.0.0.1', String(mq.redis.port)] });
    try {
      await waitFor(async () => (await mq.client.info('replication')).includes('state=online'));
      const instance = await mq.open({ waitReplicas: 1, waitReplicasTimeoutMs: 2_000 });
      const topic = await withTopic(instance);
      for (const [, options] of kinds) await instance.producer.send(topic, 'x', options);
      await mq.client.del(mq.keys.stream(topic, 0));
      await Promise.all(range(20).map((n) => instance.producer.send(topic, n)));
      await expect(payloads(topic)).resolves.toEqual(range(20));
      await expect(replica.client().xlen(mq.keys.stream(topic, 0))).resolves.toBe(20);
    } finally {
      await replica.stop();
    }
  });
});
