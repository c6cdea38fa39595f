import { atLeastTimes } from '../checks.js';
import type { PayloadSize } from '../payloads.js';
import type { Entry, Figures, Scenario, Trial } from '../scenario.js';
import type { Message } from '../payloads.js';
import type { Producer } from '../contenders/contender.js';
import { OURS, PEERS, RAW, rateRows } from './rows.js';

const BATCH = 100;
const IN_FLIGHT = 500;
const RAW_PIPELINED: Entry = { name: 'raw', contender: 'raw', settings: { autoPipelining: true } };
const RAW_PLAIN: Entry = { name: 'raw-plain', contender: 'raw' };

/** One after the other, each awaited. */
async function oneByOne(producer: Producer, messages: readonly Message[]): Promise<void> {
  for (const message of messages) await producer.send(message);
}

/** Always that many under way. */
async function inFlight(producer: Producer, messages: readonly Message[]): Promise<void> {
  let next = 0;
  const sender = async (): Promise<void> => {
    while (next < messages.length) await producer.send(messages[next++]!);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, sender));
}

export async function inBatches(producer: Producer, messages: readonly Message[]): Promise<void> {
  for (let at = 0; at < messages.length; at += BATCH) await producer.sendBatch(messages.slice(at, at + BATCH));
}

export async function measureSends(
  trial: Trial,
  sendAll: (producer: Producer, messages: readonly Message[]) => Promise<void>,
  count: number,
  size: PayloadSize,
): Promise<Figures> {
  const topic = await trial.topic();
  const producer = await trial.producer(topic);
  const messages = trial.messages(count, size);
  await sendAll(producer, messages.slice(0, Math.ceil(count / 20)));
  const watch = trial.stopwatch();
  await sendAll(producer, messages);
  return watch.stop(count);
}

const batchTargets = [atLeastTimes(0.85, 'raw'), atLeastTimes(4, 'bullmq')];

export const sendScenarios: readonly Scenario[] = [
  {
    name: 'send-batch',
    description:
      'sendBatch(100), one batch awaited after the other, 4 partitions, 130 B; raw: one pipeline of XADD with the same fields.',
    server: 'standalone',
    inQuick: true,
    entries: [OURS, RAW, ...PEERS],
    rows: rateRows('send-batch', batchTargets, { guarded: true }),
    measure: (trial) => measureSends(trial, inBatches, trial.count(100_000, 20_000), '130 B'),
  },
  {
    name: 'send-batch-1k',
    description: 'The same with 1 KB.',
    server: 'standalone',
    inQuick: false,
    entries: [OURS, RAW, ...PEERS],
    rows: rateRows('send-batch-1k', batchTargets),
    measure: (trial) => measureSends(trial, inBatches, trial.count(50_000, 10_000), '1 KB'),
  },
  {
    name: 'send-batch-16k',
    description: 'The same with 16 KB.',
    server: 'standalone',
    inQuick: false,
    entries: [OURS, RAW, ...PEERS],
    rows: rateRows('send-batch-16k', batchTargets),
    measure: (trial) => measureSends(trial, inBatches, trial.count(8_000, 2_000), '16 KB'),
  },
  {
    name: 'send-500',
    description:
      'send() with 500 in flight, 4 partitions, 130 B; raw: ioredis with auto-pipelining, raw-plain: without.',
    server: 'standalone',
    inQuick: true,
    entries: [OURS, RAW_PIPELINED, RAW_PLAIN, ...PEERS],
    rows: rateRows('send-500', [atLeastTimes(1.1, 'raw')], { guarded: true }),
    measure: (trial) => measureSends(trial, inFlight, trial.count(100_000, 20_000), '130 B'),
  },
  {
    name: 'send-one',
    description: 'send(), each awaited before the next, 130 B.',
    server: 'standalone',
    inQuick: true,
    entries: [OURS, RAW, ...PEERS],
    rows: rateRows('send-one', [], { guarded: true }),
    measure: (trial) => measureSends(trial, oneByOne, trial.count(10_000, 3_000), '130 B'),
  },
];
