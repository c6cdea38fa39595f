import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { atMost } from '../checks.js';
import type { Check, Figures, Row, Scenario, Trial } from '../scenario.js';
import { OURS } from './rows.js';

const PARTITIONS = 16;
const GROUPS = 3;
const SETTLE_MS = 6_000;

const rows = (name: string, mostConnections: number, commandChecks: readonly Check[]): Row[] => [
  {
    name: `${name}.commands`,
    figure: 'commands',
    unit: 'commands/s',
    better: 'lower',
    checks: commandChecks,
  },
  {
    name: `${name}.connections`,
    figure: 'connections',
    unit: 'connections',
    better: 'lower',
    checks: [atMost(mostConnections, 'connections')],
  },
];

/** What an instance without any messages costs: commands as MONITOR shows them, those of scripts left out, and connections. */
async function measureIdle(trial: Trial, urls: readonly string[]): Promise<Figures> {
  const topic = await trial.topic({ partitions: PARTITIONS, groups: GROUPS });
  await trial.consume(topic, () => undefined);
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  const watchers = await Promise.all(urls.map(watch));
  const seconds = trial.quick ? 5 : 15;
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const seen = await Promise.all(watchers.map((watcher) => watcher.stop()));
  return {
    commands: seen.reduce((sum, { commands }) => sum + commands, 0) / seconds,
    connections: seen.reduce((sum, { connections }) => sum + connections, 0),
  };
}

async function watch(url: string): Promise<{ stop(): Promise<{ commands: number; connections: number }> }> {
  const client = new Redis(url);
  const monitor = await startMonitor(url);
  let commands = 0;
  createInterface(monitor).on('line', (line) => {
    if (isCommand(line)) commands++;
  });
  return {
    async stop() {
      monitor.destroy();
      const list = String(await client.client('LIST'));
      client.disconnect();
      return { commands, connections: list.split('\n').filter((line) => / name=redis-streams-mq:/.test(line)).length };
    },
  };
}

/** Without ioredis, which takes what a busy server tells a monitor early for an answer. */
async function startMonitor(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write('MONITOR\r\n');
  return socket;
}

/** Of `+1796144387.964036 [0 127.0.0.1:38642] "PING"`; commands of scripts have `lua` for an address. */
function isCommand(line: string): boolean {
  return /^\+\d+\.\d+ \[\d+ (?!lua\])/.test(line);
}

export const idleScenarios: readonly Scenario[] = [
  {
    name: 'idle',
    description: `One instance with ${GROUPS} groups on ${PARTITIONS} partitions and no messages: what it costs Redis.`,
    server: 'standalone',
    inQuick: false,
    rounds: 2,
    warmUps: 0,
    entries: [OURS],
    rows: rows('idle', 3 + GROUPS, [atMost(10, 'commands/s')]),
    measure: (trial) => measureIdle(trial, [trial.urls.redis!]),
  },
  {
    name: 'cluster-idle',
    description: `The same on Redis Cluster of three masters: connections are at most masters + owned partitions.`,
    server: 'cluster',
    durability: 'off',
    inQuick: false,
    rounds: 1,
    warmUps: 0,
    entries: [OURS],
    rows: rows('cluster-idle', 3 + PARTITIONS * GROUPS, []),
    measure: (trial) =>
      measureIdle(
        trial,
        trial.urls.cluster!.map(({ host, port }) => `redis://${host}:${port}`),
      ),
  },
];
