import { Registry } from 'prom-client';
import { systemClock, type Clock } from '../../libs/redis-streams-mq/src/core/clock.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';
import { samplesOf, valueOf } from '../support/scrape.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();

let topic: string;
let group: string;
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
});

const options: MqOptions = {
  defaultPartitionCount: 2,
  rebalanceIntervalSec: 0.3,
  retryMoverIntervalSec: 0.1,
  trimIntervalSec: 0.2,
  metricsIntervalSec: 1,
};

async function consume(registry: Registry, more: MqOptions = {}): Promise<TestInstance> {
  const instance = await mq.open({ ...options, ...more }, { registry });
  return instance.start({ topic, group, handle: () => undefined });
}

/** A clock that can be put forward. */
function skippingClock(): { clock: Clock; skip: (ms: number) => void } {
  let ahead = 0;
  return {
    clock: { ...systemClock, monotonic: () => systemClock.monotonic() + ahead },
    skip: (ms) => void (ahead += ms),
  };
}

describe('the pause of a hand-over', () => {
  const pauses = (registry: Registry, since: string): Promise<number | undefined> =>
    valueOf(registry, 'redis_streaming_mq_hand_over_pause_ms_count', { topic, group, since });

  it('is timed from the release to the next ownership, and not counted for the first owner', async () => {
    const [first, second] = [new Registry(), new Registry()];
    const a = await consume(first);
    await waitFor(async () => (await valueOf(first, 'redis_streaming_mq_leased_partitions')) === 2);
    const b = await consume(second);
    await waitFor(async () => (await valueOf(second, 'redis_streaming_mq_leased_partitions')) === 1);
    await a.close();
    await waitFor(async () => (await valueOf(second, 'redis_streaming_mq_leased_partitions')) === 2);
    expect(await pauses(second, 'released')).toBe(2);
    expect(await pauses(second, 'expired')).toBeUndefined();
    expect(await valueOf(second, 'redis_streaming_mq_hand_over_pause_ms_sum', { since: 'released' })).toBeLessThan(
      20_000,
    );
    await b.close();
  });

  it('begins, after an owner without a word, when the partition is seen to be free', async () => {
    const registry = new Registry();
    await consume(registry);
    await waitFor(async () => (await valueOf(registry, 'redis_streaming_mq_leased_partitions')) === 2);
    expect(await pauses(registry, 'expired')).toBeUndefined();
    await mq.client.del(mq.keys.groupPartition(topic, 0, group).lease);
    await waitFor(async () => (await pauses(registry, 'expired')) === 1);
    expect(await pauses(registry, 'released')).toBeUndefined();
  });
});

describe('what the mover did', () => {
  it('is counted for retries and delayed messages apart, and its series are there with the first', async () => {
    const registry = new Registry();
    const record = new HandlingRecord();
    const instance = await mq.open(options, { registry });
    const once = record.handler('one');
    await instance.start({
      topic,
      group,
      handle: (message) => {
        if (message.context.attempt === 1) throw new Error('once');
        return once(message);
      },
    });
    await instance.producer.send(topic, { n: 1 });
    await instance.producer.send(topic, { n: 2 }, { delayMs: 50 });
    await waitFor(() => record.handled === 2);
    expect(await valueOf(registry, 'redis_streaming_mq_retries_moved_total', { topic, group })).toBe(2);
    expect(await valueOf(registry, 'redis_streaming_mq_delayed_moved_total', { topic })).toBe(1);
    expect(await valueOf(registry, 'redis_streaming_mq_mover_age_ms')).toBeLessThan(10_000);
  });

  describeWithServer('and Redis away', () => {
    it('its age grows while Redis does not answer, and is small again with it', async () => {
      const registry = new Registry();
      await consume(registry);
      await waitFor(async () => (await valueOf(registry, 'redis_streaming_mq_leased_partitions')) === 2);
      mq.redis.pause();
      try {
        await waitFor(async () => (await valueOf(registry, 'redis_streaming_mq_mover_age_ms'))! > 1_500);
      } finally {
        mq.redis.resume();
      }
      await waitFor(async () => (await valueOf(registry, 'redis_streaming_mq_mover_age_ms'))! < 1_000);
    });
  });
});

describe('a topic that is deleted', () => {
  const seriesOf = async (registry: Registry): Promise<string[]> =>
    samplesOf(await registry.metrics())
      .filter(({ labels }) => labels['topic'] === topic)
      .map(({ name }) => name);

  it('takes its series along in every instance that knew it', async () => {
    const [first, second, third] = [new Registry(), new Registry(), new Registry()];
    const a = await consume(first);
    await consume(second);
    const sender = await mq.open(options, { registry: third });
    for (let n = 0; n < 10; n++) await sender.producer.send(topic, { n });
    await waitFor(async () => (await seriesOf(first)).length > 0 && (await seriesOf(second)).length > 0);
    expect(await seriesOf(third)).not.toEqual([]);
    await a.runtime.admin.deleteTopic(topic);
    // A process that only sends notices with its next message.
    await expect(sender.producer.send(topic, { n: 0 })).rejects.toMatchObject({ code: 'MQ_TOPIC_DELETED' });
    for (const registry of [first, second, third]) {
      await waitFor(async () => (await seriesOf(registry)).length === 0, { describe: 'the series to be gone' });
    }
  });
});

describe('an instance with nothing to do', () => {
  const statuses = async ({ runtime: { health } }: TestInstance): Promise<unknown[]> =>
    [await health.liveness(), await health.readiness()].map(({ redisStreamsMq }) => redisStreamsMq!.reasons);

  it('is alive and ready for ever when it has no handlers, and shows no mover', async () => {
    const { clock, skip } = skippingClock();
    const registry = new Registry();
    const instance = await mq.open(options, { clock, registry });
    await instance.start();
    skip(600_000);
    expect(await statuses(instance)).toEqual([[], []]);
    expect(await valueOf(registry, 'redis_streaming_mq_mover_age_ms')).toBeUndefined();
  });

  it('is alive and ready when others own everything: its mover goes round with nothing to move', async () => {
    const registry = new Registry();
    await consume(new Registry(), { defaultPartitionCount: 1 });
    await waitFor(async () => (await mq.client.exists(mq.keys.groupPartition(topic, 0, group).lease)) === 1);
    const { clock, skip } = skippingClock();
    const standby = await mq.open({ ...options, defaultPartitionCount: 1 }, { clock, registry });
    await standby.start({ topic, group, handle: () => undefined });
    await waitFor(async () => (await valueOf(registry, 'redis_streaming_mq_eligible_partitions')) === 1);
    skip(600_000);
    await waitFor(async () => (await statuses(standby)).flat().length === 0);
    expect(await valueOf(registry, 'redis_streaming_mq_leased_partitions')).toBe(0);
    expect(await valueOf(registry, 'redis_streaming_mq_mover_age_ms')).toBeLessThan(10_000);
  });
});
