import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { compareStreamIds } from '../../libs/redis-streams-mq/src/core/stream-id.js';
import { eventIdToWire } from '../../libs/redis-streams-mq/src/core/event-id.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import type { DeadLetter as Letter } from '../../libs/redis-streams-mq/src/core/dead-letter.js';
import { replay } from '../../libs/redis-streams-mq/src/redis/scripts/replay.script.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { mentions } from '../support/tcp-proxy.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

let topic: string;
beforeEach(() => (topic = uniqueName('topic')));

/** What the handlers of a test saw, and whether they reject. */
interface Handled {
  calls: { group: string; payload: unknown; attempt: number; message: ReceivedMessage }[];
  isFixed: boolean;
}

/** One instance with the groups given, whose handlers reject everything until `isFixed`. */
async function start(
  groups: readonly string[] = ['g'],
  partitionCount = 1,
  throws = (): Error => new DeadLetter('cannot'),
) {
  const instance = await mq.open({ defaultPartitionCount: partitionCount, retryMaxAttempts: 3 });
  const handled: Handled = { calls: [], isFixed: false };
  await instance.start(
    ...groups.map((group) => ({
      topic,
      group,
      handle: (message: ReceivedMessage) => {
        const { payload, context } = message;
        handled.calls.push({ group, payload, attempt: context.attempt, message });
        if (!handled.isFixed && payload !== 'good') throw throws();
      },
    })),
  );
  return { instance, handled, deadLetters: instance.runtime.deadLetters };
}

async function letters(instance: TestInstance, count: number): Promise<readonly Letter[]> {
  const { deadLetters } = instance.runtime;
  await waitFor(async () => (await deadLetters.size(topic)) === count, { describe: `${count} dead letters` });
  const { items } = await deadLetters.list(topic, { limit: 1_000 });
  return items;
}

const payloadOf = ({ payload }: Letter): unknown => (payload === null ? null : JSON.parse(payload.toString()));

const byPartition = (count: number, partitions: number) =>
  range(count).map((payload) => ({ payload, partition: payload % partitions }));

