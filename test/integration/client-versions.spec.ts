import { Redis, type RedisOptions } from 'ioredis';
import { Redis as Redis5 } from 'ioredis5';
import { TestInstance } from '../support/engine.js';
import { expectAllFeatures } from '../support/feature-run.js';
import { useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';

describeWithServer("a client of the user's", () => {
  const mq = useMq();
  const clients: { disconnect(): void }[] = [];
  afterEach(() => {
    for (const client of clients.splice(0)) client.disconnect();
  });

  function made<C extends { disconnect(): void; on(event: 'error', listener: () => void): unknown }>(client: C): C {
    client.on('error', () => undefined);
    clients.push(client);
    return client;
  }

  it.each<[string, () => unknown]>([
    ['RESP3 with its own shapes', () => made(new Redis({ port: mq.redis.port, protocol: 3, replyMapping: 'resp3' }))],
    ['RESP3 with the old shapes', () => made(new Redis({ port: mq.redis.port, protocol: 3 }))],
    ['RESP2', () => made(new Redis({ port: mq.redis.port, protocol: 2 }))],
    ['options of RESP3', (): RedisOptions => ({ port: mq.redis.port, protocol: 3, replyMapping: 'resp3' })],
    ['numbers as text', () => made(new Redis({ port: mq.redis.port, stringNumbers: true }))],
    ['ioredis 5', () => made(new Redis5({ port: mq.redis.port }))],
    ['ioredis 5, not connected', () => made(new Redis5({ port: mq.redis.port, lazyConnect: true }))],
  ])('CLU-13 that speaks %s changes nothing', async (_, make) => {
    expect(await expectAllFeatures({ redis: make() })).toBeDefined();
  });

  it.each<[string, () => unknown]>([
    ['a client of ioredis 6', () => made(new Redis({ port: mq.redis.port, keyPrefix: 'app:' }))],
    ['a client of ioredis 5', () => made(new Redis5({ port: mq.redis.port, keyPrefix: 'app:' }))],
    ['options', () => ({ port: mq.redis.port, keyPrefix: 'app:' })],
    ['a URL', () => `${mq.redis.url}?keyPrefix=app:`],
    ['options of a cluster', () => ({ cluster: { nodes: [mq.redis.url], options: { keyPrefix: 'app:' } } })],
    [
      'options of the nodes of a cluster',
      () => ({ cluster: { nodes: [mq.redis.url], options: { redisOptions: { keyPrefix: 'app:' } } } }),
    ],
  ])('CLU-11 whose keyPrefix ioredis would not apply everywhere is refused: %s', async (_, make) => {
    await expect(TestInstance.open({ redis: make() })).rejects.toMatchObject({
      code: 'MQ_INVALID_OPTIONS',
      message: expect.stringContaining("use the module's keyPrefix and streamKeyPrefix") as string,
    });
  });

  it("CLU-11 applications with the module's own prefixes never meet, and each key has its prefix once", async () => {
    const before = new Set(await mq.client.keys('*'));
    const one = { keyPrefix: 'one:mq', streamKeyPrefix: 'one:data' };
    const two = { keyPrefix: 'two:mq', streamKeyPrefix: 'two:data' };
    const [inOne, inTwo] = await Promise.all([
      expectAllFeatures({ redis: mq.redis.url, ...one }),
      expectAllFeatures({ redis: mq.redis.url, ...two }),
    ]);
    const keys = (await mq.client.keys('*')).filter((key) => !before.has(key));
    expect(keys.length).toBeGreaterThan(10);
    expect(keys.filter((key) => !/^(one|two):(mq|data):/.test(key) || /(one|two):.*(one|two):/.test(key))).toEqual([]);
    expect(keys.filter((key) => key.startsWith('one:') && key.includes(inTwo.topic))).toEqual([]);
    expect(keys.filter((key) => key.startsWith('two:') && key.includes(inOne.topic))).toEqual([]);
  });
});
