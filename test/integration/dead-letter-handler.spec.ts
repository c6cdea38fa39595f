import type {
  DeadLetterContext,
  DeadLetterSubscription,
  ReceivedMessage,
} from '../../libs/redis-streams-mq/src/core/handler.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import { dlqPage } from '../../libs/redis-streams-mq/src/redis/scripts/dlq.script.js';
import { Child } from '../support/child.js';
import type { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { onEachKind } from '../support/on-each-kind.js';
import { allPages, lettersOf, startRejecting } from '../support/rejecting-handler.js';
import { mentions } from '../support/tcp-proxy.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const EVERY: DeadLetterSubscription = { ofGroup: null, deleteOnSuccess: false, maxReplays: 3 };
/** A dead owner is noticed within two seconds. */
const short: MqOptions = {
  leaseTtlSeconds: 2,
  renewIntervalSec: 0.5,
  rebalanceIntervalSec: 1,
  consumerPollTimeoutMs: 200,
};

let topic: string;
let loading: Promise<Child>[] = [];
beforeAll(() => (loading = [Child.load(), Child.load()]));
afterAll(async () => {
  await Promise.all(loading.map(async (child) => (await child).kill()));
});
beforeEach(() => (topic = uniqueName('topic')));

interface Handled {
  payload: unknown;
  context: DeadLetterContext;
}

/** A handler of dead letters in an instance of its own. */
async function consumeLetters(
  instance: TestInstance,
  deadLetters: Partial<DeadLetterSubscription> = {},
  handle: (context: DeadLetterContext, payload: unknown) => unknown = () => undefined,
  group = 'letters',
): Promise<Handled[]> {
  const handled: Handled[] = [];
  await instance.start({
    topic,
    group,
    deadLetters: { ...EVERY, ...deadLetters },
    handle: ({ payload, context }: ReceivedMessage) => {
      handled.push({ payload, context: context as DeadLetterContext });
      return handle(context as DeadLetterContext, payload);
    },
  });
  return handled;
}

onEachKind('a handler of dead letters', (kind) => {
  it('gets each of all groups, with its cause, in the order of time of a partition, and leaves them for people', async () => {
    const rejected = await startRejecting(
      kind,
      topic,
      ['a', 'b'],
      {},
      ({ payload }) => new TypeError(`no ${String(payload)}`),
    );
    const { instance, deadLetters } = rejected;
    await instance.producer.send(topic, 'early', { key: 'k', headers: { h: '1' } });
    await lettersOf(rejected, topic, 2);
    const first = await kind.open();
    const handled = await consumeLetters(first);
    for (const payload of range(10)) await instance.producer.send(topic, payload, { key: 'k' });
    await waitFor(() => handled.length === 22);
    const letters = await lettersOf(rejected, topic, 22);
    expect(handled.map(({ context }) => context.deadLetter)).toEqual(letters);
    const { payload, context } = handled[0]!;
    expect(payload).toBe('early');
    expect(context).toMatchObject({ topic, group: 'letters', key: 'k', attempt: 1, id: letters[0]!.originalMessageId });
    expect(context).toMatchObject({ eventId: letters[0]!.eventId, partition: letters[0]!.partition });
    expect({ ...context.headers }).toEqual({ h: '1' });
    expect(context.deadLetter).toMatchObject({
      reason: 'exhausted',
      attempts: 2,
      error: { name: 'TypeError', message: 'no early' },
    });
    expect(new Set(handled.map((each) => each.context.deadLetter.group))).toEqual(new Set(['a', 'b']));
    await first.close();

    // Another of the same group goes on behind them, and one of another group begins with the first.
    const [successor, other] = [await kind.open(), await kind.open()];
    const later = await consumeLetters(successor);
    const seen = await consumeLetters(other, {}, undefined, 'others');
    await instance.producer.send(topic, 'late', { key: 'k' });
    await waitFor(() => later.length === 2 && seen.length === 24);
    expect(later.map((each) => each.payload)).toEqual(['late', 'late']);
    await expect(deadLetters.size(topic)).resolves.toBe(24);
  });

  it('of one group gets no others, and deletes what it has handled if it is to', async () => {
    const rejected = await startRejecting(kind, topic, ['a', 'b']);
    const { instance, deadLetters } = rejected;
    const handled = await consumeLetters(await kind.open(), { ofGroup: 'a', deleteOnSuccess: true });
    await instance.producer.sendBatch(
      topic,
      range(30).map((payload) => ({ payload })),
    );
    await waitFor(() => handled.length === 30);
    await waitFor(async () => (await deadLetters.size(topic)) === 30);
    expect(new Set(handled.map(({ context }) => context.deadLetter.group))).toEqual(new Set(['a']));
    expect(new Set((await allPages(deadLetters, topic)).map(({ group }) => group))).toEqual(new Set(['b']));
  });

  it('that fails is called again, and then leaves the letter where it is: no dead letter of a dead letter', async () => {
    const rejected = await startRejecting(kind, topic, ['g']);
    const { instance, deadLetters } = rejected;
    const second = await kind.open({ retryMaxAttempts: 3 });
    const warnings = EventLog.of(second.runtime.events, 'warning', 'dead');
    const handled = await consumeLetters(second, { deleteOnSuccess: true }, (_, payload) => {
      if (payload === 'never') throw new Error('the alert cannot be raised');
      if (payload === 'at once') throw new DeadLetter('not for me');
    });
    for (const payload of ['never', 'at once', 'fine']) await instance.producer.send(topic, payload);
    await waitFor(() => handled.length === 5);
    await waitFor(() => warnings.count('warning') === 2);
    await waitFor(async () => (await deadLetters.size(topic)) === 2);
    const attempts = handled.filter(({ payload }) => payload === 'never').map(({ context }) => context.attempt);
    expect(attempts).toEqual([1, 2, 3]);
    expect(warnings.count('dead')).toBe(0);
    expect(
      warnings
        .all('warning')
        .map(({ fields }) => Number(fields.attempts))
        .toSorted((a, b) => a - b),
    ).toEqual([1, 3]);
    for (const letter of await allPages(deadLetters, topic)) expect(letter.group).toBe('g');
    await expect(deadLetters.replayAll(topic)).resolves.toMatchObject({ replayed: 2 });
  });

  it('may replay, edited, and a message that dies each time comes back to people in the end', async () => {
    const rejected = await startRejecting(kind, topic, ['g'], {}, ({ payload }) => {
      if (payload === 'repaired') rejected.repair();
      return new DeadLetter('cannot');
    });
    const { instance, deadLetters, calls } = rejected;
    const outcomes: unknown[] = [];
    const handled = await consumeLetters(await kind.open({ retryMaxAttempts: 1 }), { maxReplays: 2 }, async (ctx) => {
      const outcome: unknown = await ctx.replay({ headers: { by: 'handler' } }).catch((error: unknown) => error);
      outcomes.push(outcome);
    });
    await instance.producer.send(topic, 'x');
    await waitFor(() => outcomes.length === 3);
    expect(outcomes).toEqual([true, true, expect.objectContaining({ code: 'MQ_REPLAY_LIMIT' })]);
    expect(calls.map(({ message }) => message.context.headers.by)).toEqual([undefined, 'handler', 'handler']);
    expect(handled.map(({ context }) => context.deadLetter.deathCount)).toEqual([0, 1, 2]);
    await expect(deadLetters.size(topic)).resolves.toBe(1);
  });

  it('is shown what cannot be decoded, and not what people have dealt with meanwhile', async () => {
    const rejected = await startRejecting(kind, topic, ['g'], { defaultPartitionCount: 1 });
    const { instance, deadLetters } = rejected;
    await instance.runtime.admin.createTopic(topic);
    await kind.client.xadd(kind.keys.stream(topic, 0), '*', 'foo', 'bar');
    const isOpen = deferred();
    const second = await kind.open();
    const missing = EventLog.of(second.runtime.events, 'payloadMissing', 'warning');
    const handled = await consumeLetters(second, {}, () => isOpen.promise);
    await waitFor(() => handled.length === 1);
    expect(handled[0]!.payload).toBeNull();
    expect(handled[0]!.context.deadLetter).toMatchObject({ reason: 'malformed', eventId: null });
    for (const payload of ['deleted', 'replayed', 'kept']) await instance.producer.send(topic, payload);
    const [, deleted, replayed] = await lettersOf(rejected, topic, 4);
    await deadLetters.delete(topic, deleted!.id);
    rejected.repair();
    await deadLetters.replay(topic, replayed!.id);
    isOpen.resolve();
    await waitFor(() => handled.length === 2);
    expect(handled[1]!.payload).toBe('kept');
    expect(missing.count('payloadMissing') + missing.count('warning')).toBe(0);
  });

  it('shares the partitions with others of its group, and what a killed owner was doing comes to the next', async () => {
    const rejected = await startRejecting(kind, topic, ['g'], { ...short, defaultPartitionCount: 4 });
    const { instance, deadLetters } = rejected;
    const record = new HandlingRecord();
    const child = (await loading.pop())!;
    const deadLettersOf = { topic, group: 'letters', deadLetters: { ...EVERY, deleteOnSuccess: true } };
    const behaviour = { dieOn: [7] };
    await instance.producer.sendBatch(
      topic,
      range(40).map((n) => ({ payload: { n } })),
    );
    await lettersOf(rejected, topic, 40);
    await child.begin(
      { name: 'mortal', options: { ...kind.options, ...short }, handlers: [{ ...deadLettersOf, behaviour }] },
      record,
    );
    await waitFor(() => record.calls.some(({ n }) => n === 7), { timeoutMs: 20_000 });
    const heir = await kind.open(short);
    const handled = await consumeLetters(heir, { deleteOnSuccess: true });
    await waitFor(async () => (await deadLetters.size(topic)) === 0, { timeoutMs: 30_000 });
    const numbers = handled.map(({ payload }) => (payload as { n: number }).n);
    expect(numbers).toContain(7);
    const all = new Set([...record.calls.map(({ n }) => n), ...numbers]);
    expect([...all].toSorted((a, b) => a - b)).toEqual(range(40));
    // Each by one of them, but what the killed one had begun or not yet settled.
    expect(numbers.length + record.calls.length).toBeLessThan(60);
  }, 60_000);

  it('ends with its topic, of which nothing stays behind', async () => {
    const rejected = await startRejecting(kind, topic, ['g'], { defaultPartitionCount: 1 });
    const { instance, deadLetters } = rejected;
    await instance.producer.send(topic, 'x');
    await lettersOf(rejected, topic, 1);
    const lines: string[] = [];
    for await (const line of deadLetters.export(topic)) lines.push(line);
    await deadLetters.clear(topic);
    await deadLetters.import(topic, lines);
    const second = await kind.open(short);
    const handled = await consumeLetters(second);
    await waitFor(() => handled.length === 1);
    await second.close();
    const [of, ofLetters] = [kind.keys, kind.keys.ofDeadLetters()].map((keys) =>
      keys.groupPartition(topic, 0, 'letters'),
    );
    const left = async (): Promise<string[]> => {
      const all = [of!.dlq, of!.imports, ...Object.values(ofLetters!)];
      const there = await Promise.all(all.map(async (key) => ((await kind.client.exists(key)) === 1 ? key : '')));
      return [...new Set(there)].filter((key) => key !== '');
    };
    expect((await left()).length).toBeGreaterThan(4);
    await instance.runtime.admin.deleteTopic(topic);
    await expect(left()).resolves.toEqual([]);
  });

  it('and several instances share its partitions, each letter handled by one of them', async () => {
    const rejected = await startRejecting(kind, topic, ['g'], { defaultPartitionCount: 4 });
    const { instance } = rejected;
    const [one, two] = [await kind.open(short), await kind.open(short)];
    const owned = [one, two].map(({ runtime }) => EventLog.of(runtime.events, 'leaseAcquired', 'leaseReleased'));
    const shared = [await consumeLetters(one), await consumeLetters(two)];
    const countOf = (log: EventLog): number => log.count('leaseAcquired') - log.count('leaseReleased');
    await waitFor(() => owned.every((log) => countOf(log) === 2), { timeoutMs: 20_000 });
    await instance.producer.sendBatch(
      topic,
      range(40).map((n) => ({ payload: { n }, partition: n % 4 })),
    );
    await waitFor(() => shared[0]!.length + shared[1]!.length >= 40, { timeoutMs: 20_000 });
    expect(shared.map((handled) => handled.length)).toEqual([20, 20]);
    expect(new Set(shared.flat().map(({ context }) => context.deadLetter.id)).size).toBe(40);
  }, 60_000);
});

describe('the pause of a handler', () => {
  const mq = useMq();

  it('of dead letters resolves when the call that was just being begun is over, and not before', async () => {
    const first = await mq.open({ defaultPartitionCount: 1 });
    await first.start({ topic, group: 'g', handle: () => Promise.reject(new DeadLetter('no')) });
    const proxy = await mq.proxy();
    const second = await mq.open({ redis: proxy.url });
    const isDone = deferred();
    const handled = await consumeLetters(second, {}, () => isDone.promise);
    const isBeingRead = proxy.dropNextRequestMatching(mentions(dlqPage.sha));
    await first.producer.send(topic, 'x');
    await isBeingRead;
    let hasPaused = false;
    const paused = second.runtime.control.pause({ topic, group: 'letters' }).then(() => (hasPaused = true));
    await waitFor(() => handled.length === 1);
    expect(hasPaused).toBe(false);
    isDone.resolve();
    await paused;
  });

  it('waits also for a call whose lease was lost', async () => {
    const first = await mq.open({ defaultPartitionCount: 1, ...short });
    const isDone = deferred();
    let calls = 0;
    await first.start({ topic, group: 'g', handle: () => (calls++ === 0 ? isDone.promise : undefined) });
    await first.producer.send(topic, 'x');
    await waitFor(() => calls === 1);
    const lost = EventLog.of(first.runtime.events, 'leaseLost');
    await mq.client.del(mq.keys.groupPartition(topic, 0, 'g').lease);
    await waitFor(() => lost.count('leaseLost') === 1);
    let hasPaused = false;
    const paused = first.runtime.control.pause({ topic, group: 'g' }).then(() => (hasPaused = true));
    await new Promise(setImmediate);
    expect(hasPaused).toBe(false);
    isDone.resolve();
    await paused;
    expect(calls).toBe(1);
  });
});
