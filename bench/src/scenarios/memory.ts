import { Redis } from 'ioredis';
import { atMost, atMostTimes } from '../checks.js';
import type { PayloadSize } from '../payloads.js';
import type { Figures, Row, Scenario, Trial } from '../scenario.js';
import { OURS } from './rows.js';

const SIZES: readonly PayloadSize[] = ['130 B', '1 KB', '16 KB'];
const COUNTS: Readonly<Record<PayloadSize, number>> = { '130 B': 100_000, '1 KB': 20_000, '16 KB': 2_000 };

const rowName = (size: PayloadSize): string => `redis-memory-${size.replace(' ', '').toLowerCase()}`;

const MEMORY_ROWS: readonly Row[] = SIZES.map((size) => ({
  name: rowName(size),
  figure: size,
  unit: 'bytes/message',
  better: 'lower',
  checks: [atMostTimes(1.25, 'raw')],
  guarded: true,
}));

async function bytesPerMessage(trial: Trial, redis: Redis, size: PayloadSize): Promise<number> {
  const messages = trial.messages(trial.quick ? COUNTS[size] / 5 : COUNTS[size], size);
  const topic = await trial.topic();
  const before = await usedMemory(redis);
  if (trial.entry.variant === 'two-fields') await fillPlainly(redis, topic.name, messages);
  else await trial.fill(topic, messages);
  return ((await usedMemory(redis)) - before) / messages.length;
}

/** The least that a message can be: payload and key. */
async function fillPlainly(redis: Redis, name: string, messages: ReturnType<Trial['messages']>): Promise<void> {
  for (let at = 0; at < messages.length; at += 500) {
    const pipeline = redis.pipeline();
    for (const { key, payload } of messages.slice(at, at + 500)) {
      pipeline.xadd(`${name}:${payload.id % 4}`, '*', 'payload', JSON.stringify(payload), 'key', key);
    }
    await pipeline.exec();
  }
}

async function usedMemory(redis: Redis): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, 500)); // Buffers of connections that have closed are given back.
  return Number(/used_memory_dataset:(\d+)/.exec(await redis.info('memory'))?.[1]);
}

/** What a full collection leaves, buffers included. */
function usedHere(): number {
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const OUTSTANDING = 20_000;

/** One producer and one consumer, both in this process, for as long as it takes; at last the handler keeps still. */
async function measureProcessMemory(trial: Trial): Promise<Figures> {
  const million = trial.count(1_000_000, 100_000);
  const topic = await trial.topic();
  const producer = await trial.producer(topic);
  let handled = 0;
  let awaited = { count: Infinity, reached: (): void => undefined };
  let goOn: Promise<void> | undefined;
  await trial.consume(topic, () => {
    if (++handled === awaited.count) awaited.reached();
    return goOn;
  });
  const handledAre = (count: number): Promise<void> =>
    new Promise((reached) => {
      if (handled >= count) reached();
      else awaited = { count, reached };
    });
  const send = async (count: number): Promise<void> => {
    for (let sent = 0; sent < count; sent += 1_000) await producer.sendBatch(trial.messages(1_000));
  };
  const handleMany = async (count: number): Promise<number> => {
    const before = handled;
    for (let sent = 0; sent < count; sent += OUTSTANDING / 2) {
      await send(OUTSTANDING / 2);
      await handledAre(before + sent - OUTSTANDING / 2);
    }
    await handledAre(before + count);
    return usedHere();
  };
  await handleMany(million / 10);
  const afterOne = await handleMany(million);
  const afterThree = await handleMany(2 * million);
  let release: () => void = () => undefined;
  goOn = new Promise((resolve) => (release = resolve));
  await send(million);
  const withBacklog = usedHere();
  goOn = undefined;
  release();
  return {
    growth: (100 * (afterThree - afterOne)) / afterOne,
    backlogGrowth: (100 * (withBacklog - afterThree)) / afterThree,
    megabytes: afterThree / 1e6,
  };
}

export const memoryScenarios: readonly Scenario[] = [
  {
    name: 'redis-memory',
    description: 'Memory of Redis for each stored message. raw: XADD of payload and key alone.',
    server: 'standalone',
    durability: 'off',
    inQuick: true,
    rounds: 2,
    warmUps: 0,
    entries: [OURS, { name: 'raw', contender: 'raw', variant: 'two-fields' }],
    rows: MEMORY_ROWS,
    async measure(trial) {
      const redis = new Redis(trial.urls.redis!);
      try {
        const figures: Record<string, number> = {};
        for (const size of SIZES) figures[size] = await bytesPerMessage(trial, redis, size);
        return figures;
      } finally {
        redis.disconnect();
      }
    },
  },
  {
    name: 'process-memory',
    description:
      'What the process holds after a full collection when it has sent and handled 1 M and 3 M messages, and with a backlog of 1 M in Redis that its handler has not begun (a tenth of that in a quick run).',
    server: 'standalone',
    durability: 'off',
    inQuick: false,
    rounds: 1,
    warmUps: 0,
    timeoutMs: 1_800_000,
    entries: [OURS],
    rows: [
      {
        name: 'process-memory',
        figure: 'growth',
        unit: '% from 1 M to 3 M',
        better: 'lower',
        checks: [atMost(10, '%')],
      },
      {
        name: 'process-memory.backlog',
        figure: 'backlogGrowth',
        unit: '% with a backlog',
        better: 'lower',
        checks: [atMost(10, '%')],
      },
      { name: 'process-memory.total', figure: 'megabytes', unit: 'MB', better: 'lower' },
    ],
    measure: measureProcessMemory,
  },
];
