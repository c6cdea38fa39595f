import { Registry } from 'prom-client';
import { MqHandlerTimeoutError } from '../../libs/redis-streams-mq/src/core/errors.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
const DRAIN_MS = 500;
const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const options: MqOptions = {
  defaultPartitionCount: 2,
  leaseTtlSeconds: 1.5,
  renewIntervalSec: 0.3,
  rebalanceIntervalSec: 0.3,
  consumerPollTimeoutMs: 200,
  drainTimeoutMs: DRAIN_MS,
};

let topic: string;
let handling: HandlingRecord;
beforeEach(() => {
  topic = uniqueName('topic');
  handling = new HandlingRecord();
});

/** Message 3 of partition 0 does not settle at its first call before `end` does. */
async function hangOn3(end: Promise<void>, handlerTimeoutMs: number) {
  const registry = new Registry();
  const instance = await mq.open(options, { registry });
  let reason: unknown;
  await instance.start({
    topic,
    group,
    options: { handlerTimeoutMs },
    handle: handling.handler('hangs', async ({ context }, { n }) => {
      if (n !== 3 || context.attempt > 1) return;
      context.signal.addEventListener('abort', () => (reason = context.signal.reason));
      await end;
    }),
  });
  await send(instance, 0);
  await waitFor(() => handling.calls.some((call) => call.n === 3));
  const oldestMs = async (): Promise<number> => {
    const { values } = await registry.getSingleMetric('redis_streaming_mq_oldest_handler_call_ms')!.get();
    return values[0]!.value;
  };
  return { instance, reason: () => reason, oldestMs };
}

/** Ten messages to a partition: 0 to 9 to the first, 10 to 19 to the second. */
async function send(instance: TestInstance, partition: number): Promise<void> {
  for (const n of range(10)) await instance.producer.send(topic, { n: 10 * partition + n }, { partition });
}

async function health(instance: TestInstance) {
  return (await instance.runtime.health.readiness()).redisStreamsMq!;
}

async function closeWithinLimit(instance: TestInstance): Promise<void> {
  const since = performance.now();
  await instance.close();
  expect(performance.now() - since).toBeLessThan(DRAIN_MS + 2_500);
}

/** Whoever comes next has everything from message 3 on. */
async function handledByHeir(attemptOf3: number): Promise<void> {
  const heir = await mq.open(options);
  await heir.start({ topic, group, handle: handling.handler('heir') });
  await waitFor(() => handling.handled === 20 && handling.by('heir').some((call) => call.n === 3));
  const calls = handling.by('heir');
  expect(calls.map((call) => call.n).toSorted((a, b) => a - b)).toEqual(range(7).map((n) => n + 3));
  expect(calls.find((call) => call.n === 3)!.attempt).toBe(attemptOf3);
}

describe('DEL-23 a handler that never settles', () => {
  it('with a time limit: its attempt fails, it is told, it is seen; when it ends after all, that is ignored and all goes on', async () => {
    const end = deferred();
    const { instance, reason, oldestMs } = await hangOn3(end.promise, 200);
    const retried = record(instance, 'retried');
    const acked = record(instance, 'acked');
    await waitFor(() => retried.length === 1);
    expect(retried[0]).toMatchObject({ partition: 0, attempt: 1 });
    expect(retried[0]!.error).toBeInstanceOf(MqHandlerTimeoutError);
    expect(reason()).toBeInstanceOf(MqHandlerTimeoutError);
    await send(instance, 1);
    await waitFor(() => handling.of(1).length === 10);
    const stuck = await health(instance);
    expect(stuck).toMatchObject({ status: 'down', stuckHandlers: [{ partition: `${topic}:p:0:${group}` }] });
    expect(await oldestMs()).toBeGreaterThan(200);
    // Never two at once on one partition: what is behind it waits for its end, not for its time limit.
    expect(handling.of(0)).toHaveLength(4);

    const settledBefore = acked.reduce((sum, { partition, count }) => (partition === 0 ? sum + count : sum), 0);
    end.resolve();
    await waitFor(() => handling.of(0).length === 11);
    await waitFor(
      () => acked.reduce((sum, { partition, count }) => (partition === 0 ? sum + count : sum), 0) - settledBefore === 7,
    );
    expect(handling.overlaps).toEqual([]);
    const threes = handling.of(0).filter((call) => call.n === 3);
    expect(threes.map((call) => call.attempt)).toEqual([1, 2]);
    await waitFor(async () => (await health(instance)).status === 'up');
    expect(await oldestMs()).toBe(0);
  });

  it('with a time limit: close() ends at its own, and everything goes on elsewhere', async () => {
    const { instance } = await hangOn3(deferred().promise, 200);
    await send(instance, 1);
    await waitFor(async () => (await health(instance)).status === 'down' && handling.handled === 14);
    await closeWithinLimit(instance);
    await handledByHeir(2);
  });

  it('without a time limit: its age is seen, other partitions go on, close() ends at its limit, and it costs no attempt', async () => {
    const { instance, oldestMs } = await hangOn3(deferred().promise, 0);
    await send(instance, 1);
    await waitFor(() => handling.of(1).length === 10);
    await waitFor(async () => (await oldestMs()) > 300);
    const before = await oldestMs();
    await waitFor(async () => (await oldestMs()) > before);
    expect(handling.of(0)).toHaveLength(4);
    await closeWithinLimit(instance);
    await handledByHeir(1);
  });
});
