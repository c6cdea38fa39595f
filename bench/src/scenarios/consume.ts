import { atLeastTimes } from '../checks.js';
import type { Entry, Scenario } from '../scenario.js';
import { timeConsumption } from './consumption.js';
import { OURS_100, PEERS, RAW, rateRows } from './rows.js';

const OURS_DEFAULT: Entry = { name: 'ours-default', contender: 'ours', fullOnly: true };
const targets = [atLeastTimes(0.75, 'raw'), atLeastTimes(6, 'bullmq')];

export const consumeScenarios: readonly Scenario[] = [
  {
    name: 'consume',
    description:
      'A backlog handled by a handler that does nothing, one process, 4 partitions, 130 B. ours: consumerBatchCount 100, as raw reads; ' +
      'ours-default: 32. raw: XREADGROUP COUNT 100, JSON.parse, XACK of each batch.',
    server: 'standalone',
    inQuick: true,
    entries: [OURS_100, RAW, OURS_DEFAULT, ...PEERS],
    rows: rateRows('consume', targets, { guarded: true }),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(150_000, 25_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count });
    },
  },
  {
    name: 'consume-1k',
    description: 'The same with 1 KB.',
    server: 'standalone',
    inQuick: false,
    entries: [OURS_100, RAW, ...PEERS],
    rows: rateRows('consume-1k', []),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(60_000, 20_000);
      await trial.fill(topic, trial.messages(count, '1 KB'));
      return timeConsumption(trial, { topic, count });
    },
  },
  {
    name: 'consume-16k',
    description: 'The same with 16 KB.',
    server: 'standalone',
    inQuick: false,
    entries: [OURS_100, RAW, ...PEERS],
    rows: rateRows('consume-16k', []),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(8_000, 2_000);
      await trial.fill(topic, trial.messages(count, '16 KB'));
      return timeConsumption(trial, { topic, count });
    },
  },
  {
    name: 'bullmq-concurrency',
    description: 'BullMQ at several concurrencies, to show that the one it runs with here is its best.',
    server: 'standalone',
    inQuick: false,
    entries: [100, 10, 50, 200, 500].map((concurrency) => ({
      name: `bullmq-${concurrency}`,
      contender: 'bullmq' as const,
      settings: { concurrency },
    })),
    rows: rateRows('bullmq-concurrency', []),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(30_000, 10_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count });
    },
  },
];
