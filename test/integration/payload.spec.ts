import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import { bytesSerializer } from '../../libs/redis-streams-mq/src/core/serializer.js';
import type { DeadLetter as Letter } from '../../libs/redis-streams-mq/src/core/dead-letter.js';
import type { SendOptions } from '../../libs/redis-streams-mq/src/producer/outgoing-message.js';
import type { SendResult } from '../../libs/redis-streams-mq/src/producer/producer.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();

const RETRIES = 3;

interface Journey {
  sent: SendResult;
  /** One per handler call: first, three retries, then the call after the replay. */
  calls: ReceivedMessage[];
  letter: Letter;
}

/**
 * Sends each message and takes it through every path there is: three retries, a dead letter at the fourth call, a look
 * at the DLQ, a replay, and one more call that succeeds.
 */
async function journeys(
  instance: TestInstance,
  messages: readonly (SendOptions & { payload: unknown })[],
  topic = uniqueName('payload'),
): Promise<Journey[]> {
  const { deadLetters } = instance.runtime;
  const calls = new Map<string, ReceivedMessage[]>();
  let isReplay = false;
  await instance.start({
    topic,
    group: 'constructor',
    handle: (message) => {
      const { eventId, attempt } = message.context;
      calls.set(eventId, [...(calls.get(eventId) ?? []), message]);
      if (isReplay) return;
      if (attempt <= RETRIES) throw new Error('not yet');
      throw new DeadLetter('look at it');
    },
  });
  const sent: SendResult[] = [];
  for (const { payload, ...options } of messages) sent.push(await instance.producer.send(topic, payload, options));
  await waitFor(async () => (await deadLetters.size(topic)) === messages.length, { timeoutMs: 20_000 });
  const letters = (await deadLetters.list(topic, { limit: 1_000 })).items;
  isReplay = true;
  const report = { outcome: 'done', replayed: messages.length, gone: 0, waiting: 0, failed: 0, refused: [] };
  await expect(deadLetters.replayAll(topic)).resolves.toEqual(report);
  await waitFor(() => [...calls.values()].every((list) => list.length === RETRIES + 2));
  await expect(deadLetters.size(topic)).resolves.toBe(0);
  return sent.map((result) => ({
    sent: result,
    calls: calls.get(result.eventId)!,
    letter: letters.find(({ eventId }) => eventId === result.eventId)!,
  }));
}

describe('DATA-01 bytes', () => {
  const samples: [name: string, bytes: Buffer][] = [
    ['all 256 byte values', Buffer.from(Array.from({ length: 256 }, (_, i) => i))],
    ['100 kB of random bytes', randomBytes(100_000)],
    ['gzip data', gzipSync('x'.repeat(10_000))],
    ['no valid UTF-8', Buffer.from('fffe0080c328', 'hex')],
    ['digits, which are a number elsewhere', Buffer.from('0012345678901234567890')],
    ['no bytes at all', Buffer.alloc(0)],
  ];

  it('DATA-01 are the same after three retries, in the DLQ and after a replay', async () => {
    const instance = await mq.open({ serializer: bytesSerializer });
    const seen = await journeys(
      instance,
      samples.map(([, payload]) => ({ payload })),
    );
    for (const [i, [name, bytes]] of samples.entries()) {
      const { calls, letter } = seen[i]!;
      const hex = bytes.toString('hex');
      expect([name, ...calls.map(({ payload }) => (payload as Buffer).toString('hex'))]).toEqual([
        name,
        ...Array(5).fill(hex),
      ]);
      expect([name, ...calls.map(({ payloadBytes }) => payloadBytes.toString('hex'))]).toEqual([
        name,
        ...Array(5).fill(hex),
      ]);
      expect([name, letter.payload!.toString('hex')]).toEqual([name, hex]);
    }
  });

  it('DATA-01 are the same when sent with a delay, with a dedupId and in a batch', async () => {
    const topic = uniqueName('bytes');
    const seen: string[] = [];
    const instance = await mq.open({ serializer: bytesSerializer, defaultPartitionCount: 1 });
    await instance.start({
      topic,
      group: 'g',
      handle: ({ payload }) => void seen.push((payload as Buffer).toString('hex')),
    });
    const expected: string[] = [];
    for (const [, payload] of samples) {
      await instance.producer.send(topic, payload, { delayMs: 1 });
      await instance.producer.send(topic, payload, { dedupId: uniqueName('once') });
      await instance.producer.sendBatch(topic, [{ payload: new Uint8Array(payload) }]);
      expected.push(...Array<string>(3).fill(payload.toString('hex')));
    }
    await waitFor(() => seen.length === expected.length);
    expect(seen.sort()).toEqual(expected.sort());
  });

  it('DATA-01 are the same when a dead owner’s entries are taken over', async () => {
    const topic = uniqueName('bytes');
    const instance = await mq.open({ serializer: bytesSerializer });
    await instance.runtime.admin.createTopic(topic, { partitionCount: 1 });
    for (const [, payload] of samples) await instance.producer.send(topic, payload);
    const stream = mq.keys.stream(topic, 0);
    await mq.client.xgroup('CREATE', stream, 'g', '0');
    await mq.client.xreadgroup('GROUP', 'g', 'dead-owner', 'COUNT', 100, 'STREAMS', stream, '>');
    const taken = record(instance, 'takenOver');
    const seen: string[] = [];
    await instance.start({
      topic,
      group: 'g',
      handle: ({ payload }) => void seen.push((payload as Buffer).toString('hex')),
    });
    await waitFor(() => seen.length === samples.length);
    expect(seen).toEqual(samples.map(([, bytes]) => bytes.toString('hex')));
    expect(taken.map(({ count }) => count)).toEqual([samples.length]);
  });

  it('DATA-01 keys and headers are the same text everywhere', async () => {
    const instance = await mq.open();
    const texts = ['ä😀', '👨‍👩‍👧‍👦', 'שלום', '\u0000', '\u00e9', 'e\u0301', '\uffff', ' '];
    const seen = await journeys(
      instance,
      texts.map((text) => ({ payload: text, key: text, headers: { [text]: text } })),
    );
    for (const [i, text] of texts.entries()) {
      const { sent, calls, letter } = seen[i]!;
      for (const { context } of calls) {
        expect(context).toMatchObject({ key: text, partition: sent.partition });
        expect(Object.entries(context.headers)).toEqual([[text, text]]);
      }
      expect(letter).toMatchObject({ key: text, partition: sent.partition });
      expect(Object.entries(letter.headers)).toEqual([[text, text]]);
    }
  });
});

