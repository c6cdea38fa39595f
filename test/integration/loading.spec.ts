import { EventLog } from '../support/event-log.js';
import { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const KEYS = 4_000;
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describeWithServer('CONN-17 a server that loads its data', () => {
  let redis: TestRedis;
  let instance: TestInstance | undefined;
  beforeEach(async () => {
    // Seconds in which the port is open and each command is answered LOADING.
    const slow = ['--key-load-delay', '1000', '--loading-process-events-interval-bytes', '1024'];
    redis = await startRedis({ aof: true, args: slow });
    const pipeline = redis.client().pipeline();
    for (const n of numbers(1, KEYS)) pipeline.set(`ballast-${n}`, 'x'.repeat(20));
    await pipeline.exec();
  });
  afterEach(async () => {
    await instance?.close();
    await redis.stop();
  });

  it.each([true, false])(
    'is waited for, with the ready check %s: nothing fails, nothing is made again, sends wait or end',
    async (enableReadyCheck) => {
      const topic = uniqueName('topic');
      const record = new HandlingRecord();
      const options = { redis: { port: redis.port, enableReadyCheck }, failFast: true, defaultPartitionCount: 2 };
      instance = await TestInstance.open({ ...options, redisTimeoutMs: 1_000, sendTimeoutMs: 10_000 });
      const names = ['leaseAcquired', 'healed', 'dead', 'retried', 'fault'] as const;
      const log = EventLog.of(instance.runtime.events, ...names);
      await instance.start({ topic, group: 'g', handle: record.handler('owner') });
      for (const n of numbers(0, 9)) await instance.producer.send(topic, { n });
      await waitFor(() => record.handled === 10);
      const looker = redis.client({ enableReadyCheck: false, maxRetriesPerRequest: 0, retryStrategy: () => 20 });
      await looker.ping();
      await redis.kill();
      const back = redis.restart();
      await waitFor(async () => /LOADING/.test(await looker.get('x').then(String, String)), { describe: 'LOADING' });
      const sent = numbers(10, 14).map((n) => instance!.producer.send(topic, { n }));
      const refused = instance.producer.send(topic, { n: -1 }, { timeoutMs: 200 });
      await expect(refused).rejects.toMatchObject({ code: expect.stringMatching(/^MQ_SEND_/) as string });
      expect(await looker.get('x').then(String, String)).toMatch(/LOADING/);
      await back;
      await Promise.all(sent);
      await waitFor(() => record.handled >= 15);
      for (const n of numbers(15, 19)) await instance.producer.send(topic, { n });
      await waitFor(() => numbers(0, 19).every((n) => record.calls.some((call) => call.n === n)));
      expect(record.calls.filter((call) => call.attempt > 1)).toEqual([]);
      expect([log.count('healed'), log.count('dead'), log.count('retried')]).toEqual([0, 0, 0]);
      expect(log.all('fault').filter((fault) => fault.class !== 'transient')).toEqual([]);
    },
  );
});