describe('list, size and get', () => {
  it('shows the letters of all partitions as one list, oldest first, page by page without gap or repetition', async () => {
    const { instance, deadLetters } = await start(['g'], 4);
    await instance.producer.sendBatch(topic, byPartition(250, 4));
    const all = await letters(instance, 250);
    expect(all.map(payloadOf).toSorted((a, b) => Number(a) - Number(b))).toEqual(range(250));
    const ids = all.map(({ id }) => id.split('/')[1]!);
    expect(ids).toEqual(ids.toSorted(compareStreamIds));
    for (const limit of [1, 7, 100, 250, 1_000]) {
      const seen: string[] = [];
      let cursor: string | null | undefined;
      do {
        const page = await deadLetters.list(topic, { limit, ...(cursor && { cursor }) });
        expect(page.items.length).toBeLessThanOrEqual(limit);
        seen.push(...page.items.map(({ id }) => id));
        cursor = page.cursor;
      } while (cursor !== null);
      expect(seen).toEqual(all.map(({ id }) => id));
    }
  });

  it('letters with the same stream id in several partitions are all listed once', async () => {
    const { instance, deadLetters } = await start(['g'], 3);
    await instance.runtime.admin.createTopic(topic);
    for (const id of ['5-1', '5-2']) {
      for (const partition of range(3)) {
        await mq.client.xadd(mq.keys.partition(topic, partition).dlq, id, 'group', 'g', 'reason', 'exhausted');
      }
    }
    const seen: string[] = [];
    for (let cursor: string | null | undefined; cursor !== null;) {
      const page = await deadLetters.list(topic, { limit: 1, ...(cursor && { cursor }) });
      seen.push(...page.items.map(({ id }) => id));
      cursor = page.cursor;
    }
    expect(seen).toEqual(['0/5-1', '1/5-1', '2/5-1', '0/5-2', '1/5-2', '2/5-2']);
  });

  it('shows, counts and pages one group alone', async () => {
    const { instance, deadLetters } = await start(['a', 'b'], 2);
    await instance.producer.sendBatch(topic, byPartition(60, 2));
    await letters(instance, 120);
    await expect(deadLetters.size(topic, { group: 'a' })).resolves.toBe(60);
    await expect(deadLetters.size(topic, { group: 'nobody' })).resolves.toBe(0);
    const first = await deadLetters.list(topic, { group: 'a', limit: 50 });
    const second = await deadLetters.list(topic, { group: 'a', limit: 50, cursor: first.cursor! });
    const seen = [...first.items, ...second.items];
    expect(new Set(seen.map(({ group }) => group))).toEqual(new Set(['a']));
    expect(seen.map(payloadOf).toSorted((a, b) => Number(a) - Number(b))).toEqual(range(60));
    expect(second.cursor).toBeNull();
  });

  it('gives one letter by its id, and null for one that is not there', async () => {
    const { instance, deadLetters } = await start();
    await instance.producer.send(topic, 'x');
    const [letter] = await letters(instance, 1);
    await expect(deadLetters.get(topic, letter!.id)).resolves.toEqual(letter);
    await expect(deadLetters.get(topic, '0/1-1')).resolves.toBeNull();
  });

  it('refuses ids, cursors, limits, names and topics that cannot be', async () => {
    const { deadLetters, instance } = await start();
    await instance.producer.send(topic, 'good');
    for (const id of ['', 'x', '0', '1-1', '0/1', '0/x-1', '-1/1-1', '0/1-1/2', '1/1-1', '99999999999/1-1']) {
      await expect(deadLetters.get(topic, id)).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
      await expect(deadLetters.replay(topic, id)).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
      await expect(deadLetters.delete(topic, id)).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    }
    await expect(deadLetters.list(topic, { cursor: 'x' })).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    for (const limit of [0, -1, 1.5, NaN, 1_001]) {
      await expect(deadLetters.list(topic, { limit })).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    }
    await expect(deadLetters.list('a b')).rejects.toMatchObject({ code: 'MQ_INVALID_NAME' });
    await expect(deadLetters.list(topic, { group: 'a:b' })).rejects.toMatchObject({ code: 'MQ_INVALID_NAME' });
    for (const act of ['size', 'list', 'replayAll', 'clear'] as const) {
      await expect(deadLetters[act](topic, { group: '' })).rejects.toMatchObject({ code: 'MQ_INVALID_NAME' });
      await expect(deadLetters[act](uniqueName('none'))).rejects.toMatchObject({ code: 'MQ_TOPIC_NOT_FOUND' });
    }
  });
});

