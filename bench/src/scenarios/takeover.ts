import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { waitFor } from '../../../test/support/wait-for.js';
import { atLeastTimes, atMost } from '../checks.js';
import type { Topic } from '../contenders/contender.js';
import type { Entry, Figures, Scenario, Trial } from '../scenario.js';
import { timeConsumption } from './consumption.js';

const PARTITIONS = 8;
const LEASE = { leaseTtlSeconds: 3, renewIntervalSec: 1 };
const HEIR: Entry = { name: 'ours', contender: 'ours', settings: { ...LEASE, consumerBatchCount: 100 } };
/** It takes as much as it can: what it may buffer is what can be pending when it dies. */
const VICTIM_SETTINGS = { ...LEASE, consumerBatchCount: 10_000, handlerTimeoutMs: 0 };

async function takeOver(trial: Trial, topic: Topic, count: number): Promise<Figures> {
  const redis = new Redis(trial.urls.redis!);
  const victim = startVictim(trial, topic);
  try {
    await waitFor(async () => (await pending(redis, topic)) === count, {
      timeoutMs: 60_000,
      describe: `${count} pending entries`,
    });
    const leaseEnds = await killAndTellLeaseEnd(victim, redis, topic);
    let first = Infinity;
    const figures = await timeConsumption(trial, {
      topic,
      count,
      handle: () => (first = Math.min(first, performance.now())),
    });
    return { ...figures, firstMs: Math.max(0, first - leaseEnds) };
  } finally {
    victim.kill('SIGKILL');
    redis.disconnect();
  }
}

function startVictim(trial: Trial, topic: Topic): ChildProcess {
  const context = { urls: trial.urls, durability: 'off', settings: VICTIM_SETTINGS };
  return fork(join(import.meta.dirname, '../worker/victim.js'), [JSON.stringify({ context, topic })], { execArgv: [] });
}

async function pending(redis: Redis, topic: Topic): Promise<number> {
  let total = 0;
  for (let partition = 0; partition < topic.partitions; partition++) {
    const reply = (await redis.xpending(`stream:topic:{${topic.name}:p:${partition}}`, 'group-0').catch(() => [0])) as [
      number,
    ];
    total += reply[0];
  }
  return total;
}

/** When the last of its leases ends, on the clock of this process. */
async function killAndTellLeaseEnd(victim: ChildProcess, redis: Redis, topic: Topic): Promise<number> {
  const exited = once(victim, 'exit');
  victim.kill('SIGKILL');
  await exited;
  const left = await Promise.all(
    Array.from({ length: topic.partitions }, (_, partition) =>
      redis.pttl(`streaming:mq:lease:{${topic.name}:p:${partition}}:group-0`),
    ),
  );
  return performance.now() + Math.max(...left);
}

export const takeoverScenarios: readonly Scenario[] = [
  {
    name: 'takeover',
    description:
      `An instance is killed with 100,000 unfinished messages on ${PARTITIONS} partitions; another one takes over: how soon after the end of the lease the first ` +
      'is handled, and at what rate. normal: the same number that nobody has taken before.',
    server: 'standalone',
    inQuick: false,
    rounds: 3,
    entries: [HEIR, { ...HEIR, name: 'normal', variant: 'normal' }],
    rows: [
      {
        name: 'takeover.first',
        figure: 'firstMs',
        unit: 'ms after the lease',
        better: 'lower',
        checks: [atMost(200, 'ms')],
      },
      { name: 'takeover', figure: 'rate', unit: 'messages/s', better: 'higher', checks: [atLeastTimes(0.7, 'normal')] },
      { name: 'takeover.cpu', figure: 'cpuUs', unit: 'us/message', better: 'lower' },
    ],
    async measure(trial) {
      const topic = await trial.topic({ partitions: PARTITIONS });
      const count = trial.count(100_000, 20_000);
      await trial.fill(topic, trial.messages(count));
      return trial.entry.variant === 'normal'
        ? timeConsumption(trial, { topic, count })
        : takeOver(trial, topic, count);
    },
  },
];
