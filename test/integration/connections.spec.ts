import { setTimeout as sleep } from 'node:timers/promises';
import { Redis, type RedisOptions } from 'ioredis';
import { systemClock } from '../../libs/redis-streams-mq/src/core/clock.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { LogListener } from '../../libs/redis-streams-mq/src/nest/log-listener.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord, nowMs } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

let redis: TestRedis;
let topic: string;
let group: string;
let record: HandlingRecord;
const instances: TestInstance[] = [];
const clients: Redis[] = [];

beforeAll(async () => {
  redis = await startRedis({ aof: true });
});
afterAll(() => redis.stop());
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});
afterEach(async () => {
  jest.restoreAllMocks();
  await Promise.all(instances.splice(0).map((instance) => instance.close()));
  for (const client of clients.splice(0)) client.disconnect();
});

async function open(options: MqOptions = {}): Promise<TestInstance> {
  const instance = await TestInstance.open({ redis: redis.url, ...options });
  instances.push(instance);
  return instance;
}

/** A client of the user's. */
function clientWith(options: RedisOptions = {}): Redis {
  const client = new Redis({ port: redis.port, ...options });
  client.on('error', () => undefined);
  clients.push(client);
  return client;
}

/** Unacknowledged messages of the topic's four partitions. */
async function pending(): Promise<number> {
  const raw = redis.client();
  const streams = numbers(0, 3).map((partition) => `stream:topic:{${topic}:p:${partition}}`);
  const counts = await Promise.all(streams.map((stream) => raw.xpending(stream, group)));
  raw.disconnect();
  return counts.reduce<number>((sum, count) => sum + (count as [number])[0], 0);
}

async function status(instance: TestInstance): Promise<string> {
  return (await instance.runtime.health.readiness()).redisStreamsMq!.status;
}

/** Sends until it is accepted. */
async function sendAll(producer: TestInstance['producer'], ns: readonly number[]): Promise<void> {
  for (const n of ns) await waitFor(() => producer.send(topic, { n }).then(() => true));
}

describe("the user's settings", () => {
  it.each([
    ['options', (): unknown => ({ port: redis.port, commandTimeout: 200 })],
    ['a client', (): unknown => clientWith({ commandTimeout: 200 })],
  ])('CONN-05 of a commandTimeout below BLOCK, in %s, strand no message', async (_, make) => {
    const instance = await open({ redis: make(), consumerPollTimeoutMs: 1_500 });
    const log = EventLog.of(instance.runtime.events, 'fault', 'ledgerRepaired', 'readerReplaced', 'leaseAcquired');
    await instance.start({ topic, group, handle: record.handler('owner') });
    await waitFor(() => log.count('leaseAcquired') === 4);
    for (const n of numbers(0, 4)) {
      await sleep(450);
      const sentAt = nowMs();
      await instance.producer.send(topic, { n });
      await waitFor(() => record.calls.length === n + 1);
      expect(record.calls[n]!.startedAt - sentAt).toBeLessThan(300);
    }
    expect([log.count('fault'), log.count('ledgerRepaired'), log.count('readerReplaced')]).toEqual([0, 0, 0]);
  });

  it.each([
    ['a lazy client that was never connected', async (): Promise<unknown> => clientWith({ lazyConnect: true })],
    [
      'a lazy client that its owner has connected',
      async (): Promise<unknown> => {
        const client = clientWith({ lazyConnect: true });
        await client.connect();
        return client;
      },
    ],
    ['options with lazyConnect', async (): Promise<unknown> => ({ port: redis.port, lazyConnect: true })],
    [
      'a client that is ready',
      async (): Promise<unknown> => {
        const client = clientWith();
        await client.ping();
        return client;
      },
    ],
  ])('CONN-12 work with %s, which stays as it was', async (_, make) => {
    const given = await make();
    const statusBefore = given instanceof Redis ? given.status : undefined;
    const instance = await open({ redis: given });
    await instance.start({ topic, group, handle: record.handler('owner') });
    await sendAll(instance.producer, numbers(0, 4));
    await waitFor(() => record.handled === 5);
    await instance.close();
    expect(given instanceof Redis ? given.status : undefined).toBe(statusBefore);
  });
});

