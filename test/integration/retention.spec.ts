import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { resolveOptions } from '../../libs/redis-streams-mq/src/core/resolve-options.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const mq = useMq();
let topic: string;
beforeEach(() => (topic = uniqueName('topic')));

const stream = (): string => mq.keys.stream(topic, 0);
const length = (): Promise<number> => mq.client.xlen(stream());
const settled = async (group: string, count: number): Promise<boolean> => {
  const [pending] = (await mq.client.xpending(stream(), group)) as [number];
  const info = (await mq.client.xinfo('GROUPS', stream())) as unknown[][];
  const read = Number(info.find((of) => of[1] === group)?.[9] ?? 0);
  return pending === 0 && read === count;
};

async function sendMany(instance: TestInstance, count: number): Promise<void> {
  const messages = Array.from({ length: count }, (_, n) => ({ payload: { n } }));
  expect((await instance.producer.sendBatch(topic, messages)).failed).toBe(0);
}

const bounded = (options: MqOptions = {}): Promise<TestInstance> =>
  mq.open({
    defaultPartitionCount: 1,
    retentionMaxLenPerPartition: 100,
    trimIntervalSec: 0.1,
    ...options,
  });

describe('retention', () => {
  it('STR-04 STR-05 keeps a partition at its bound, to the message', async () => {
    const instance = await bounded();
    const trimmed = record(instance, 'trimmed');
    await instance.start({ topic, group: 'g', handle: () => undefined });
    await sendMany(instance, 5_000);
    await waitFor(() => settled('g', 5_000));
    await waitFor(async () => (await length()) === 100);
    // The answer follows the deed.
    await waitFor(() => trimmed.reduce((sum, { byLength }) => sum + byLength, 0) === 4_900);
    expect(trimmed.every(({ byHardBound }) => byHardBound === 0)).toBe(true);
  });

  it('STR-03 never takes what some group has not settled: one that is an hour behind gets everything', async () => {
    const instance = await bounded();
    const pinned = record(instance, 'retentionPinned');
    const go = deferred();
    const slow: number[] = [];
    await instance.start(
      { topic, group: 'fast', handle: () => undefined },
      {
        topic,
        group: 'slow',
        handle: async ({ payload }) => {
          await go.promise;
          slow.push((payload as { n: number }).n);
        },
      },
    );
    await sendMany(instance, 2_000);
    await waitFor(() => settled('fast', 2_000));
    pinned.length = 0;
    await waitFor(() => pinned.length > 2);
    expect(new Set(pinned.map(({ group }) => group))).toEqual(new Set(['slow']));
    expect(await length()).toBe(2_000);
    go.resolve();
    await waitFor(() => slow.length === 2_000);
    expect(slow.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 2_000 }, (_, n) => n));
    await waitFor(async () => (await length()) === 100);
  });

  it('STR-03 keeps what was sent before any group came, whatever its number', async () => {
    const producing = await bounded();
    await sendMany(producing, 500);
    const other = uniqueName('topic');
    await producing.start({ topic: other, group: 'g', handle: () => undefined });
    const instance = await bounded();
    let handled = 0;
    await instance.start({ topic, group: 'late', handle: () => void handled++ });
    await waitFor(() => handled === 500);
    expect(handled).toBe(500);
  });

  it('STR-03 takes what is beyond a hard bound, and says how many were lost', async () => {
    const instance = await bounded({ retentionHardMaxLenPerPartition: 200 });
    const trimmed = record(instance, 'trimmed');
    const go = deferred();
    await instance.start({ topic, group: 'g', handle: () => go.promise, options: { batchCount: 10 } });
    await sendMany(instance, 1_000);
    await waitFor(async () => (await length()) === 200);
    await waitFor(() => trimmed.reduce((sum, { byHardBound }) => sum + byHardBound, 0) === 800);
    go.resolve();
  });

  it('goes by age, and bounds dead letters apart', async () => {
    const instance = await bounded({ retentionMaxLenPerPartition: 0, retentionMs: 300, dlqRetentionMaxLen: 5 });
    const handle = ({ payload }: { payload: unknown }): void => {
      if ((payload as { n: number }).n < 20) throw new DeadLetter('no');
    };
    await instance.start({ topic, group: 'g', handle });
    await sendMany(instance, 50);
    await waitFor(() => settled('g', 50));
    await waitFor(async () => (await length()) <= 1);
    await waitFor(async () => (await instance.runtime.deadLetters.size(topic)) === 5);
    const { items } = await instance.runtime.deadLetters.list(topic, { limit: 10 });
    expect(items).toHaveLength(5);
  });

  it('STR-04 and no policy that takes messages from other groups can be asked for', () => {
    for (const ackDeletePolicy of ['immediate', 'all-groups-ack'] as never[]) {
      expect(() => resolveOptions({ ackDeletePolicy })).toThrow('take messages from groups that have not read them');
    }
  });

  it('is off where no bound is set', async () => {
    const instance = await bounded({ retentionMaxLenPerPartition: 0 });
    const trimmed = record(instance, 'trimmed');
    await instance.start({ topic, group: 'g', handle: () => undefined });
    await sendMany(instance, 500);
    await waitFor(() => settled('g', 500));
    // Another instance tells when several turns have passed.
    const clock = await bounded();
    const turns = record(clock, 'trimmed');
    await clock.start({ topic: uniqueName('topic'), group: 'g', handle: () => undefined });
    await waitFor(() => turns.length > 3);
    expect([await length(), trimmed]).toEqual([500, []]);
  });
});

describeWithServer('retention on a partition with a fault', () => {
  it('reports it, and trims the others', async () => {
    const instance = await bounded({ defaultPartitionCount: 2, dlqRetentionMaxLen: 1 });
    const faults = record(instance, 'fault');
    await instance.start({ topic, group: 'g', handle: () => undefined });
    await mq.client.set(mq.keys.partition(topic, 0).dlq, 'foreign');
    await waitFor(() => faults.some(({ component }) => component === `trimmer:${topic}:0`));
    const messages = Array.from({ length: 1_000 }, (_, n) => ({ payload: { n }, partition: 1 }));
    await instance.producer.sendBatch(topic, messages);
    await waitFor(async () => (await mq.client.xlen(mq.keys.stream(topic, 1))) === 100);
    expect(faults.every(({ class: kind }) => kind === 'key')).toBe(true);
  });
});
