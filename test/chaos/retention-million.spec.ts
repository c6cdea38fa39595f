import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

/** A multiple of 100,000. */
const MESSAGES = Number(process.env['RETENTION_MESSAGES'] ?? 1_000_000);
const PARTITIONS = 4;
/** How far the slow group may be behind, all partitions together. */
const BEHIND = 40_000;
const MAX_LEN = 5_000;

const mq = useMq();

async function usedMegabytes(): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await mq.client.info('memory'))![1]) / 1_048_576;
}

it('keeps memory bounded while a slow and a fast group handle a million messages, trims nothing unread, and names the slow one', async () => {
  const topic = uniqueName('topic');
  const options = {
    defaultPartitionCount: PARTITIONS,
    retentionMaxLenPerPartition: MAX_LEN,
    trimIntervalSec: 0.5,
    consumerBatchCount: 500,
  };
  const seen = { fast: new Uint8Array(MESSAGES), slow: new Uint8Array(MESSAGES) };
  const counts = { fast: 0, slow: 0 };
  const count = (group: 'fast' | 'slow', payload: unknown): void => {
    const { n } = payload as { n: number };
    if (seen[group][n] === 0) counts[group]++;
    seen[group][n]!++;
  };
  const fast: TestInstance = await mq.open(options);
  const slow: TestInstance = await mq.open(options);
  const pinned = record(slow, 'retentionPinned');
  const missing = [record(fast, 'payloadMissing'), record(slow, 'payloadMissing')];
  const trimmed = [record(fast, 'trimmed'), record(slow, 'trimmed')];
  let sent = 0;
  await fast.start({ topic, group: 'fast', handle: ({ payload }) => count('fast', payload) });
  await slow.start({
    topic,
    group: 'slow',
    handle: async ({ payload }) => {
      // It keeps its distance from the fast one until everything is sent.
      while (sent < MESSAGES && counts.slow > counts.fast - BEHIND / 2) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      count('slow', payload);
    },
  });
  const before = await usedMegabytes();
  const startedAt = performance.now();
  const memory: number[] = [];
  const lengths: number[] = [];
  const producing = await mq.open(options);
  while (sent < MESSAGES) {
    const from = sent;
    const size = Math.min(5_000, MESSAGES - from);
    const messages = Array.from({ length: size }, (_, i) => ({ payload: { n: from + i, text: 'x'.repeat(100) } }));
    expect((await producing.producer.sendBatch(topic, messages)).failed).toBe(0);
    sent += size;
    // The load: as much as the slow one leaves room for.
    await waitFor(() => sent - counts.slow < BEHIND, { timeoutMs: 120_000, describe: 'the slow group to keep up' });
    if (sent % (MESSAGES / 20) === 0) {
      memory.push(await usedMegabytes());
      const each = Array.from({ length: PARTITIONS }, (_, p) => mq.client.xlen(mq.keys.stream(topic, p)));
      lengths.push((await Promise.all(each)).reduce((a, b) => a + b, 0));
    }
  }
  await waitFor(() => counts.fast === MESSAGES && counts.slow === MESSAGES, { timeoutMs: 300_000 });
  const seconds = (performance.now() - startedAt) / 1_000;
  await waitFor(
    async () => {
      const each = Array.from({ length: PARTITIONS }, (_, p) => mq.client.xlen(mq.keys.stream(topic, p)));
      return (await Promise.all(each)).every((length) => length === MAX_LEN);
    },
    { timeoutMs: 60_000 },
  );
  const half = Math.floor(memory.length / 2);
  const removed = trimmed.flat().reduce((sum, of) => sum + of.byLength, 0);
  process.stdout.write(
    `${JSON.stringify({
      messages: MESSAGES,
      seconds: Math.round(seconds),
      perSecond: Math.round(MESSAGES / seconds),
      megabytesBefore: Math.round(before * 10) / 10,
      megabytesMost: Math.round(Math.max(...memory) * 10) / 10,
      megabytesMostInFirstHalf: Math.round(Math.max(...memory.slice(0, half)) * 10) / 10,
      megabytesMostInSecondHalf: Math.round(Math.max(...memory.slice(half)) * 10) / 10,
      megabytesAtTheEnd: Math.round((await usedMegabytes()) * 10) / 10,
      mostMessagesKept: Math.max(...lengths),
      removed,
      turnsPinnedBySlow: pinned.filter(({ group }) => group === 'slow').length,
      turnsPinnedByFast: pinned.filter(({ group }) => group === 'fast').length,
      repeatedCalls: [seen.fast, seen.slow].map((of) => of.reduce((sum, calls) => sum + calls - 1, 0)),
    })}\n`,
  );
  expect([seen.fast.indexOf(0), seen.slow.indexOf(0), missing.flat()]).toEqual([-1, -1, []]);
  expect(trimmed.flat().every(({ byHardBound }) => byHardBound === 0)).toBe(true);
  expect(removed).toBe(MESSAGES - PARTITIONS * MAX_LEN);
  const bySlow = pinned.filter(({ group }) => group === 'slow').length;
  expect(bySlow).toBeGreaterThan(pinned.length / 2);
  // What the slow group has not settled, the bound of each partition, and what comes between two turns.
  expect(Math.max(...lengths)).toBeLessThan(2 * (BEHIND + PARTITIONS * MAX_LEN));
  expect(Math.max(...memory.slice(half))).toBeLessThan(Math.max(...memory.slice(0, half)) * 1.5);
}, 900_000);
