import { Redis } from 'ioredis';
import { atLeastTimes, atMost } from '../checks.js';
import type { Topic } from '../contenders/contender.js';
import type { Figures, Scenario, Trial } from '../scenario.js';
import { timeConsumption } from './consumption.js';
import { OURS_100, RAW, rateRows } from './rows.js';

const PARTITIONS = 24;
const IN_FLIGHT = 500;
const MASTERS = 3;
const SLOTS = 16_384;
const ENTRIES = [OURS_100, RAW];

/** A topic of which each master has the same number of partitions, so that what is uneven comes from the client. */
async function evenTopic(trial: Trial): Promise<Topic> {
  const { host, port } = trial.urls.cluster![0]!;
  const client = new Redis(port, host);
  const suits = async (name: string): Promise<boolean> => {
    const tags = Array.from({ length: PARTITIONS }, (_, partition) => `{${name}:p:${partition}}`);
    const slots = await Promise.all(tags.map((tag) => client.cluster('KEYSLOT', tag)));
    const onFirst = slots.filter((slot) => Number(slot) * MASTERS < SLOTS).length;
    const onLast = slots.filter((slot) => Number(slot) * MASTERS >= (MASTERS - 1) * SLOTS).length;
    return onFirst === PARTITIONS / MASTERS && onLast === PARTITIONS / MASTERS;
  };
  try {
    return await trial.topic({ partitions: PARTITIONS, suits });
  } finally {
    client.disconnect();
  }
}

/** How many commands each master has taken since. */
async function watchMasters(trial: Trial): Promise<{ unevenness(): Promise<number> }> {
  const clients = trial.urls.cluster!.map(({ host, port }) => new Redis(port, host));
  const counts = (): Promise<number[]> =>
    Promise.all(
      clients.map(async (client) => Number(/total_commands_processed:(\d+)/.exec(await client.info('stats'))?.[1])),
    );
  const before = await counts();
  return {
    async unevenness() {
      const after = await counts();
      for (const client of clients) client.disconnect();
      const taken = after.map((count, index) => count - before[index]!);
      const mean = taken.reduce((sum, count) => sum + count, 0) / taken.length;
      return 100 * Math.max(...taken.map((count) => Math.abs(count - mean) / mean));
    },
  };
}

async function measureSend(trial: Trial): Promise<Figures> {
  const producer = await trial.producer(await evenTopic(trial));
  const messages = trial.messages(trial.count(60_000, 15_000));
  const masters = await watchMasters(trial);
  const watch = trial.stopwatch();
  let next = 0;
  const sender = async (): Promise<void> => {
    while (next < messages.length) await producer.send(messages[next++]!);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, sender));
  return { ...watch.stop(messages.length), unevenness: await masters.unevenness() };
}

async function measureConsume(trial: Trial): Promise<Figures> {
  const topic = await evenTopic(trial);
  const count = trial.count(240_000, 15_000);
  await trial.fill(topic, trial.messages(count));
  const masters = await watchMasters(trial);
  const figures = await timeConsumption(trial, { topic, count });
  return { ...figures, unevenness: await masters.unevenness() };
}

const rows = (name: string) => [
  ...rateRows(name, [atLeastTimes(0.8, 'raw')]),
  {
    name: `${name}.unevenness`,
    figure: 'unevenness',
    unit: '% from the mean of the masters',
    better: 'lower' as const,
    checks: [atMost(20, '%')],
  },
];

export const clusterScenarios: readonly Scenario[] = [
  {
    name: 'cluster-send',
    description: `Redis Cluster of three masters, ${PARTITIONS} partitions, the same number on each: send() with 500 in flight. raw: the same by ioredis Cluster.`,
    server: 'cluster',
    durability: 'off',
    inQuick: false,
    rounds: 3,
    entries: ENTRIES,
    rows: rows('cluster-send'),
    measure: measureSend,
  },
  {
    name: 'cluster-consume',
    description: `Redis Cluster of three masters, ${PARTITIONS} partitions, the same number on each: a backlog handled by a handler that does nothing. raw: XREADGROUP COUNT 100 of each partition.`,
    server: 'cluster',
    durability: 'off',
    inQuick: false,
    rounds: 3,
    entries: ENTRIES,
    rows: rows('cluster-consume'),
    measure: measureConsume,
  },
];
