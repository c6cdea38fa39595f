import type { Durability } from '../environment.js';
import type { Scenario } from '../scenario.js';
import { timeConsumption } from './consumption.js';
import { OURS_100, PEERS, RAW, rateRows } from './rows.js';
import { inBatches, measureSends } from './send.js';

const ENTRIES = [OURS_100, RAW, ...PEERS];

const withDurability = (durability: Durability): Scenario[] => [
  {
    name: `send-batch-aof-${durability}`,
    description: `sendBatch(100), 130 B, append-only file ${durability}.`,
    server: 'standalone',
    durability,
    inQuick: false,
    rounds: 3,
    entries: ENTRIES,
    rows: rateRows(`send-batch-aof-${durability}`, []),
    measure: (trial) => measureSends(trial, inBatches, trial.count(50_000, 5_000), '130 B'),
  },
  {
    name: `consume-aof-${durability}`,
    description: `A backlog handled by a handler that does nothing, 130 B, append-only file ${durability}.`,
    server: 'standalone',
    durability,
    inQuick: false,
    rounds: 3,
    entries: ENTRIES,
    rows: rateRows(`consume-aof-${durability}`, []),
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(50_000, 10_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count });
    },
  },
];

export const durabilityScenarios: readonly Scenario[] = [...withDurability('off'), ...withDurability('always')];
