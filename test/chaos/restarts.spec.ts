import type { Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import { Child } from '../support/child.js';
import { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const RESTARTS = 30;
const PARTITIONS = 4;
const PER_LIFE = 20;
const keys = new Keys('streaming:mq', 'stream:topic');

describeWithServer('a consumer that is killed and started again', () => {
  let redis: TestRedis;
  let raw: Redis;
  let sender: TestInstance | undefined;
  let children: Promise<Child>[];
  const [topic, group] = [uniqueName('topic'), uniqueName('group')];
  const partitions = Array.from({ length: PARTITIONS }, (_, p) => keys.groupPartition(topic, p, group));

  beforeAll(async () => {
    redis = await startRedis();
    raw = redis.client();
    children = [Child.load()];
  });
  afterAll(async () => {
    await sender?.close();
    for (const child of children) await (await child).kill();
    await redis.stop();
  });

  async function knownConsumers(): Promise<number> {
    const infos = await Promise.all(partitions.map(({ stream }) => raw.xinfo('CONSUMERS', stream, group)));
    return Math.max(...infos.map((info) => (info as unknown[]).length));
  }

  it(`STR-09 ${RESTARTS} times with SIGKILL leaves a few names in its groups, no lease and no message behind`, async () => {
    const options = {
      redis: redis.url,
      defaultPartitionCount: PARTITIONS,
      leaseTtlSeconds: 1,
      renewIntervalSec: 0.3,
      rebalanceIntervalSec: 0.3,
      consumerPollTimeoutMs: 200,
    };
    const record = new HandlingRecord();
    sender = await TestInstance.open(options);
    for (let life = 0; life < RESTARTS; life++) {
      const child = await children.at(-1)!;
      children.push(Child.load());
      await child.begin({ name: `life ${life}`, options, handlers: [{ topic, group }] }, record);
      const messages = Array.from({ length: PER_LIFE }, (_, i) => ({
        payload: { n: life * PER_LIFE + i },
        partition: i % PARTITIONS,
      }));
      expect((await sender.producer.sendBatch(topic, messages)).failed).toBe(0);
      await waitFor(() => record.handled === (life + 1) * PER_LIFE, { timeoutMs: 30_000 });
      await child.kill();
    }
    await waitFor(async () => (await raw.exists(...partitions.map(({ lease }) => lease))) === 0);
    expect(await knownConsumers()).toBeLessThanOrEqual(3);
    await sender.start({ topic, group, handle: record.handler('last') });
    await waitFor(async () => (await knownConsumers()) <= 1);
    expect(record.overlaps).toEqual([]);
  }, 600_000);
});