describe('JSON', () => {
  it('DATA-02 DATA-04 null, empty, false and text that looks like something else come back exactly, whatever way they went', async () => {
    const plain = [null, '', 0, -1.5, 1e21, false, true, [], {}, [[]], 'null', '1', 'undefined', '"', '{"a":1}'];
    const unicode = ['\u0000', '👨‍👩‍👧‍👦', '\ud83d', '\u00e9', 'e\u0301', '\u2028\u2029', 'ä😀'.repeat(100_000)];
    const nested = { list: [null, '', 0, false, { deep: '😀' }], '': 'empty name' };
    const values = [...plain, ...unicode, nested];
    const instance = await mq.open();
    const seen = await journeys(
      instance,
      values.map((payload) => ({ payload })),
    );
    for (const [i, value] of values.entries()) {
      const { calls, letter } = seen[i]!;
      expect(calls.map(({ payload }) => payload)).toEqual(Array(RETRIES + 2).fill(value));
      expect(letter.payload!.toString()).toBe(JSON.stringify(value));
    }
  });

  it('DATA-02 characters of two and four bytes arrive whole, 100 kB of them 200 times and a megabyte 10 times, wherever the chunks are cut', async () => {
    const topic = uniqueName('large');
    // Of 0 to 6 bytes before them, so that each byte of each character comes to lie at each place of a chunk.
    const text = (n: number): string => 'x'.repeat(n % 7) + 'ä😀'.repeat(n % 20 === 19 ? 175_000 : 17_000);
    const instance = await mq.open({ defaultPartitionCount: 1, maxPayloadBytes: 2_000_000 });
    const wrong: number[] = [];
    let handled = 0;
    await instance.start({
      topic,
      group: 'g',
      handle: ({ payload, context }) => {
        const n = handled++;
        if (payload !== text(n) || context.key !== `ä😀-${n}` || context.headers['😀'] !== `${n}ä`) wrong.push(n);
      },
    });
    for (let round = 0; round < 20; round++) {
      for (let n = round * 10; n < round * 10 + 10; n++) {
        await instance.producer.send(topic, text(n), { key: `ä😀-${n}`, headers: { '😀': `${n}ä` } });
      }
      await waitFor(() => handled === round * 10 + 10);
      await mq.client.xtrim(mq.keys.stream(topic, 0), 'MAXLEN', 0);
    }
    expect(wrong).toEqual([]);
  });

  it('DATA-04 what JSON writes in another form arrives in that form', async () => {
    class Money {
      constructor(private readonly cents: number) {}
      toJSON(): string {
        return `${this.cents} ct`;
      }
    }
    const at = new Date(0);
    const given = {
      at,
      nan: NaN,
      infinite: -Infinity,
      zero: -0,
      map: new Map([[1, 2]]),
      set: new Set([1]),
      gone: undefined,
      sparse: Object.assign([1], { 2: 3 }),
      [Symbol('hidden')]: 1,
      money: new Money(5),
    };
    const instance = await mq.open();
    const [journey] = await journeys(instance, [{ payload: given, headers: { empty: '' } }]);
    const arrived = {
      at: '1970-01-01T00:00:00.000Z',
      nan: null,
      infinite: null,
      zero: 0,
      map: {},
      set: {},
      sparse: [1, null, 3],
      money: '5 ct',
    };
    expect(journey!.calls.map(({ payload }) => payload)).toEqual(Array(RETRIES + 2).fill(arrived));
    for (const { context } of journey!.calls) expect(context.headers).toEqual({ empty: '' });
  });

  it('DATA-05 `__proto__` and `constructor` are data in payloads and headers, and pollute nothing', async () => {
    const text = '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}';
    const headerText = '{"__proto__":"a","constructor":"b","hasOwnProperty":"c","empty":""}';
    const instance = await mq.open();
    const [journey] = await journeys(instance, [
      { payload: JSON.parse(text), headers: JSON.parse(headerText) as Record<string, string> },
    ]);
    const { calls, letter } = journey!;
    for (const { payload, context } of calls) {
      expect(JSON.stringify(payload)).toBe(text);
      expect(JSON.stringify(context.headers)).toBe(headerText);
    }
    expect(letter.payload!.toString()).toBe(text);
    expect(JSON.stringify(letter.headers)).toBe(headerText);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });

  it.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty'])(
    'DATA-05 %s works as the name of a topic and as a key',
    async (name) => {
      const instance = await mq.open();
      const [journey] = await journeys(instance, [{ payload: name, key: name }], name);
      for (const { context } of journey!.calls)
        expect(context).toMatchObject({ topic: name, key: name, group: 'constructor' });
      expect(journey!.letter).toMatchObject({ topic: name, key: name });
    },
  );
});

