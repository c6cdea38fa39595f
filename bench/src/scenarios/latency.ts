import type { Handle } from '../contenders/contender.js';
import { atMost, atMostMore } from '../checks.js';
import type { Check, Entry, Figures, Row, Scenario, Trial } from '../scenario.js';
import { quantile } from '../statistics.js';
import { OURS, PEERS, RAW } from './rows.js';

const WARM_SECONDS = 1;
const REST_MS = 30_000;

/** Sends at an even pace, whatever becomes of it, and times each message from the moment at which it was to be sent. */
export async function measureLatency(
  trial: Trial,
  {
    rate,
    seconds,
    partitions = 4,
    delayMs = 0,
  }: { rate: number; seconds: number; partitions?: number; delayMs?: number },
): Promise<Figures> {
  const count = rate * (WARM_SECONDS + seconds);
  const messages = trial.messages(count);
  const latencies: number[] = [];
  const topic = await trial.topic({ partitions });
  let begin = Infinity;
  let handled = 0;
  let allHandled: () => void = () => undefined;
  const done = new Promise<void>((resolve) => (allHandled = resolve));
  const handle: Handle = ({ id }) => {
    const latency = performance.now() - (begin + (1000 * id) / rate) - delayMs;
    if (id >= rate * WARM_SECONDS) latencies.push(latency);
    if (++handled === count) allHandled();
  };
  const producer = await trial.producer(topic);
  await trial.consume(topic, handle);
  await new Promise((resolve) => setTimeout(resolve, 1_000));

  begin = performance.now();
  const sends: Promise<unknown>[] = [];
  for (let next = 0; next < count;) {
    for (; next < count && begin + (1000 * next) / rate <= performance.now(); next++) {
      const message = messages[next]!;
      sends.push(delayMs > 0 ? producer.sendLater!(message, delayMs) : producer.send(message));
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await Promise.all(sends);
  const late = setTimeout(allHandled, REST_MS + delayMs);
  await done;
  clearTimeout(late);
  if (handled < count) throw new Error(`${handled} of ${count} messages within ${REST_MS} ms after the last was sent`);
  return { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99), max: quantile(latencies, 1) };
}

export function latencyRows(name: string, checks: { p50?: readonly Check[]; p99?: readonly Check[] } = {}): Row[] {
  return [
    { name: `${name}.p50`, figure: 'p50', unit: 'ms', better: 'lower', checks: checks.p50 ?? [] },
    { name: `${name}.p99`, figure: 'p99', unit: 'ms', better: 'lower', checks: checks.p99 ?? [] },
  ];
}

const FAST: readonly Entry[] = PEERS.filter(({ contender }) => contender === 'nats');

const at = (rate: number, inQuick: boolean, entries: readonly Entry[], rows: Row[]): Scenario => ({
  name: `latency-${rate}`,
  description: `From send() to the handler at ${rate.toLocaleString('en-US')} messages a second, sent at an even pace, one process, 4 partitions.`,
  server: 'standalone',
  inQuick,
  rounds: 3,
  entries,
  rows,
  measure: (trial) => measureLatency(trial, { rate, seconds: trial.quick ? 2 : 6 }),
});

export const latencyScenarios: readonly Scenario[] = [
  at(100, false, [OURS, RAW, ...PEERS], latencyRows('latency-100')),
  at(
    1_000,
    true,
    [OURS, RAW, ...PEERS],
    latencyRows('latency-1000', { p50: [atMostMore(1, 'ms', 'raw')], p99: [atMostMore(5, 'ms', 'raw')] }),
  ),
  at(10_000, false, [OURS, RAW, ...FAST], latencyRows('latency-10000')),
  {
    name: 'delayed',
    description:
      'Messages sent with a delay of a second, 1,000 a second: how much later than due the handler is called.',
    server: 'standalone',
    inQuick: false,
    rounds: 3,
    entries: [OURS, ...PEERS.filter(({ contender }) => contender === 'bullmq')],
    rows: latencyRows('delayed'),
    measure: (trial) => measureLatency(trial, { rate: 1_000, seconds: trial.quick ? 2 : 5, delayMs: 1_000 }),
  },
  {
    name: 'cluster-latency',
    description:
      'Redis Cluster of three masters: from send() to the handler at 1,000 messages a second, 12 partitions.',
    server: 'cluster',
    durability: 'off',
    inQuick: false,
    rounds: 3,
    entries: [OURS, RAW],
    rows: latencyRows('cluster-latency', { p99: [atMost(25, 'ms')] }),
    measure: (trial) => measureLatency(trial, { rate: 1_000, seconds: trial.quick ? 2 : 5, partitions: 12 }),
  },
];