describe('replay', () => {
  it('DEL-22 of two calls at once one delivers it, and the other says that it is not there', async () => {
    const { instance, handled, deadLetters } = await start();
    const sent = await instance.producer.send(topic, 'x', { key: 'k', headers: { a: 'b' } });
    const [letter] = await letters(instance, 1);
    handled.isFixed = true;
    handled.calls.length = 0;
    const other = await mq.open();
    const answers = await Promise.all(
      range(10).map((n) => (n % 2 ? other.runtime.deadLetters : deadLetters).replay(topic, letter!.id)),
    );
    expect(answers.filter(Boolean)).toHaveLength(1);
    await waitFor(() => handled.calls.length > 0);
    await instance.producer.send(topic, 'good');
    await waitFor(() => handled.calls.some(({ payload }) => payload === 'good'));
    expect(handled.calls.map(({ payload, attempt }) => [payload, attempt])).toEqual([
      ['x', 1],
      ['good', 1],
    ]);
    const { context } = handled.calls[0]!.message;
    expect(context).toMatchObject({ key: 'k', eventId: sent.eventId, id: sent.id, partition: sent.partition });
    expect(Object.entries(context.headers)).toEqual([['a', 'b']]);
    await expect(deadLetters.replay(topic, letter!.id)).resolves.toBe(false);
  });

  it('DEL-22 an id that was just deleted is not there, and no other letter is delivered in its place', async () => {
    const { instance, handled, deadLetters } = await start();
    for (const name of ['deleted', 'kept']) await instance.producer.send(topic, name);
    const [deleted] = await letters(instance, 2);
    handled.isFixed = true;
    handled.calls.length = 0;
    await deadLetters.delete(topic, deleted!.id);
    await expect(deadLetters.replay(topic, deleted!.id)).resolves.toBe(false);
    await instance.producer.send(topic, 'good');
    await waitFor(() => handled.calls.length > 0);
    expect(handled.calls.map(({ payload }) => payload)).toEqual(['good']);
    await expect(deadLetters.size(topic)).resolves.toBe(1);
  });

  it('DEL-22 two replayAll() at once deliver each letter once', async () => {
    const { instance, handled, deadLetters } = await start(['g'], 2);
    await instance.producer.sendBatch(topic, byPartition(150, 2));
    await letters(instance, 150);
    handled.isFixed = true;
    handled.calls.length = 0;
    const other = await mq.open();
    const reports = await Promise.all([deadLetters.replayAll(topic), other.runtime.deadLetters.replayAll(topic)]);
    expect(reports[0].replayed + reports[1].replayed).toBe(150);
    expect(reports.map(({ failed }) => failed)).toEqual([0, 0]);
    await waitFor(() => handled.calls.length >= 150);
    await expect(deadLetters.size(topic)).resolves.toBe(0);
    expect(handled.calls.map(({ payload }) => payload as number).toSorted((a, b) => a - b)).toEqual(range(150));
  });

  it('DEL-22 what fails again comes back after the full number of attempts', async () => {
    const { instance, handled, deadLetters } = await start(['g'], 1, () => new Error('still'));
    const sent = await instance.producer.send(topic, 'x');
    const [first] = await letters(instance, 1);
    expect(first!.attempts).toBe(3);
    await expect(deadLetters.replay(topic, first!.id)).resolves.toBe(true);
    const second = await waitFor(async () => (await deadLetters.list(topic)).items[0]);
    expect(second.id).not.toBe(first!.id);
    expect(second).toMatchObject({
      attempts: 3,
      reason: 'exhausted',
      eventId: sent.eventId,
      originalMessageId: sent.id,
    });
    expect(handled.calls.map(({ attempt }) => attempt)).toEqual([1, 2, 3, 1, 2, 3]);
  });

  it('DEL-22 replayAll() ends although everything fails again at once', async () => {
    const { instance, handled, deadLetters } = await start(['g'], 2);
    await instance.producer.sendBatch(topic, byPartition(120, 2));
    await letters(instance, 120);
    handled.calls.length = 0;
    await expect(deadLetters.replayAll(topic)).resolves.toMatchObject({ replayed: 120, gone: 0, failed: 0 });
    await letters(instance, 120);
    expect(handled.calls).toHaveLength(120);
  });

  it('DEL-22 after the partition count was raised it goes where it came from', async () => {
    const { instance, handled, deadLetters } = await start(['g'], 2);
    await instance.producer.sendBatch(topic, byPartition(6, 2));
    const before = await letters(instance, 6);
    await mq.client.hset(mq.keys.topic(topic).meta, 'partitionCount', 5);
    handled.isFixed = true;
    handled.calls.length = 0;
    await deadLetters.replayAll(topic);
    await waitFor(() => handled.calls.length === 6);
    const places = (list: { payload: unknown; partition: number }[]): string[] =>
      list.map(({ payload, partition }) => `${String(payload)} on ${partition}`).toSorted();
    expect(
      places(handled.calls.map(({ payload, message }) => ({ payload, partition: message.context.partition }))),
    ).toEqual(places(before.map((letter) => ({ payload: payloadOf(letter), partition: letter.partition }))));
  });

  it('replayAll() takes a limit of any size, the oldest first, and one group alone', async () => {
    const { instance, handled, deadLetters } = await start(['a', 'b']);
    await instance.producer.sendBatch(topic, byPartition(130, 1));
    const all = await letters(instance, 260);
    handled.isFixed = true;
    handled.calls.length = 0;
    await expect(deadLetters.replayAll(topic, { group: 'a', limit: 105 })).resolves.toMatchObject({ replayed: 105 });
    await waitFor(() => handled.calls.length === 105);
    expect(handled.calls.map(({ group }) => group)).toEqual(Array(105).fill('a'));
    const oldest = all.filter(({ group }) => group === 'a').slice(0, 105);
    expect(new Set(handled.calls.map(({ payload }) => payload))).toEqual(new Set(oldest.map(payloadOf)));
    await expect(deadLetters.replayAll(topic, { limit: 0 })).resolves.toMatchObject({ replayed: 0 });
    await expect(deadLetters.replayAll(topic, { limit: 5_000 })).resolves.toMatchObject({ replayed: 155 });
    await waitFor(() => handled.calls.length === 260);
    await expect(deadLetters.size(topic)).resolves.toBe(0);
  });

  it('without any consumer it waits in the bucket for the group to come back', async () => {
    const { instance, handled } = await start();
    await instance.producer.send(topic, 'x');
    const [letter] = await letters(instance, 1);
    await instance.close();
    const admin = await mq.open();
    await expect(admin.runtime.deadLetters.replay(topic, letter!.id)).resolves.toBe(true);
    await expect(admin.runtime.deadLetters.size(topic)).resolves.toBe(0);
    const successor = await start();
    successor.handled.isFixed = true;
    await waitFor(() => successor.handled.calls.length === 1);
    expect(successor.handled.calls[0]).toMatchObject({ payload: 'x', attempt: 1 });
    expect(handled.calls).toHaveLength(1);
  });

  it('is noticed by the owner at once, not at the next tick of its mover', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, retryMoverIntervalSec: 60 });
    const attempts: number[] = [];
    await instance.start({
      topic,
      group: 'g',
      handle: ({ context }) => {
        attempts.push(context.attempt);
        if (attempts.length === 1) throw new DeadLetter('once');
      },
    });
    await instance.producer.send(topic, 'x');
    const [letter] = await letters(instance, 1);
    const other = await mq.open();
    await other.runtime.deadLetters.replay(topic, letter!.id);
    await waitFor(() => attempts.length === 2, { timeoutMs: 5_000 });
  });

  it('DEL-13 a replay whose reply was lost has happened once', async () => {
    const { instance, handled } = await start();
    await instance.producer.sendBatch(topic, byPartition(2, 1));
    const [warm, letter] = await letters(instance, 2);
    handled.isFixed = true;
    handled.calls.length = 0;
    const proxy = await mq.proxy();
    const admin = await mq.open({ redis: proxy.url, failFast: true });
    await admin.runtime.deadLetters.replay(topic, warm!.id);
    const lost = proxy.dropNextReplyMatching(mentions(replay.sha));
    const answer = admin.runtime.deadLetters.replay(topic, letter!.id);
    await expect(answer).rejects.toThrow(/closed|max retries/i);
    await lost;
    await waitFor(() => handled.calls.length === 2);
    await expect(instance.runtime.deadLetters.replay(topic, letter!.id)).resolves.toBe(false);
    expect(handled.calls.map(({ payload }) => payload)).toEqual([0, 1]);
  });

  it('reports on what it did, as events', async () => {
    const { instance, handled, deadLetters } = await start();
    await instance.producer.send(topic, 'x');
    const [letter] = await letters(instance, 1);
    const replayed = record(instance, 'replayed');
    handled.isFixed = true;
    await deadLetters.replay(topic, letter!.id);
    expect(replayed).toMatchObject([{ topic, partition: 0, group: 'g', result: 'replayed' }]);
  });
});

