import { Registry } from 'prom-client';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { TestInstance } from '../support/engine.js';
import { startRedis, type TestRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

interface Seen {
  readonly command: string;
  readonly keys: readonly string[];
}

const TAG = String.raw`\{[A-Za-z0-9._-]+:p:\d+\}`;
const GROUP = '[A-Za-z0-9._-]+';
/** The key table of docs/architecture.md, written once more: a key that is built elsewhere or otherwise fails. */
const TABLE = [
  `stream:topic:${TAG}`,
  `stream:topic:${TAG}:retry:${GROUP}`,
  `stream:topic:${TAG}:dlq`,
  `streaming:mq:(lease|epoch|retry|held|crash|paused):${TAG}:${GROUP}`,
  `streaming:mq:retry:${TAG}:${GROUP}:items`,
  `streaming:mq:delayed:${TAG}(:items|:seq)?`,
  `streaming:mq:(commit|activity|paused|imports|incarnation):${TAG}`,
  `streaming:mq:dedup:${TAG}:.+`,
  String.raw`streaming:mq:topic:\{${GROUP}\}:(meta|partitions)`,
  String.raw`streaming:mq:members:\{${GROUP}\}(:info)?`,
  `streaming:mq:wake:[^:]+:${GROUP}`,
  `stream:topic:${TAG}:dlq:retry:${GROUP}`,
  `streaming:mq:dlq:(lease|epoch|retry|held|crash|paused):${TAG}:${GROUP}`,
  `streaming:mq:dlq:retry:${TAG}:${GROUP}:items`,
  `streaming:mq:dlq:(commit|activity|paused|delayed|incarnation):${TAG}`,
  String.raw`streaming:mq:dlq:members:\{${GROUP}\}(:info)?`,
  `streaming:mq:dlq:wake:[^:]+:${GROUP}`,
  'streaming:mq:(topics|reporter)',
  'streaming:mq:announcements',
].map((pattern) => new RegExp(`^${pattern}$`));
/** At the boot each command that is needed is tried on these. */
const PROBE = new RegExp(String.raw`^(streaming:mq:probe:\{${GROUP}\}|stream:topic:\{${GROUP}\}:probe)$`);

/** Commands whose cost does not grow with the number of topics or keys on the server. */
const ALLOWED = new Set(
  (
    'eval evalsha xadd xack xreadgroup xpending xrange xrevrange xlen xdel xgroup pexpire publish subscribe zrem hdel hmget hget ' +
    'hsetnx sadd scard monitor time info ping client hello select auth wait quit monitor sscan'
  ).split(' '),
);
const KEYLESS = new Set(['time', 'info', 'ping', 'client', 'hello', 'select', 'auth', 'quit', 'monitor']);

function keysOf(command: string, args: readonly string[]): string[] {
  if (KEYLESS.has(command)) return [];
  if (command === 'evalsha' || command === 'eval') return args.slice(2, 2 + Number(args[1]));
  if (command === 'xreadgroup') {
    const streams = args.slice(args.findIndex((arg) => arg.toLowerCase() === 'streams') + 1);
    return streams.slice(0, streams.length / 2);
  }
  if (command === 'xgroup' || command === 'xinfo') return [args[1]!];
  return [args[0]!];
}

describe('what Redis is asked to do', () => {
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis.stop());

  it('is no command that grows with the number of topics or keys, and no key outside the table', async () => {
    const seen: Seen[] = [];
    const monitor = await redis.client().monitor();
    monitor.on('monitor', (_time: string, [name, ...args]: string[], source: string) => {
      const command = name!.toLowerCase();
      const keys = keysOf(command, args);
      const isProbe = keys.length > 0 && keys.every((key) => PROBE.test(key));
      if (source !== 'lua' && !isProbe) seen.push({ command, keys });
    });
    // With metrics, so that it also reads what concerns all instances.
    const registry = new Registry();
    const a = await TestInstance.open(
      { redis: redis.url, pendingScanIntervalSec: 1, metricsIntervalSec: 0.1 },
      { registry },
    );
    const b = await TestInstance.open({ redis: redis.url });
    let handled = 0;
    const handle = ({ payload, context }: ReceivedMessage): void => {
      const { n } = payload as { n: number };
      if (n % 10 === 1 && context.attempt === 1) throw new Error('once');
      if (n === 5 && context.attempt < 6) throw new Error('exhausts');
      handled++;
    };
    try {
      for (const instance of [a, b]) {
        await instance.start(
          { topic: 'orders', group: 'billing', handle },
          { topic: 'orders', group: 'mail', handle },
          { topic: 'returns', group: 'billing', handle },
          {
            topic: 'orders',
            group: 'letters',
            deadLetters: { ofGroup: null, deleteOnSuccess: false, maxReplays: 0 },
            handle: ({ context }) => {
              if (context.attempt === 1) throw new Error('once');
            },
          },
        );
      }
      for (const topic of ['orders', 'returns']) {
        const messages = Array.from({ length: 200 }, (_, n) => ({ payload: { n }, key: `k${n % 7}` }));
        expect((await a.producer.sendBatch(topic, messages)).failed).toBe(0);
      }
      await a.producer.send('orders', { n: 2 }, { dedupId: 'once' });
      await a.producer.send('orders', { n: 2 }, { delayMs: 5 });
      await waitFor(async () => (await a.runtime.deadLetters.size('orders')) === 2, { timeoutMs: 20_000 });
      await a.runtime.deadLetters.replayAll('orders', { limit: 1 });
      await a.runtime.health.readiness();
      await waitFor(() => handled >= 599, { timeoutMs: 20_000 });
    } finally {
      await Promise.all([a.close(), b.close()]);
      monitor.disconnect();
    }
    const commands = [...new Set(seen.map(({ command }) => command))];
    expect(commands.filter((command) => !ALLOWED.has(command))).toEqual([]);
    const strangers = new Set(
      seen.flatMap(({ keys }) => keys).filter((key) => !TABLE.some((pattern) => pattern.test(key))),
    );
    expect([...strangers]).toEqual([]);
    const stored = await redis.client().keys('*');
    expect(stored.filter((key) => !TABLE.some((pattern) => pattern.test(key)))).toEqual([]);
  });
});
