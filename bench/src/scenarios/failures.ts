import { atLeast, atLeastTimes } from '../checks.js';
import type { Handle } from '../contenders/contender.js';
import type { Entry, Scenario } from '../scenario.js';
import { timeConsumption } from './consumption.js';
import { OURS_100, RAW, rateRows } from './rows.js';

const BULLMQ_RETRYING: Entry = {
  name: 'bullmq',
  contender: 'bullmq',
  share: 0.2,
  fullOnly: true,
  settings: { retries: true, retryDelayMs: 10 },
};

/** One in twenty fails at its first call. */
const failsSometimes: Handle = ({ id }, attempt) => {
  if (attempt === 1 && id % 20 === 0) throw new Error('one in twenty');
};

const failsOnce: Handle = (_payload, attempt) => {
  if (attempt === 1) throw new Error('the first call');
};

export const failureScenarios: readonly Scenario[] = [
  {
    name: 'failures',
    description:
      'A backlog of which 5 % fail once and are handled again 10 ms later, until all are handled; without-failures: the same backlog and none fails.',
    server: 'standalone',
    inQuick: true,
    entries: [OURS_100, { ...OURS_100, name: 'without-failures', variant: 'none' }, BULLMQ_RETRYING],
    rows: rateRows('failures', [atLeastTimes(0.8, 'without-failures')], { guarded: true }),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(100_000, 15_000);
      await trial.fill(topic, trial.messages(count));
      const handle = trial.entry.variant === 'none' ? undefined : failsSometimes;
      return timeConsumption(trial, { topic, count, options: { retryDelayMs: 10 }, ...(handle && { handle }) });
    },
  },
  {
    name: 'retry-path',
    description:
      'Every message fails once, goes into the bucket, is moved when it is due (after 1 ms) and handled. raw: the same commands in batches, neither atomic nor fenced.',
    server: 'standalone',
    inQuick: true,
    entries: [OURS_100, RAW, { ...BULLMQ_RETRYING, settings: { retries: true, retryDelayMs: 1 } }],
    rows: rateRows('retry-path', [atLeast(15_000, 'a second')], { guarded: true }),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(40_000, 6_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count, options: { retryDelayMs: 1 }, handle: failsOnce });
    },
  },
  {
    name: 'dead-letters',
    description: 'Every message fails at its only attempt and becomes a dead letter; timed to the last call.',
    server: 'standalone',
    inQuick: false,
    entries: [OURS_100, { name: 'bullmq', contender: 'bullmq', share: 0.3 }],
    rows: rateRows('dead-letters', []),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(40_000, 10_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count, options: { maxAttempts: 1 }, failsAll: true });
    },
  },
];
