import type { Scenario } from '../scenario.js';
import { OURS_100, PEERS, RAW, rateRows } from './rows.js';

const IN_FLIGHT = 200;

export const mixedScenarios: readonly Scenario[] = [
  {
    name: 'produce-and-consume',
    description: 'One process sends with 200 in flight and handles the same messages, until all are handled.',
    server: 'standalone',
    inQuick: false,
    entries: [OURS_100, { ...RAW, settings: { autoPipelining: true } }, ...PEERS],
    rows: rateRows('produce-and-consume', []),
    async measure(trial) {
      const topic = await trial.topic();
      const messages = trial.messages(trial.count(60_000, 20_000));
      const producer = await trial.producer(topic);
      let handled = 0;
      let allHandled: () => void = () => undefined;
      const done = new Promise<void>((resolve) => (allHandled = resolve));
      await trial.consume(topic, () => {
        if (++handled === messages.length) allHandled();
      });
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      const watch = trial.stopwatch();
      let next = 0;
      const sender = async (): Promise<void> => {
        while (next < messages.length) await producer.send(messages[next++]!);
      };
      await Promise.all(Array.from({ length: IN_FLIGHT }, sender));
      await done;
      return watch.stop(messages.length);
    },
  },
];
