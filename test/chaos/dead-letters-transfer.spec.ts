import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { bytesSerializer } from '../../libs/redis-streams-mq/src/core/serializer.js';
import { onEachKind } from '../support/on-each-kind.js';
import { allPages, lettersOf, startRejecting } from '../support/rejecting-handler.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

let topic: string;
let folder: string;
beforeEach(async () => {
  topic = uniqueName('topic');
  folder = await mkdtemp(join(tmpdir(), 'letters-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** Every byte there is, half characters, text of several planes, and the line ends of JavaScript. */
function payloadOf(n: number): Buffer {
  if (n % 3 === 0) return Buffer.from(range(n % 300).map((i) => (i * 7 + n) % 256));
  const text = `\u{1F4A5}${n} grüße \u2028\u2029 \0 "\\" ${'漢'.repeat(n % 50)}`;
  return n % 3 === 1 ? Buffer.from(text) : Buffer.from(text).subarray(0, -1);
}

onEachKind('dead letters are exported and imported', (kind) => {
  it('10,000 of them, cleared in between, and then replayed: handlers get each payload once, byte for byte', async () => {
    const total = 10_000;
    const rejected = await startRejecting(kind, topic, ['g'], {
      serializer: bytesSerializer,
      defaultPartitionCount: 4,
    });
    const { instance, deadLetters, calls } = rejected;
    const sent = new Map<string, { payload: string; partition: number; headers: string }>();
    const messages = range(total).map((n) => ({ payload: payloadOf(n), key: `k\u2028${n}`, headers: { n: `ü${n}` } }));
    const results = await instance.producer.sendBatch(topic, messages);
    expect(results.failed).toBe(0);
    for (const [n, result] of results.results.entries()) {
      const { eventId, partition } = result as unknown as { eventId: string; partition: number };
      sent.set(eventId, { payload: payloadOf(n).toString('hex'), partition, headers: `ü${n}` });
    }
    expect(sent.size).toBe(total);
    await waitFor(async () => (await deadLetters.size(topic)) === total, { timeoutMs: 60_000 });
    const before = await allPages(deadLetters, topic);

    const file = join(folder, 'letters.jsonl');
    const timings: Record<string, number> = {};
    const timed = async <T>(what: string, work: Promise<T>): Promise<T> => {
      const startedAt = performance.now();
      const result = await work;
      timings[what] = Math.round(performance.now() - startedAt);
      return result;
    };
    await timed('export', pipeline(Readable.from(deadLetters.export(topic)), createWriteStream(file)));
    expect(await timed('clear', deadLetters.clear(topic))).toBe(total);
    expect(await deadLetters.size(topic)).toBe(0);
    const progress: number[] = [];
    const report = await timed(
      'import',
      deadLetters.import(topic, createReadStream(file), { onProgress: ({ imported }) => void progress.push(imported) }),
    );
    expect(report).toMatchObject({ imported: total, present: 0 });
    expect(progress.length).toBeLessThanOrEqual(total / 20);
    expect(await deadLetters.import(topic, createReadStream(file))).toMatchObject({ imported: 0, present: total });
    const after = await allPages(deadLetters, topic);
    const told = (letters: typeof before) =>
      letters.map((letter) => JSON.stringify({ ...letter, id: '' })).toSorted((a, b) => (a < b ? -1 : 1));
    expect(told(after)).toEqual(told(before));

    rejected.repair();
    calls.length = 0;
    await expect(timed('replay', deadLetters.replayAll(topic))).resolves.toMatchObject({ replayed: total });
    await waitFor(() => calls.length >= total, { timeoutMs: 60_000 });
    await expect(deadLetters.size(topic)).resolves.toBe(0);
    // Imported once more after they were replayed: they are not there, and still known.
    expect(await deadLetters.import(topic, createReadStream(file))).toMatchObject({ imported: 0, present: total });
    expect(calls).toHaveLength(total);
    const handled = new Map(
      calls.map(({ message: { context, payloadBytes } }) => [
        context.eventId,
        { payload: payloadBytes.toString('hex'), partition: context.partition, headers: context.headers.n },
      ]),
    );
    expect(handled.size).toBe(total);
    for (const [eventId, message] of sent) expect(handled.get(eventId)).toEqual(message);
    if (process.env.MQ_TEST_TIMINGS) process.stdout.write(`${JSON.stringify(timings)}\n`);
  }, 180_000);

  it('with their history, into what is left, from any source of lines, filtered', async () => {
    const rejected = await startRejecting(kind, topic, ['a', 'b'], { retryMaxAttempts: 2 }, () => new Error('no'));
    const { instance, deadLetters } = rejected;
    for (const payload of ['x', 'y']) await instance.producer.send(topic, payload);
    const [first] = await lettersOf(rejected, topic, 4);
    await deadLetters.replay(topic, first!.id);
    const letters = await waitFor(async () => {
      const all = await allPages(deadLetters, topic);
      return all.length === 4 && all;
    });
    const { dlq } = kind.keys.partition(topic, 0);
    await kind.client.xadd(dlq, '*', Buffer.from([0xff]), '', 'fields', Buffer.from([0xc1]), 'group', 'a:b');
    const lines: string[] = [];
    for await (const line of deadLetters.export(topic)) lines.push(line);
    const ofA: string[] = [];
    for await (const line of deadLetters.export(topic, { group: 'a' })) ofA.push(line);
    expect([lines.length, ofA.length]).toEqual([5, 2]);

    // One is gone, and the others are there.
    await deadLetters.delete(topic, letters[0]!.id);
    expect(await deadLetters.import(topic, lines)).toEqual({ imported: 1, present: 4, lines: 5 });
    expect(await deadLetters.import(topic, lines)).toEqual({ imported: 0, present: 5, lines: 5 });
    const again: string[] = [];
    for await (const line of deadLetters.export(topic)) again.push(line);
    expect(again.toSorted()).toEqual(lines.toSorted());

    // Those that were there are known as well.
    await deadLetters.clear(topic);
    expect(await deadLetters.import(topic, lines)).toEqual({ imported: 0, present: 5, lines: 5 });
    for (const partition of [0, 1, 2]) await kind.client.del(kind.keys.partition(topic, partition).imports);
    const bytes = Readable.from([...Buffer.from(`${lines.slice(1).join('')}\n`)].map((byte) => Buffer.from([byte])));
    expect(await deadLetters.import(topic, bytes)).toMatchObject({ imported: 4, present: 0 });
    const back = (await allPages(deadLetters, topic)).find(({ deathCount }) => deathCount === 1)!;
    expect(back.deaths).toMatchObject([{ attempts: 2, error: 'Error: no' }]);
    expect(back.failures.map(({ attempt }) => attempt)).toEqual([1, 2]);
    // Found by when it failed, although it came later.
    const { failedAt } = back;
    const found = await allPages(deadLetters, topic, { failedFrom: failedAt, failedTo: failedAt });
    expect(found.map(({ id }) => id)).toContain(back.id);
  });

  it('and lines that are none are refused with their number, after those before them', async () => {
    const rejected = await startRejecting(kind, topic, ['g']);
    const { instance, deadLetters } = rejected;
    await instance.producer.sendBatch(
      topic,
      range(3).map((payload) => ({ payload })),
    );
    await lettersOf(rejected, topic, 3);
    const file = join(folder, 'letters.jsonl');
    await pipeline(Readable.from(deadLetters.export(topic)), createWriteStream(file));
    await deadLetters.clear(topic);
    const [one, two, three] = (await readFile(file, 'utf8')).trim().split('\n') as [string, string, string];
    const changed = (change: (line: Record<string, unknown>) => void): string => {
      const line = JSON.parse(three) as Record<string, unknown>;
      change(line);
      return JSON.stringify(line);
    };
    const bad: [string, string][] = [
      ['no JSON', three.slice(0, -1)],
      ['no object', '[1]'],
      ['null', 'null'],
      ['another version', changed((line) => (line.version = 2))],
      ['another topic', changed((line) => (line.topic = 'other'))],
      ['a partition that is not there', changed((line) => (line.partition = 3))],
      ['no partition', changed((line) => (line.partition = '0'))],
      ['no id', changed((line) => (line.id = '1'))],
      ['no digest', changed((line) => delete line.digest)],
      ['no entry', changed((line) => (line.entry = []))],
      ['an entry of something else', changed((line) => (line.entry = [['a']]))],
      ['no base64', changed((line) => (line.entry = [['a', { base64: '?' }]]))],
      ['other fields', three.replace('exhausted', 'expired').replace('rejected', 'expired')],
    ];
    for (const [what, line] of bad) {
      const outcome: unknown = await deadLetters.import(topic, [one, '', line, two]).catch((error: unknown) => error);
      expect([what, outcome]).toEqual([
        what,
        expect.objectContaining({ code: 'MQ_IMPORT_MALFORMED', message: expect.stringContaining('line 3') }),
      ]);
      expect([what, await deadLetters.size(topic)]).toEqual([what, 1]);
    }
    expect(await deadLetters.import(topic, [one, two, three])).toEqual({ imported: 2, present: 1, lines: 3 });
  });
});
