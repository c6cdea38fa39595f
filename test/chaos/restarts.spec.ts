import type { Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import { Child } from '../support/child.js';
import { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const RESTARTS = 30;
const PARTITIONS = 4;
const keys = new Keys('streaming:mq', 'stream:topic');

describeWithServer('a consumer that is killed and started again', () => {
  let redis: TestRedis;
  let raw: Redis;
  beforeAll(async () => {
    redis = await startRedis();
    raw = redis.client();
  });
  afterAll(() => redis.stop());

  it(`STR-09 ${RESTARTS} times with SIGKILL leaves a few names in its groups, no lease and no message behind`, async () => {
    const [topic, group] = [uniqueName('topic'), uniqueName('group')];
    const options = {
      redis: redis.url,
      defaultPartitionCount: PARTITIONS,
      leaseTtlSeconds: 1,
      renewIntervalSec: 0.3,
      rebalanceIntervalSec: 0.3,
      consumerPollTimeoutMs: 200,
    };
    const record = new HandlingRecord();
    const sender = await TestInstance.open(options);
    let next = Child.load();
    for (let round = 0; round < RESTARTS; round++) {
      const child = await next;
      next = Child.load();
      await child.begin({ name: `life ${round}`, options, handlers: [{ topic, group }] }, record);
      const messages = Array.from({ length: 20 }, (_, i) => ({ payload: { n: round * 20 + i }, key: `key-${i}` }));
      expect((await sender.producer.sendBatch(topic, messages)).failed).toBe(0);
      await waitFor(() => record.by(`life ${round}`).length > 0, { timeoutMs: 20_000 });
      await child.kill();
    }
    await (await next).kill();
    const leases = Array.from({ length: PARTITIONS }, (_, p) => keys.groupPartition(topic, p, group).lease);
    await waitFor(async () => (await raw.exists(...leases)) === 0);
    const counts = await Promise.all(
      Array.from({ length: PARTITIONS }, async (_, p) => {
        const known = (await raw.xinfo('CONSUMERS', keys.stream(topic, p), group)) as unknown[];
        return known.length;
      }),
    );
    expect(Math.max(...counts)).toBeLessThanOrEqual(3);
    await sender.start({ topic, group, handle: record.handler('last') });
    await waitFor(() => record.handled === RESTARTS * 20, { timeoutMs: 20_000 });
    expect(record.overlaps).toEqual([]);
    await sender.close();
  }, 600_000);
});
