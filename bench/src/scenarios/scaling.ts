import { flatWithin } from '../checks.js';
import type { Entry, Figures, Row, Scenario, Trial } from '../scenario.js';
import { timeConsumption } from './consumption.js';
import { OURS, OURS_100, RAW, rateRows } from './rows.js';

const oursWith = (name: string, variant: number): Entry => ({ ...OURS, name, variant: String(variant) });

/** Cost is processor time: it does not fall when the machine is busy with something else. */
const costRows = (name: string): Row[] => [
  { name, figure: 'cpuUs', unit: 'us/message', better: 'lower', checks: [flatWithin(0.15)] },
  { name: `${name}.rate`, figure: 'rate', unit: 'messages/s', better: 'higher' },
];

const WARM_BACKLOG = 100_000;
const MOST_BACKLOGS = 30;

async function handleBacklog(trial: Trial, count: number): Promise<Figures> {
  const topic = await trial.topic();
  await trial.fill(topic, trial.messages(count));
  return timeConsumption(trial, { topic, count, closes: true });
}

function meanOf(all: readonly Figures[]): Figures {
  const mean = (name: string): number => all.reduce((sum, figures) => sum + figures[name]!, 0) / all.length;
  return Object.fromEntries(Object.keys(all[0]!).map((name) => [name, mean(name)]));
}

export const scalingScenarios: readonly Scenario[] = [
  {
    name: 'partitions',
    description:
      'Processor time for each message of a backlog over 4, 1, 16, 64 and 256 partitions, one process, from when all of them are under way.',
    server: 'standalone',
    inQuick: false,
    rounds: 3,
    entries: [4, 1, 16, 64, 256].map((count) => oursWith(`${count} partitions`, count)),
    rows: costRows('partitions'),
    async measure(trial) {
      const topic = await trial.topic({ partitions: Number(trial.entry.variant) });
      const count = trial.count(200_000, 40_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count, skippedPart: 0.3 });
    },
  },
  {
    name: 'backlog',
    description:
      'Processor time for each message of a backlog of 100,000, 1,000, 10,000 and 1,000,000, 4 partitions. Before each round the process handles as many as make it warm; of small ones several are handled, and the mean counts.',
    server: 'standalone',
    inQuick: false,
    rounds: 3,
    warmUps: 0,
    timeoutMs: 600_000,
    entries: [oursWith('100 k', 100_000), oursWith('1 k', 1_000), oursWith('10 k', 10_000), oursWith('1 M', 1_000_000)],
    rows: costRows('backlog'),
    async measure(trial) {
      const count = Number(trial.entry.variant) / (trial.quick ? 10 : 1);
      await handleBacklog(trial, WARM_BACKLOG);
      const times = Math.max(1, Math.min(MOST_BACKLOGS, Math.round(WARM_BACKLOG / count)));
      const all: Figures[] = [];
      for (let i = 0; i < times; i++) all.push(await handleBacklog(trial, count));
      return meanOf(all);
    },
  },
  {
    name: 'groups-5',
    description: 'Five groups in one process that each get every message of a backlog; counted are calls of handlers.',
    server: 'standalone',
    inQuick: false,
    rounds: 3,
    entries: [OURS_100, RAW],
    rows: rateRows('groups-5', []),
    async measure(trial) {
      const topic = await trial.topic({ groups: 5 });
      const count = trial.count(40_000, 10_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count });
    },
  },
];
