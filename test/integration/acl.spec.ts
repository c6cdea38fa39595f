import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { needed, neededCommands } from '../../libs/redis-streams-mq/src/redis/needed-commands.js';
import { startCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { expectAllFeatures } from '../support/feature-run.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const KEYS = ['~streaming:mq:*', '~stream:topic:*', '&streaming:mq:announcements'];
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** The rules of a user of docs/redis.md, as ACL SETUSER takes them. */
function documented(user: 'consumer' | 'producer'): string[] {
  const doc = readFileSync(join(process.cwd(), 'docs/redis.md'), 'utf8');
  const line = new RegExp(`^user ${user} (.*)$`, 'm').exec(doc)?.[1];
  if (line === undefined) throw new Error(`docs/redis.md has no line for the user ${user}`);
  return line.split(' ');
}

/** What the server has refused anybody so far. */
async function denied(raw: Redis): Promise<string[]> {
  const entries = (await raw.call('ACL', 'LOG', 100)) as unknown[][];
  return entries.map((entry) => {
    const fields = new Map(entry.map((value, i) => [String(value), String(entry[i + 1])]));
    return `${fields.get('reason')} ${fields.get('object')}`;
  });
}

describe('DATA-11 a user with few rights', () => {
  let redis: TestRedis;
  let raw: Redis;
  beforeAll(async () => {
    redis = await startRedis();
    raw = redis.client();
  });
  beforeEach(() => raw.call('ACL', 'LOG', 'RESET'));
  afterEach(() => jest.restoreAllMocks());
  afterAll(() => redis.stop());

  const instances: TestInstance[] = [];
  afterEach(() => Promise.all(instances.splice(0).map((instance) => instance.close())));

  async function open(...args: Parameters<typeof TestInstance.open>): Promise<TestInstance> {
    const instance = await TestInstance.open(...args);
    instances.push(instance);
    return instance;
  }

  async function user(...rules: string[]): Promise<{ host: string; port: number; username: string; password: string }> {
    const username = uniqueName('user');
    await raw.call('ACL', 'SETUSER', username, 'reset', 'on', '>secret', ...rules);
    return { host: new URL(redis.url).hostname, port: redis.port, username, password: 'secret' };
  }

  it('can do everything with the documented line of a consumer, and nothing is refused', async () => {
    await expectAllFeatures({ redis: await user(...documented('consumer')) });
    expect(await denied(raw)).toEqual([]);
  });

  it('can do everything with the documented line, in another database with the right to select', async () => {
    await expectAllFeatures({ redis: { ...(await user(...documented('consumer'), '+select')), db: 2 } });
    expect(await denied(raw)).toEqual([]);
  });

  it('can do everything without dangerous and administrative commands and with our keys alone', async () => {
    jest.spyOn(console, 'warn').mockReturnValue();
    await expectAllFeatures({ redis: await user(...KEYS, '+@all', '-@dangerous', '-@admin') });
    // The look at the server's version and settings, without which everything works.
    expect(new Set(await denied(raw))).toEqual(new Set(['command info']));
  });

  it('can do everything but what is optional with what is needed alone', async () => {
    const rules = needed('consume').map(({ name }) => `+${name}`);
    const options = { ...(await user(...KEYS, ...rules)), enableReadyCheck: false };
    const record = new HandlingRecord();
    const instance = await open({ redis: options, failFast: true, defaultPartitionCount: 2 });
    const log = EventLog.of(instance.runtime.events, 'fault');
    const topic = uniqueName('topic');
    await instance.start({ topic, group: 'g', handle: record.handler('owner') });
    for (const n of numbers(0, 9)) await instance.producer.send(topic, { n });
    await waitFor(() => record.handled === 10);
    await expect(instance.runtime.admin.listTopics()).rejects.toThrow('NOPERM');
    await instance.close();
    expect(log.all('fault')).toEqual([]);
  });

  it('can send in every way with the documented line of a producer, and not handle', async () => {
    const options = { redis: await user(...documented('producer')), failFast: true, defaultPartitionCount: 2 };
    const topic = uniqueName('topic');
    const instance = await open({ ...options, waitReplicas: 1, waitReplicasTimeoutMs: 20 }, {}, 'produce');
    // Stored, though there is no replica.
    await expect(instance.producer.send(topic, { n: 0 })).rejects.toMatchObject({ code: 'MQ_SEND_NOT_REPLICATED' });
    await instance.close();
    const sender = await open(options, {}, 'produce');
    await sender.producer.send(topic, { n: 1 }, { delayMs: 20 });
    await sender.producer.send(topic, { n: 2 }, { dedupId: 'once' });
    await sender.producer.sendBatch(topic, [{ payload: { n: 3 } }]);
    await waitFor(async () => (await sender.runtime.health.readiness()).redisStreamsMq!.status === 'up');
    await sender.close();
    expect(await denied(raw)).toEqual([]);

    const record = new HandlingRecord();
    const consumer = await open({ redis: redis.url, failFast: true });
    await consumer.start({ topic, group: 'g', handle: record.handler('consumer') });
    await waitFor(() => record.handled === 4);
    await consumer.close();

    await expect(open(options, {}, 'consume')).rejects.toMatchObject({
      code: 'MQ_REDIS_NOT_ALLOWED',
      context: { missing: expect.arrayContaining(['the right to run xreadgroup']) as string[] },
    });
  });

  it('the documented lines are what the queue needs, and what is optional', () => {
    const commands = (line: string[]): string[] => line.filter((rule) => rule.startsWith('+')).sort();
    const rules = (names: string[]): string[] => ['client|setname', ...names].map((name) => `+${name}`).sort();
    const optional = neededCommands.filter(({ by }) => by === 'optional').map(({ name }) => name);
    const namesOf = (use: 'consume' | 'produce'): string[] => needed(use).map(({ name }) => name);
    expect(commands(documented('consumer'))).toEqual(rules([...namesOf('consume'), ...optional]));
    const forConsumers = ['sscan', 'memory|usage', 'subscribe'];
    const ofProducers = optional.filter((name) => !forConsumers.includes(name));
    expect(commands(documented('producer'))).toEqual(rules([...namesOf('produce'), ...ofProducers]));
  });

  it('without a right to pub/sub is warned once, and shares partitions by its timers', async () => {
    const options = { redis: await user('~*', 'resetchannels', '+@all'), rebalanceIntervalSec: 0.3 };
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const a = await open(options);
    const b = await open(options);
    const logs = [a, b].map(({ runtime }) => EventLog.of(runtime.events, 'leaseAcquired', 'leaseReleased', 'warning'));
    await a.start({ topic, group: 'g', handle: record.handler('a') });
    await waitFor(() => logs[0]!.count('leaseAcquired') === 4);
    await b.start({ topic, group: 'g', handle: record.handler('b') });
    await waitFor(() => logs[1]!.count('leaseAcquired') === 2);
    for (const n of numbers(0, 19)) await a.producer.send(topic, { n });
    await waitFor(() => record.handled === 20);
    await Promise.all([a.close(), b.close()]);
    expect(record.repeated).toEqual([]);
    for (const log of logs) {
      expect(log.all('warning').map(({ message }) => message)).toEqual([
        'pub/sub is not allowed; ownership changes are noticed by timers alone, which is slower',
      ]);
    }
  });
});

describeWithServer('DATA-11 on a cluster, a user with few rights', () => {
  it('can do everything with the documented line and the additions for a cluster', async () => {
    const cluster = await startCluster();
    const admins = cluster.nodes.map(({ url }) => new Redis(url));
    try {
      const rules = [...documented('consumer'), '+cluster|slots', '+cluster|info', '+asking'];
      for (const admin of admins) await admin.call('ACL', 'SETUSER', 'app', 'reset', ...rules);
      const redisOptions = { username: 'app', password: 'secret' };
      await expectAllFeatures({ redis: { cluster: { nodes: cluster.startupNodes, options: { redisOptions } } } });
      expect((await Promise.all(admins.map(denied))).flat()).toEqual([]);
    } finally {
      for (const admin of admins) admin.disconnect();
      await cluster.stop();
    }
  });
});

describeWithServer('DATA-12 a hardened server', () => {
  const renamed = (...names: string[]): string[] => names.flatMap((name) => ['--rename-command', name, '']);

  it.each([
    ['without administration', ['CONFIG', 'KEYS', 'CLIENT', 'XAUTOCLAIM', 'SCAN', 'FLUSHALL', 'FLUSHDB', 'SCRIPT'], {}],
    ['without INFO', ['INFO', 'CLIENT', 'CONFIG'], { enableReadyCheck: false }],
    ['without transactions, DEBUG and MONITOR', ['MULTI', 'EXEC', 'DEBUG', 'MONITOR', 'SHUTDOWN'], {}],
  ])('lets everything work: %s', async (_, names, settings) => {
    const redis = await startRedis({ args: renamed(...names) });
    try {
      await expectAllFeatures({ redis: { port: redis.port, ...settings } });
    } finally {
      await redis.stop();
    }
  });

  it.each(['EVALSHA', 'XREADGROUP', 'XGROUP'])('without %s fails the boot, by name', async (name) => {
    const redis = await startRedis({ args: renamed(name) });
    const boot = TestInstance.open({ redis: redis.url });
    await expect(boot).rejects.toMatchObject({
      code: 'MQ_REDIS_NOT_ALLOWED',
      message: expect.stringContaining(`the command ${name.toLowerCase()}`) as string,
    });
    await redis.stop();
  });

  it('without INFO says at the boot what helps', async () => {
    const redis = await startRedis({ args: renamed('INFO') });
    const message = expect.stringMatching(/unknown command .info.*enableReadyCheck: false/i) as string;
    await expect(TestInstance.open({ redis: redis.url })).rejects.toMatchObject({
      code: 'MQ_REDIS_NOT_ALLOWED',
      message,
    });
    const failFast = { failFast: true, bootTimeoutMs: 400 };
    await expect(TestInstance.open({ redis: redis.url, ...failFast })).rejects.toMatchObject({ message });
    await redis.stop();
  });
});