describe('delete and clear', () => {
  it('delete() removes one letter for good, once', async () => {
    const { instance, handled, deadLetters } = await start();
    const deleted = record(instance, 'deadLetterDeleted');
    await instance.producer.sendBatch(topic, byPartition(3, 1));
    const [, second] = await letters(instance, 3);
    await expect(Promise.all(range(4).map(() => deadLetters.delete(topic, second!.id)))).resolves.toEqual([
      true,
      false,
      false,
      false,
    ]);
    await expect(deadLetters.replay(topic, second!.id)).resolves.toBe(false);
    const left = await letters(instance, 2);
    expect(left.map(payloadOf)).toEqual([0, 2]);
    expect(deleted).toEqual([{ topic, partition: 0, count: 1, by: 'delete' }]);
    expect(handled.calls).toHaveLength(3);
  });

  it('clear() removes those of one group, or all', async () => {
    const { instance, deadLetters } = await start(['a', 'b'], 3);
    await instance.producer.sendBatch(topic, byPartition(150, 3));
    await letters(instance, 300);
    await expect(deadLetters.clear(topic, { group: 'a' })).resolves.toBe(150);
    await expect(deadLetters.size(topic, { group: 'a' })).resolves.toBe(0);
    await expect(deadLetters.size(topic)).resolves.toBe(150);
    await expect(deadLetters.clear(topic)).resolves.toBe(150);
    await expect(deadLetters.list(topic)).resolves.toEqual({ items: [], cursor: null });
    await expect(deadLetters.clear(topic)).resolves.toBe(0);
  });
});

