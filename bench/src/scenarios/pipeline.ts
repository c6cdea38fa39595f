import { atMostMore } from '../checks.js';
import type { Scenario } from '../scenario.js';
import { timeConsumption } from './consumption.js';

const settings = { consumerBatchCount: 100 };

export const pipelineScenarios: readonly Scenario[] = [
  {
    name: 'pipeline',
    description:
      "Processor time of the client's process for each message: through Nest's pipeline with one pipe and one interceptor, and with none (plain).",
    server: 'standalone',
    inQuick: false,
    entries: [
      { name: 'ours', contender: 'ours', variant: 'enhanced', settings },
      { name: 'plain', contender: 'ours', settings },
    ],
    rows: [
      {
        name: 'pipeline',
        figure: 'clientUs',
        unit: 'us/message',
        better: 'lower',
        checks: [atMostMore(5, 'us', 'plain')],
      },
    ],
    async measure(trial) {
      const topic = await trial.topic();
      const count = trial.count(100_000, 40_000);
      await trial.fill(topic, trial.messages(count));
      return timeConsumption(trial, { topic, count, options: { enhanced: trial.entry.variant === 'enhanced' } });
    },
  },
];