describeWithServer("the user's settings, when Redis goes", () => {
  it.each([
    ['CONN-13 of enableOfflineQueue: false', { enableOfflineQueue: false }],
    ['CONN-14 that give up reconnecting and retrying', { maxRetriesPerRequest: 1, retryStrategy: () => null }],
  ])('%s neither fail the start nor end consumption', async (_, settings: RedisOptions) => {
    const instance = await open({ redis: { port: redis.port, ...settings }, sendTimeoutMs: 300 });
    // As code does that sends while it starts: no second try.
    for (const n of numbers(0, 4)) await instance.producer.send(topic, { n }, { timeoutMs: 10_000 });
    await instance.start({ topic, group, handle: record.handler('owner') });
    await waitFor(() => record.handled === 5);
    // What is handled and not yet acknowledged comes again.
    await waitFor(async () => (await pending()) === 0);
    await redis.kill();
    await sleep(200);
    const sendingAt = performance.now();
    await expect(instance.producer.send(topic, { n: -1 })).rejects.toMatchObject({ code: 'MQ_SEND_TIMEOUT' });
    expect(performance.now() - sendingAt).toBeLessThan(1_000);
    await sleep(1_000);
    await redis.restart();
    await sendAll(instance.producer, numbers(5, 9));
    await waitFor(() => record.handled === 10);
    expect(record.repeated).toEqual([]);
  });

  it('CONN-16 an outage makes a few lines in the log, then one that it is over, and none of ioredis itself', async () => {
    const printed = (['log', 'warn', 'error'] as const).map((name) => jest.spyOn(console, name).mockReturnValue());
    const lines: { level: string; message: string; subject: string }[] = [];
    const write =
      (level: string) =>
      (message: string, fields: Record<string, unknown> = {}): void => {
        const { connection, component, group: name } = fields as Record<string, string | undefined>;
        lines.push({ level, message, subject: `${message} ${connection ?? component ?? name ?? ''}` });
      };
    const logger = { log: write('log'), warn: write('warn'), error: write('error'), debug: () => undefined };
    const instance = await open();
    const listener = new LogListener(instance.runtime.events, logger, systemClock);
    listener.start();
    const topics = [topic, uniqueName('topic'), uniqueName('topic'), uniqueName('topic')];
    const handle = record.handler('owner', (_, { n }) => (n < 0 ? sleep(300) : undefined));
    await instance.start(...topics.map((name) => ({ topic: name, group, handle })));
    await sendAll(instance.producer, numbers(0, 4));
    await waitFor(() => record.handled === 5);
    for (const name of topics)
      for (const partition of numbers(0, 3)) await instance.producer.send(name, { n: -1 }, { partition });
    await waitFor(() => record.calls.length === 21);
    lines.length = 0;
    await redis.kill();
    await sleep(4_000);
    const trouble = lines.filter(({ level }) => level !== 'log');
    expect(trouble.length).toBeGreaterThan(0);
    const counts = new Map<string, number>();
    for (const { subject } of trouble) counts.set(subject, (counts.get(subject) ?? 0) + 1);
    expect([...counts].filter(([, count]) => count > 1)).toEqual([]);
    await redis.restart();
    await sendAll(instance.producer, numbers(5, 9));
    await waitFor(() => record.handled === 11);
    await waitFor(() => lines.some(({ message }) => message === 'a part of the queue recovered'));
    await waitFor(() => lines.some(({ subject }) => subject === 'connected to Redis command'));
    listener.stop();
    for (const spy of printed) expect(spy).not.toHaveBeenCalled();
  });
});

describeWithServer('OBS-04 readiness', () => {
  const connectionsOf = async (raw: Redis): Promise<number> =>
    ((await raw.client('LIST')) as string).split('\n').filter((line) => line.includes('name=redis-streams-mq')).length;

  it.each([
    ['is gone', () => redis.kill(), () => redis.restart()],
    ['stands still', async () => redis.pause(), async () => redis.resume()],
  ])('says down in time when Redis %s, to 20 that ask at once, and up again afterwards', async (_, breakIt, mendIt) => {
    const raw = redis.client();
    const instance = await open({ redisTimeoutMs: 1_000 });
    await instance.start({ topic, group, handle: record.handler('owner') });
    await waitFor(async () => (await status(instance)) === 'up');
    await waitFor(async () => (await connectionsOf(raw)) === 4);
    await breakIt();
    const since = performance.now();
    const answers = await Promise.all(numbers(1, 20).map(() => status(instance)));
    expect(performance.now() - since).toBeLessThan(2_500);
    expect(new Set(answers)).toEqual(new Set(['down']));
    await mendIt();
    await waitFor(async () => (await status(instance)) === 'up');
    await waitFor(async () => (await connectionsOf(raw)) === 4);
  });

  it('says down when Redis was never there, and liveness says up', async () => {
    const other = await startRedis();
    await other.kill();
    const instance = await open({ redis: other.url });
    await instance.start({ topic, group, handle: record.handler('owner') });
    const since = performance.now();
    const answers = await Promise.all(numbers(1, 20).map(() => status(instance)));
    expect(performance.now() - since).toBeLessThan(2_500);
    expect(new Set(answers)).toEqual(new Set(['down']));
    expect((await instance.runtime.health.liveness()).redisStreamsMq!.status).toBe('up');
    await other.stop();
  });
});