describe('DEL-25 entries that are not ours', () => {
  const goodEventId = eventIdToWire('0190a6b2-7a4e-7c3b-8f00-00000000abcd');
  const many = range(100).flatMap((n) => [`field ${n}`, `${n}`]);
  const thousands = range(3_000).flatMap((n) => [`f${n}`, `${n}`]);
  const foreign: [name: string, fields: (string | Buffer)[]][] = [
    ['of another program', ['foo', 'bar']],
    ['with no JSON', ['payload', '{broken', 'eventId', goodEventId]],
    ['with an empty payload', ['payload', '', 'eventId', goodEventId]],
    ['with a payload that is no UTF-8', ['payload', Buffer.from('fffe0080c328', 'hex'), 'eventId', goodEventId]],
    ['without an event id', ['payload', '1']],
    ['with a bad event id', ['payload', '1', 'eventId', 'not one of ours']],
    ['with names in other case', ['PAYLOAD', '1', 'EventID', goodEventId]],
    ['with headers that are no object', ['payload', '1', 'eventId', goodEventId, 'headers', '[1]']],
    ['with a header that is no text', ['payload', '1', 'eventId', goodEventId, 'headers', '{"a":1}']],
    ['with a bad ttl', ['payload', '1', 'eventId', goodEventId, 'ttl', '-5']],
    ['with a bad timestamp', ['payload', '1', 'eventId', goodEventId, 'timestamp', 'yesterday']],
    [
      'with names of the DLQ',
      ['group', 'other', 'reason', 'x', 'fields', 'y', 'originalMessageId', '1-1', 'attempts', 'z'],
    ],
    ['DATA-05 with a field __proto__', ['__proto__', '{"polluted":1}', 'constructor', 'x']],
    ['with bytes for names', [Buffer.from([0xff, 0x00]), Buffer.from([0xfe]), '', '']],
    ['with a hundred fields', many],
    ['with thousands of fields', thousands],
  ];

  it('become dead letters as malformed, with their fields byte for byte, and hold up nothing', async () => {
    const { instance, handled } = await start();
    await instance.producer.send(topic, 'good');
    const stream = mq.keys.stream(topic, 0);
    const ids: string[] = [];
    for (const [, fields] of foreign) ids.push((await mq.client.xadd(stream, '*', ...fields))!);
    for (const _ of range(5)) await instance.producer.send(topic, 'good');
    await waitFor(() => handled.calls.length === 6);
    const items = await letters(instance, foreign.length);
    expect(handled.calls.map(({ payload }) => payload)).toEqual(Array(6).fill('good'));
    for (const [i, [name, fields]] of foreign.entries()) {
      const letter = items.find(({ originalMessageId }) => originalMessageId === ids[i])!;
      expect([name, letter.reason, letter.attempts, letter.group]).toEqual([name, 'malformed', 0, 'g']);
      expect([name, ...letter.fields.map((field) => field.toString('hex'))]).toEqual([
        name,
        ...fields.map((field) => Buffer.from(field as string).toString('hex')),
      ]);
      expect(letter.error).toMatchObject({
        name: 'MalformedEntryError',
        message: expect.stringContaining('malformed stream entry'),
      });
    }
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
    expect(await mq.client.xpending(stream, 'g')).toEqual([0, null, null, null]);
  });

  it('a malformed letter can be replayed, and comes back as malformed', async () => {
    const { instance, deadLetters } = await start();
    await instance.runtime.admin.createTopic(topic);
    const id = await mq.client.xadd(mq.keys.stream(topic, 0), '*', 'foo', 'bar');
    const [first] = await letters(instance, 1);
    await expect(deadLetters.replay(topic, first!.id)).resolves.toBe(true);
    const second = await waitFor(async () =>
      (await deadLetters.list(topic)).items.find((letter) => letter.id !== first!.id),
    );
    expect(second).toMatchObject({ reason: 'malformed', originalMessageId: id });
    expect(second.fields.map(String)).toEqual(['foo', 'bar']);
  });

  it('a field that a newer version adds is carried along, and the message is handled', async () => {
    const { instance, handled } = await start();
    await instance.runtime.admin.createTopic(topic);
    await mq.client.xadd(
      mq.keys.stream(topic, 0),
      '*',
      'payload',
      '"new"',
      'eventId',
      goodEventId,
      'traceparent',
      '00-ab',
    );
    const [letter] = await letters(instance, 1);
    expect(handled.calls.map(({ payload }) => payload)).toEqual(['new']);
    expect(letter!.fields.map(String)).toEqual(['payload', '"new"', 'eventId', goodEventId, 'traceparent', '00-ab']);
  });

  it('in the retry stream: become dead letters too, with all their fields, and hold up nothing', async () => {
    const { instance, handled } = await start();
    await instance.producer.send(topic, 'good');
    await waitFor(() => handled.calls.length === 1);
    const { retryStream } = mq.keys.groupPartition(topic, 0, 'g');
    const message = ['payload', '"x"', 'eventId', goodEventId];
    const entries = [
      ['foo', 'bar'],
      ['origin', '1-1'],
      // Whoever wrote these, there is a message in them: it is handled, as one that was not tried before.
      ['origin', '1-1', 'attempt', 'many', ...message],
      message,
    ];
    for (const fields of entries) await mq.client.xadd(retryStream, '*', ...fields);
    const items = await letters(instance, 4);
    expect(items.map(({ reason, attempts }) => [reason, attempts])).toEqual([
      ['malformed', 0],
      ['malformed', 0],
      ['rejected', 1],
      ['rejected', 1],
    ]);
    expect(items.map(({ fields }) => fields.map(String))).toEqual([entries[0], entries[1], message, message]);
    await waitFor(async () => (await mq.client.xlen(retryStream)) === 0);
    await instance.producer.send(topic, 'good');
    await waitFor(() => handled.calls.at(-1)?.payload === 'good');
    expect(handled.calls.map(({ payload }) => payload)).toEqual(['good', 'x', 'x', 'good']);
  });

  it('in the DLQ itself: are listed with what can be read, cannot be replayed, and hide no other letter', async () => {
    const { instance, handled, deadLetters } = await start();
    await instance.producer.send(topic, 'x');
    await letters(instance, 1);
    const { dlq } = mq.keys.partition(topic, 0);
    const bad = [
      ['foo', 'bar'],
      ['group', 'g', 'eventId', 'bad', 'failedAt', 'x', 'fields', 'not packed'],
      ['group', 'a:b', 'originalMessageId', '1-1'],
    ];
    for (const fields of bad) await mq.client.xadd(dlq, '*', ...fields);
    const items = await letters(instance, 4);
    expect(items[2]).toMatchObject({ group: 'g', eventId: null, payload: null, fields: [] });
    for (const letter of items.slice(1)) {
      await expect(deadLetters.replay(topic, letter.id)).rejects.toMatchObject({ code: 'MQ_DEAD_LETTER_UNREADABLE' });
    }
    handled.isFixed = true;
    await expect(deadLetters.replayAll(topic)).resolves.toMatchObject({ replayed: 1, gone: 0, failed: 3 });
    await waitFor(() => handled.calls.length === 2);
    await expect(deadLetters.clear(topic)).resolves.toBe(3);
  });
});
