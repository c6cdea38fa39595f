import { MqEvents } from '../core/events.js';
import { Keys } from '../core/keys.js';
import { systemClock } from '../core/clock.js';
import { toEntry, type Entry, type Source } from './entry.js';
import { Lease } from './lease.js';
import { SettleSteps, type Move } from './settle-steps.js';

const keys = new Keys('mq', 'data').groupPartition('orders', 0, 'g');
const terms = { topic: 'orders', partition: 0, group: 'g', keys, token: 'a#1', epoch: 1, clean: true, ttlMs: 1_000 };

function make() {
  const removed: string[] = [];
  const steps = new SettleSteps({
    lease: new Lease(terms, 0, systemClock, () => undefined),
    events: new MqEvents(),
    remove: ({ id }: Entry) => removed.push(id),
    onRetryDue: () => undefined,
  });
  return { steps, removed };
}

const entry = (source: Source, n: number): Entry => toEntry(source, { id: `${n}-0`, fields: [] }, false);
const range = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);
const idsOf = ({ items }: { items: readonly (Entry | Move)[] }): string[] =>
  items.map((item) => ('kind' in item ? item.entry.id : item.id));

describe('the script calls of outcomes', () => {
  it.each([
    ['retries', 'stream', { kind: 'retry' }],
    ['retries of the retry stream', 'retry', { kind: 'retry' }],
    ['holds', 'stream', { kind: 'hold', onSettled: () => undefined }],
  ] as const)('move at most a hundred %s each, in order', (_what, source, kind) => {
    const { steps } = make();
    const moves = range(250).map((n): Move => ({
      ...kind,
      entry: entry(source, n),
      attempts: 1,
      delayMs: 10,
      error: undefined,
    }));
    const made = steps.of({ stream: [], retry: [] }, moves);
    expect(made.map(({ items }) => items.length)).toEqual([100, 100, 50]);
    expect(made.flatMap(idsOf)).toEqual(range(250).map((n) => `${n}-0`));
    for (const { call, items } of made) for (const id of idsOf({ items })) expect(call.args).toContain(id);
  });

  it('leave out nothing of an answer: each deals with its own', () => {
    const { steps, removed } = make();
    const moves = range(250).map((n): Move => ({
      kind: 'retry',
      entry: entry('stream', n),
      attempts: 1,
      delayMs: 10,
      error: undefined,
    }));
    for (const { items, done } of steps.of({ stream: [], retry: [] }, moves)) {
      done({ status: 'ok', results: items.map(() => 'moved'), pending: 0, nextDue: null, now: 0 });
    }
    expect(removed).toEqual(range(250).map((n) => `${n}-0`));
  });
});
