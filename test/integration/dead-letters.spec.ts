import { compareStreamIds } from '../../libs/redis-streams-mq/src/core/stream-id.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import type { ReplayReport } from '../../libs/redis-streams-mq/src/dlq/dead-letter-replay.js';
import { onEachKind } from '../support/on-each-kind.js';
import { allPages, lettersOf, startRejecting } from '../support/rejecting-handler.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const payloads = (letters: readonly { payload: Buffer | null }[]): unknown[] =>
  letters.map(({ payload }) => JSON.parse(String(payload)) as unknown);

let topic: string;
beforeEach(() => (topic = uniqueName('topic')));

onEachKind('dead letters are listed', (kind) => {
  it('by group, reason, key, error text and time, alone and together, in both directions', async () => {
    const rejected = await startRejecting(kind, topic, ['a', 'b'], {}, ({ payload }) =>
      payload === 'late' ? new TypeError('Timeout of the BANK') : new DeadLetter(`no account ${String(payload)}`),
    );
    const { instance, deadLetters } = rejected;
    for (const payload of ['x', 'y', 'late']) await instance.producer.send(topic, payload, { key: `key-${payload}` });
    const all = await lettersOf(rejected, topic, 6);
    const listed = async (filter: Parameters<typeof deadLetters.list>[1]): Promise<string[]> =>
      (await allPages(deadLetters, topic, filter)).map(({ id }) => id);
    const expected = (matches: (letter: (typeof all)[number]) => boolean): string[] =>
      all.filter(matches).map(({ id }) => id);

    expect(await listed({ group: 'a' })).toEqual(expected(({ group }) => group === 'a'));
    expect(await listed({ reason: 'exhausted' })).toEqual(expected(({ reason }) => reason === 'exhausted'));
    expect(await listed({ reason: ['exhausted', 'rejected'] })).toHaveLength(6);
    expect(await listed({ reason: 'malformed' })).toEqual([]);
    expect(await listed({ key: 'key-y' })).toEqual(expected(({ key }) => key === 'key-y'));
    expect(await listed({ errorText: 'timeout of the bank' })).toHaveLength(2);
    expect(await listed({ errorText: 'TypeError: t' })).toHaveLength(2);
    expect(await listed({ errorText: '%a' })).toEqual([]);
    expect(await listed({ errorText: 'no account', group: 'b', key: 'key-x' })).toHaveLength(1);
    for (const { failedAt } of all) {
      expect(await listed({ failedFrom: failedAt })).toEqual(expected((letter) => letter.failedAt >= failedAt));
      expect(await listed({ failedTo: new Date(failedAt) })).toEqual(expected((letter) => letter.failedAt <= failedAt));
      const newestFirst = await listed({ failedFrom: failedAt, failedTo: failedAt + 5, order: 'newest-first' });
      const between = expected((letter) => letter.failedAt >= failedAt && letter.failedAt <= failedAt + 5);
      expect(newestFirst).toEqual(between.toReversed());
    }
    expect(await listed({ order: 'newest-first', limit: 1 })).toEqual(all.map(({ id }) => id).toReversed());
    expect(await listed({ group: 'b', limit: 1 })).toEqual(expected(({ group }) => group === 'b'));
  });

  it('page by page in time order over all partitions, a bounded number looked at in one call', async () => {
    const { deadLetters, instance } = await startRejecting(kind, topic, ['a'], { defaultPartitionCount: 4 });
    await instance.runtime.admin.createTopic(topic);
    const total = 24_000;
    const rare = new Set([5, 11_000, 23_999]);
    for (const partition of range(4)) {
      const { dlq } = kind.keys.partition(topic, partition);
      const pipeline = kind.client.pipeline();
      // All but a few of one partition: the others' ends are known at once.
      for (const n of range(total)) {
        if ((n % 10 === 0 ? n % 3 : 3) !== partition) continue;
        const group = rare.has(n) ? 'rare' : 'a';
        const at = 1_000 * (1_000 + n);
        pipeline.xadd(dlq, `${at}-0`, 'group', group, 'reason', 'rejected', 'failedAt', at);
      }
      await pipeline.exec();
    }
    const ids = (await allPages(deadLetters, topic)).map(({ id }) => id.split('/')[1]!);
    expect(ids).toHaveLength(total);
    expect(ids).toEqual(ids.toSorted(compareStreamIds));

    const first = await deadLetters.list(topic, { group: 'nobody' });
    expect(first.items).toEqual([]);
    const [, at] = first.cursor!.split('/');
    // Some thousand letters on, and not at the end.
    expect(Number(at!.split('-')[0])).toBeGreaterThan(2_000_000);
    expect(Number(at!.split('-')[0])).toBeLessThan(16_000_000);
    expect(await allPages(deadLetters, topic, { group: 'nobody' })).toEqual([]);
    const found = await allPages(deadLetters, topic, { group: 'rare', limit: 2 });
    expect(found.map(({ failedAt }) => failedAt / 1_000 - 1_000)).toEqual([...rare]);
    const backwards = await allPages(deadLetters, topic, { group: 'rare', limit: 2, order: 'newest-first' });
    expect(backwards.map(({ failedAt }) => failedAt / 1_000 - 1_000)).toEqual([...rare].toReversed());
    // Bounded by the ids: no letters outside of the time are looked at.
    const late = await deadLetters.list(topic, {
      group: 'rare',
      failedFrom: 24_000_000,
      failedTo: 24_999_000,
    });
    expect([late.items.length, late.cursor]).toEqual([1, null]);

    expect(await deadLetters.counts(topic)).toEqual({
      total,
      groups: [
        { group: 'a', total: total - 3, oldestFailedAt: 1_000_000, reasons: { rejected: total - 3 } },
        { group: 'rare', total: 3, oldestFailedAt: 1_005_000, reasons: { rejected: 3 } },
      ],
      isComplete: true,
    });
    await expect(deadLetters.size(topic, { failedFrom: 1_000_000, failedTo: 1_999_000 })).resolves.toBe(1_000);
  });

  it('counted by group and reason, and the topics that have any', async () => {
    const rejected = await startRejecting(kind, topic, ['a', 'b'], {}, ({ payload, context }) =>
      payload === 'r' && context.group === 'a' ? new DeadLetter('no') : new Error('no'),
    );
    const { instance, deadLetters } = rejected;
    const [empty, other] = [`${topic}-1`, `${topic}-2`];
    await instance.runtime.admin.createTopic(empty);
    await instance.runtime.admin.createTopic(other);
    await kind.client.xadd(kind.keys.partition(other, 1).dlq, '*', 'group', 'c');
    for (const payload of ['r', 'e', 'e']) await instance.producer.send(topic, payload);
    const all = await lettersOf(rejected, topic, 6);
    const oldest = (group: string): number =>
      Math.min(...all.filter((letter) => letter.group === group).map(({ failedAt }) => failedAt));
    const a = { group: 'a', total: 3, oldestFailedAt: oldest('a'), reasons: { rejected: 1, exhausted: 2 } };
    const b = { group: 'b', total: 3, oldestFailedAt: oldest('b'), reasons: { exhausted: 3 } };
    expect(await deadLetters.counts(topic)).toEqual({ total: 6, groups: [a, b], isComplete: true });
    expect(await deadLetters.counts(topic, { reason: 'rejected' })).toMatchObject({ total: 1 });
    const { items, cursor } = await deadLetters.topics();
    expect(items.map((item) => [item.topic, item.size])).toEqual([
      [topic, 6],
      [other, 1],
    ]);
    expect([items[1]!.partitions, cursor]).toEqual([[0, 1, 0], null]);
    const seen = new Set<string>();
    for (let at: string | null | undefined; at !== null;) {
      const page = await deadLetters.topics({ limit: 1, ...(at && { cursor: at }) });
      for (const item of page.items) seen.add(item.topic);
      at = page.cursor;
    }
    expect(seen).toEqual(new Set([topic, other]));
  });

  it('with every attempt, and through replays with every death, the last ten of each', async () => {
    const rejected = await startRejecting(
      kind,
      topic,
      ['g'],
      { retryMaxAttempts: 3, defaultPartitionCount: 1 },
      ({ context }) => new RangeError(`attempt ${context.attempt} \u{1F4A5}${'ü'.repeat(300)}`),
    );
    const { instance, deadLetters, calls } = rejected;
    await instance.producer.send(topic, 'x');
    const [first] = await lettersOf(rejected, topic, 1);
    expect(first!.failures.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(first!.failures[0]!.error).toMatch(/^RangeError: attempt 1 \u{1F4A5}ü+\.\.\.$/u);
    const times = first!.failures.map(({ failedAt }) => failedAt);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(times[2]).toBe(first!.failedAt);
    expect(first).toMatchObject({ attempts: 3, deathCount: 0, deaths: [] });

    let last = first!;
    for (const n of range(12)) {
      expect(await deadLetters.replay(topic, last.id)).toBe(true);
      last = (await waitFor(async () => (await deadLetters.list(topic)).items[0]))!;
      expect(last.deathCount).toBe(n + 1);
    }
    expect(calls).toHaveLength(39);
    expect(last.failures.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(last.deaths).toHaveLength(10);
    expect(last.deaths.at(-1)).toMatchObject({ attempts: 3, reason: 'exhausted' });
    expect(last.deaths.at(-1)!.error).toMatch(/^RangeError: attempt 3 /);
    for (const death of last.deaths) expect(death.replayedAt).toBeGreaterThanOrEqual(death.failedAt);
  });

  it('and what cannot be asked for is refused', async () => {
    const { deadLetters, instance } = await startRejecting(kind, topic, ['g']);
    await instance.runtime.admin.createTopic(topic);
    const refused: [string, Parameters<typeof deadLetters.list>[1]][] = [
      ['an unknown condition', { grup: 'a' } as object],
      ['an unknown reason', { reason: 'bored' as never }],
      ['no reason', { reason: [] }],
      ['a time that is none', { failedFrom: new Date('x') }],
      ['times the wrong way round', { failedFrom: 2, failedTo: 1 }],
      ['no error text', { errorText: '' }],
      ['a key that is none', { key: 5 as never }],
      ['an unknown order', { order: 'random' as never }],
    ];
    for (const [what, options] of refused) {
      const outcome = await deadLetters.list(topic, options).catch((error: unknown) => error);
      expect([what, outcome]).toEqual([what, expect.objectContaining({ code: 'MQ_INVALID_ARGUMENT' })]);
    }
    for (const options of [{ limit: -1 }, { ratePerSecond: 0 }, { signal: {} as never }, { onProgress: 1 as never }]) {
      await expect(deadLetters.replayAll(topic, options)).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    }
    for (const options of [{ limit: 0.5 }, { gruop: 'a' } as object, { ratePerSecond: 1 } as object]) {
      await expect(deadLetters.clear(topic, options)).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    }
    await expect(deadLetters.topics({ cursor: 'x' })).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
    await expect(deadLetters.topics({ limit: 0 })).rejects.toMatchObject({ code: 'MQ_INVALID_ARGUMENT' });
  });
});

onEachKind('dead letters are replayed', (kind) => {
  it('with another payload and other headers in the same step, to their own group and partition', async () => {
    const rejected = await startRejecting(kind, topic, ['a', 'b']);
    const { instance, deadLetters, calls } = rejected;
    const sent = await instance.producer.send(
      topic,
      { amount: 'ten' },
      { key: 'k', headers: { trace: 'old', v: '1' } },
    );
    const letters = await lettersOf(rejected, topic, 2);
    const ofA = letters.find(({ group }) => group === 'a')!;
    for (const edit of [{}, { payload: undefined }, { key: 'x' }, { payload: 1, payloadBytes: Buffer.alloc(1) }]) {
      await expect(deadLetters.replay(topic, ofA.id, edit as object)).rejects.toMatchObject({
        code: expect.stringMatching(/MQ_INVALID_ARGUMENT|MQ_UNSERIALIZABLE/),
      });
    }
    await expect(deadLetters.replay(topic, ofA.id, { headers: { n: 1 as never } })).rejects.toMatchObject({
      code: 'MQ_INVALID_MESSAGE',
    });
    await expect(deadLetters.replay(topic, ofA.id, { payloadBytes: Buffer.alloc(2_000_000) })).rejects.toMatchObject({
      code: 'MQ_PAYLOAD_TOO_LARGE',
    });
    rejected.repair();
    calls.length = 0;
    await expect(deadLetters.replay(topic, ofA.id, { payload: { amount: 10 }, headers: { v: '2' } })).resolves.toBe(
      true,
    );
    await waitFor(() => calls.length > 0);
    await instance.producer.send(topic, 'behind');
    await waitFor(() => calls.length === 3);
    expect(calls.filter(({ payload }) => payload !== 'behind')).toMatchObject([
      { group: 'a', payload: { amount: 10 }, attempt: 1 },
    ]);
    const { context } = calls[0]!.message;
    expect(context).toMatchObject({ key: 'k', eventId: sent.eventId, id: sent.id, partition: sent.partition });
    expect({ ...context.headers }).toEqual({ v: '2' });
    expect((await allPages(deadLetters, topic)).map(({ group }) => group)).toEqual(['b']);
    await expect(deadLetters.replay(topic, ofA.id, { payload: 1 })).resolves.toBe(false);
  });

  it('all that match, in their order within a partition, in few steps, with progress and a limit', async () => {
    const rejected = await startRejecting(kind, topic, ['a', 'b']);
    const { instance, deadLetters, calls } = rejected;
    await instance.producer.sendBatch(
      topic,
      range(600).map((payload) => ({ payload, partition: payload % 3 })),
    );
    // The order is that of the letters: while a server does not know the script yet, a later message may be buried first.
    const ofA = (await lettersOf(rejected, topic, 1_200)).filter(({ group }) => group === 'a');
    rejected.repair();
    calls.length = 0;
    const progress: number[] = [];
    const onProgress = (report: ReplayReport): void => void progress.push(report.replayed);
    await expect(deadLetters.replayAll(topic, { group: 'a', limit: 250, onProgress })).resolves.toEqual({
      replayed: 250,
      gone: 0,
      failed: 0,
      waiting: 0,
      refused: [],
      outcome: 'limit',
    });
    expect(progress.length).toBeLessThanOrEqual(20);
    expect(progress.at(-1)).toBe(250);
    await waitFor(() => calls.length === 250);
    await expect(deadLetters.replayAll(topic, { group: 'a', onProgress })).resolves.toMatchObject({
      replayed: 350,
      outcome: 'done',
    });
    await waitFor(() => calls.length === 600);
    expect(new Set(calls.map(({ group }) => group))).toEqual(new Set(['a']));
    for (const partition of range(3)) {
      const seen = calls.map(({ payload }) => payload as number).filter((n) => n % 3 === partition);
      expect(seen).toEqual(payloads(ofA.filter((letter) => letter.partition === partition)));
    }
    expect(payloads(ofA).sort((a, b) => Number(a) - Number(b))).toEqual(range(600));
    await expect(deadLetters.size(topic)).resolves.toBe(600);
  });

  it('at the rate that is given, until the signal says enough', async () => {
    const rejected = await startRejecting(kind, topic, ['g']);
    const { instance, deadLetters, calls } = rejected;
    await instance.producer.sendBatch(
      topic,
      range(100).map((payload) => ({ payload })),
    );
    await lettersOf(rejected, topic, 100);
    rejected.repair();
    calls.length = 0;
    const startedAt = performance.now();
    await deadLetters.replayAll(topic, { limit: 40, ratePerSecond: 100 });
    // Four steps of a fifth of a second, the first of which begins at once.
    expect(performance.now() - startedAt).toBeGreaterThan(150);
    await waitFor(() => calls.length === 40);

    const enough = new AbortController();
    const report = await deadLetters.replayAll(topic, {
      ratePerSecond: 50,
      signal: enough.signal,
      onProgress: ({ replayed }) => replayed >= 20 && enough.abort(),
    });
    expect(report).toMatchObject({ replayed: 20, outcome: 'aborted' });
    await waitFor(() => calls.length === 60);
    await expect(deadLetters.size(topic)).resolves.toBe(40);
    await expect(deadLetters.replayAll(topic, { signal: AbortSignal.abort() })).resolves.toMatchObject({ replayed: 0 });
  });

  it('not while their group is paused, nor to a group or topic that is gone, nor over a message that waits', async () => {
    const rejected = await startRejecting(kind, topic, ['g', 'other']);
    const { instance, deadLetters, calls } = rejected;
    const { admin } = instance.runtime;
    await instance.producer.send(topic, 'x');
    const letters = await lettersOf(rejected, topic, 2);
    const [ofG, ofOther] = ['g', 'other'].map((name) => letters.find(({ group }) => group === name)!);
    rejected.repair();
    calls.length = 0;

    await admin.pause(topic, { group: 'g' });
    await expect(deadLetters.replay(topic, ofG!.id)).rejects.toMatchObject({ code: 'MQ_GROUP_PAUSED' });
    await expect(deadLetters.replayAll(topic, { group: 'g' })).rejects.toMatchObject({ code: 'MQ_GROUP_PAUSED' });
    await expect(deadLetters.replayAll(topic)).resolves.toMatchObject({
      replayed: 1,
      refused: [{ group: 'g', code: 'MQ_GROUP_PAUSED', count: 1 }],
    });
    await waitFor(() => calls.length === 1);
    await admin.resume(topic, { group: 'g' });
    await admin.pause(topic);
    await expect(deadLetters.replay(topic, ofG!.id)).rejects.toMatchObject({ code: 'MQ_GROUP_PAUSED' });
    await admin.resume(topic);
    expect(calls.map(({ group }) => group)).toEqual(['other']);
    expect(ofOther!.group).toBe('other');

    // The same message has been dead-lettered twice, and the first of the two is not handled yet.
    const { dlq } = kind.keys.partition(topic, ofG!.partition);
    const [[, fields]] = (await kind.client.xrangeBuffer(dlq, '-', '+')) as unknown as [[Buffer, Buffer[]]];
    await kind.client.xadd(dlq, '*', ...fields);
    const waits = kind.keys.groupPartition(topic, ofG!.partition, 'g');
    await instance.close();
    const later = (await kind.open()).runtime.deadLetters;
    const [first, second] = await allPages(later, topic);
    await expect(later.replay(topic, first!.id)).resolves.toBe(true);
    await expect(later.replay(topic, second!.id, { payload: 'edited' })).rejects.toMatchObject({
      code: 'MQ_RETRY_PENDING',
      retryable: true,
    });
    await expect(later.replayAll(topic)).resolves.toMatchObject({ replayed: 0, waiting: 1 });
    await kind.client.del(waits.retry, waits.retryItems);

    for (const partition of range(3)) {
      await kind.client.xgroup('DESTROY', kind.keys.stream(topic, partition), 'g');
      await kind.client.hdel(kind.keys.partition(topic, partition).commit, 'g');
    }
    await expect(later.replay(topic, second!.id)).rejects.toMatchObject({ code: 'MQ_GROUP_NOT_FOUND' });
    await expect(later.size(topic)).resolves.toBe(1);
    await kind.client.hset(kind.keys.topic(topic).meta, 'deletedAt', 1);
    await expect(later.replay(topic, second!.id)).rejects.toMatchObject({ code: 'MQ_TOPIC_NOT_FOUND' });
  });

  it('or deleted, those that match, with a limit and progress', async () => {
    const rejected = await startRejecting(
      kind,
      topic,
      ['a', 'b'],
      {},
      ({ payload }) => new DeadLetter(`no ${String(payload)}`),
    );
    const { instance, deadLetters } = rejected;
    await instance.producer.sendBatch(
      topic,
      range(300).map((payload) => ({ payload, key: `k${payload % 2}` })),
    );
    await lettersOf(rejected, topic, 600);
    const seen: number[] = [];
    const onProgress = ({ deleted }: { deleted: number }): void => void seen.push(deleted);
    await expect(deadLetters.clear(topic, { group: 'a', key: 'k1', limit: 100, onProgress })).resolves.toBe(100);
    expect(seen.at(-1)).toBe(100);
    await expect(deadLetters.size(topic, { group: 'a', key: 'k1' })).resolves.toBe(50);
    // 29, and 290 to 299, of both groups; that of 29 in a is among those deleted before.
    await expect(deadLetters.clear(topic, { errorText: 'NO 29' })).resolves.toBe(21);
    expect(await allPages(deadLetters, topic, { errorText: 'no 29' })).toEqual([]);
    expect(payloads(await allPages(deadLetters, topic, { group: 'a', key: 'k1' }))).toEqual(
      range(300).filter((n) => n % 2 === 1 && n > 200 && n < 290),
    );
    await expect(deadLetters.clear(topic, { limit: 0 })).resolves.toBe(0);
    await expect(deadLetters.clear(topic)).resolves.toBe(479);
    await expect(deadLetters.size(topic)).resolves.toBe(0);
  });
});