describe('what goes with a message', () => {
  it('the event id, the original id, the partition and the times are the same in every call and in the dead letter', async () => {
    const timestamp = Date.UTC(2001, 0, 1);
    const uuid = '0190a6b2-7a4e-7c3b-8f00-00000000abcd';
    const text = `event ${uniqueName('id')}`;
    const instance = await mq.open();
    const seen = await journeys(instance, [
      { payload: 1 },
      { payload: 2, eventId: uuid, timestamp },
      { payload: 3, eventId: text, timestamp: new Date(timestamp) },
    ]);
    expect(seen.map(({ sent }) => sent.eventId)).toEqual([
      expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/),
      uuid,
      text,
    ]);
    for (const [i, { sent, calls, letter }] of seen.entries()) {
      const publishedAt = Number(sent.id!.split('-')[0]);
      const same = { eventId: sent.eventId, id: sent.id, partition: sent.partition, publishedAt };
      for (const { context } of calls)
        expect(context).toMatchObject({ ...same, timestamp: i === 0 ? publishedAt : timestamp });
      expect(letter).toMatchObject({ eventId: sent.eventId, originalMessageId: sent.id, partition: sent.partition });
    }
  });

  it('attempts are counted from 1 without a gap, and a replay begins at 1 again', async () => {
    const instance = await mq.open();
    const [journey] = await journeys(instance, [{ payload: 'x' }]);
    expect(journey!.calls.map(({ context }) => context.attempt)).toEqual([1, 2, 3, 4, 1]);
    expect(journey!.letter.attempts).toBe(4);
  });

  it.each([1, 2, 5])('with retryMaxAttempts %i the handler is called exactly that often', async (retryMaxAttempts) => {
    const topic = uniqueName('attempts');
    const attempts: number[] = [];
    const instance = await mq.open({ retryMaxAttempts });
    await instance.start({
      topic,
      group: 'g',
      handle: ({ context }) => {
        attempts.push(context.attempt);
        throw new Error('never');
      },
    });
    await instance.producer.send(topic, 'x');
    const letter = await waitFor(async () => (await instance.runtime.deadLetters.list(topic)).items[0]);
    expect(letter).toMatchObject({ reason: 'exhausted', attempts: retryMaxAttempts });
    expect(attempts).toEqual(Array.from({ length: retryMaxAttempts }, (_, i) => i + 1));
  });

  it('DATA-09 the empty key is a key, and no key is none', async () => {
    const instance = await mq.open();
    const given = [{ key: '' }, { key: null }, {}, { key: 0 }, { key: '0' }];
    const seen = await journeys(
      instance,
      given.map((options) => ({ payload: 'x', ...options })),
    );
    const keys = ['', null, null, '0', '0'];
    for (const [i, key] of keys.entries()) {
      expect(seen[i]!.calls.map(({ context }) => context.key)).toEqual(Array(RETRIES + 2).fill(key));
      expect(seen[i]!.letter.key).toBe(key);
    }
    expect(seen[3]!.sent.partition).toBe(seen[4]!.sent.partition);
  });
});
