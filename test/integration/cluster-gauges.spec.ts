import { Registry } from 'prom-client';
import { clusterGaugeDefinitions } from '../../libs/redis-streams-mq/src/metrics/metric-definitions.js';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { DeadLetter, RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import { startCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { record as eventsOf, useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';
import { samplesOf, valueOf } from '../support/scrape.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();

let topic: string;
let group: string;
beforeEach(async () => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  // The registry of topics is the file's, and each test is to see its own alone.
  await mq.client.del(mq.keys.topics);
});

const options: MqOptions = {
  defaultPartitionCount: 4,
  leaseTtlSeconds: 3,
  renewIntervalSec: 0.3,
  rebalanceIntervalSec: 0.3,
  metricsIntervalSec: 0.1,
};

const clusterNames = new Set<string>(Object.values(clusterGaugeDefinitions).map(({ name }) => name));

/** Instances of one service with a registry each, as processes have. */
class Service {
  readonly members: { readonly instance: TestInstance; readonly registry: Registry }[] = [];
  /** Scrapes in which more than one instance exported what one is to export. */
  readonly doubles: string[] = [];

  constructor(private readonly openOne: (registry: Registry) => Promise<TestInstance>) {}

  async join(handle?: (message: ReceivedMessage) => unknown): Promise<void> {
    const registry = new Registry();
    const instance = await this.openOne(registry);
    if (handle !== undefined) await instance.start({ topic, group, handle });
    this.members.push({ instance, registry });
  }

  /** The instance that reports leaves. */
  async loseReporter(): Promise<void> {
    const reports = await Promise.all(this.members.map(({ registry }) => isReporter(registry)));
    const [leaver] = this.members.splice(reports.indexOf(true), 1);
    await leaver!.instance.close();
    const left = await clusterSamples(leaver!.registry);
    if (left.length > 0) throw new Error(`still exported after close: ${left[0]!.name}`);
  }

  owned(): Promise<number[]> {
    return Promise.all(
      this.members.map(async ({ registry }) => (await valueOf(registry, 'redis_streaming_mq_leased_partitions')) ?? 0),
    );
  }

  /** Sums over all instances of what concerns all, by name and label values; only of what does not move by itself. */
  async sums(): Promise<Record<string, number>> {
    const exported = await Promise.all(this.members.map(({ registry }) => clusterSamples(registry)));
    const exporters = exported.filter((samples) => samples.length > 0);
    if (exporters.length > 1) this.doubles.push(`${exporters.length} instances`);
    const sums: Record<string, number> = {};
    for (const { name, labels, value } of exported.flat()) {
      if (/_ms$|redis_(memory|evicted)/.test(name)) continue;
      const values = [labels.topic, labels.group, labels.reason].filter((label) => label !== undefined);
      const series = [name.replace('redis_streaming_mq_', ''), ...values].join(' ');
      sums[series] = (sums[series] ?? 0) + value;
    }
    return sums;
  }
}

async function clusterSamples(registry: Registry) {
  return samplesOf(await registry.metrics()).filter(({ name }) => clusterNames.has(name));
}

async function isReporter(registry: Registry): Promise<boolean> {
  return (await valueOf(registry, 'redis_streaming_mq_reporter')) === 1;
}

const decide = ({ payload }: ReceivedMessage): void => {
  const { n } = payload as { n: number };
  if (n % 4 === 0) throw new DeadLetter('no such thing');
  if (n % 4 === 1) throw new RetryLater(3_600_000);
};

/** 40 messages of which 10 become dead letters and 10 wait for a retry, and 3 that are delayed. */
async function fill({ producer }: TestInstance): Promise<void> {
  const messages = Array.from({ length: 40 }, (_, n) => ({ payload: { n }, partition: n % 3 }));
  expect((await producer.sendBatch(topic, messages)).failed).toBe(0);
  for (let n = 0; n < 3; n++) await producer.send(topic, { n: 2 }, { delayMs: 3_600_000 });
}

/** With a group that nobody consumes and that has read nothing. */
const truth = (): Record<string, number> => ({
  topics_total: 1,
  [`partitions ${topic}`]: 4,
  [`messages_total ${topic}`]: 40,
  [`delayed ${topic}`]: 3,
  [`dlq_total ${topic} ${group} rejected`]: 10,
  [`lag ${topic} ${group}`]: 10,
  [`lag ${topic} nobody`]: 40,
  [`pending ${topic} ${group}`]: 0,
  [`pending ${topic} nobody`]: 0,
  [`retry_bucket ${topic} ${group}`]: 10,
  [`retry_bucket ${topic} nobody`]: 0,
  [`unowned_partitions ${topic} ${group}`]: 0,
  [`unowned_partitions ${topic} nobody`]: 4,
  [`paused_partitions ${topic} ${group}`]: 0,
  [`paused_partitions ${topic} nobody`]: 0,
  sample_left_out_topics: 0,
  redis_may_evict: 0,
});

/** The sums, once they are true or were not for long. */
async function sumsOf(service: Service): Promise<Record<string, number>> {
  let sums: Record<string, number> = {};
  const isTrue = async (): Promise<boolean> => {
    sums = await service.sums();
    return JSON.stringify(sorted(sums)) === JSON.stringify(sorted(truth()));
  };
  await waitFor(isTrue, { timeoutMs: 20_000 }).catch(() => undefined);
  return sums;
}

const sorted = (of: object): unknown => Object.entries(of).toSorted(([a], [b]) => (a < b ? -1 : 1));

/** Members come and go three times; the sums before and after each. */
async function rebalanceThreeTimes(
  service: Service,
  addGroup: (partition: number) => Promise<unknown>,
): Promise<Record<string, number>[]> {
  const sums: Record<string, number>[] = [];
  await service.join(decide);
  await waitFor(async () => (await service.owned()).join() === '4');
  await fill(service.members[0]!.instance);
  for (let partition = 0; partition < 4; partition++) await addGroup(partition);
  sums.push(await sumsOf(service));
  await service.join(decide);
  await waitFor(async () => (await service.owned()).join() === '2,2');
  sums.push(await sumsOf(service));
  await service.join(decide);
  await waitFor(async () => (await service.owned()).toSorted((a, b) => a - b).join() === '1,1,2');
  sums.push(await sumsOf(service));
  await service.loseReporter();
  await waitFor(async () => (await service.owned()).join() === '2,2');
  sums.push(await sumsOf(service));
  return sums;
}

describe('what concerns all instances', () => {
  it('is exported by one of them, and its sum over all is true after three rebalances', async () => {
    const service = new Service((registry) => mq.open(options, { registry }));
    const sums = await rebalanceThreeTimes(service, (partition) =>
      mq.client.xgroup('CREATE', mq.keys.stream(topic, partition), 'nobody', '0'),
    );
    expect(sums).toEqual([truth(), truth(), truth(), truth()]);
    expect(service.doubles).toEqual([]);
  });

  it('is exported by an instance that only sends, where there is no other', async () => {
    const service = new Service((registry) => mq.open(options, { registry }));
    await service.join();
    await service.members[0]!.instance.producer.send(topic, { n: 1 });
    await waitFor(async () => (await service.sums())[`messages_total ${topic}`] === 1);
  });

  it('has ages, the oldest of each', async () => {
    const registry = new Registry();
    const { producer } = await mq.open(options, { registry });
    for (const partition of [0, 1]) await producer.send(topic, { n: 1 }, { partition });
    await mq.client.xgroup('CREATE', mq.keys.stream(topic, 0), group, '0');
    await mq.client.xgroup('CREATE', mq.keys.stream(topic, 1), group, '0');
    const age = (name: string) => valueOf(registry, `redis_streaming_mq_${name}`, { topic });
    await waitFor(async () => (await age('lag_age_ms'))! > 300 && (await age('frontier_age_ms'))! > 300);
    for (const partition of [0, 1]) {
      await mq.client.xreadgroup('GROUP', group, 'c', 'COUNT', 10, 'STREAMS', mq.keys.stream(topic, partition), '>');
    }
    await waitFor(async () => (await age('pending')) === 2);
    await waitFor(async () => (await age('oldest_pending_idle_ms'))! > 100);
    expect(await age('frontier_age_ms')).toBeGreaterThan(300);
    for (const partition of [0, 1]) {
      const stream = mq.keys.stream(topic, partition);
      for (const [id] of await mq.client.xrange(stream, '-', '+')) await mq.client.xack(stream, group, id);
    }
    await waitFor(async () => (await age('lag_age_ms')) === 0 && (await age('frontier_age_ms')) === 0);
    expect(await age('oldest_pending_idle_ms')).toBe(0);
  });

  it('loses the series of a topic and of a group that are gone', async () => {
    const service = new Service((registry) => mq.open(options, { registry }));
    await service.join();
    const other = uniqueName('other');
    const { producer } = service.members[0]!.instance;
    await producer.send(topic, { n: 1 }, { partition: 0 });
    await producer.send(other, { n: 1 });
    await mq.client.xgroup('CREATE', mq.keys.stream(topic, 0), group, '0');
    await waitFor(async () => (await service.sums())[`lag ${topic} ${group}`] === 1);
    await mq.client.xgroup('DESTROY', mq.keys.stream(topic, 0), group);
    await mq.client.hdel(mq.keys.partition(topic, 0).commit, group);
    await waitFor(async () => (await service.sums())[`lag ${topic} ${group}`] === undefined);
    await mq.client.del(mq.keys.topic(other).meta);
    await waitFor(async () => (await service.sums())[`messages_total ${other}`] === undefined);
    expect((await service.sums())[`messages_total ${topic}`]).toBe(1);
  });

  it('counts dead letters by reason, also when some went away, by whatever hand', async () => {
    const registry = new Registry();
    const instance = await mq.open({ ...options, defaultPartitionCount: 1, retryMaxAttempts: 1 }, { registry });
    await instance.start({
      topic,
      group,
      handle: ({ payload }) => {
        throw (payload as { n: number }).n < 4 ? new DeadLetter('no') : new Error('always');
      },
    });
    for (let n = 0; n < 10; n++) await instance.producer.send(topic, { n });
    const of = (reason: string) => valueOf(registry, 'redis_streaming_mq_dlq_total', { topic, group, reason });
    const isCounted = (rejected: number | undefined, exhausted: number | undefined) =>
      waitFor(async () => (await of('rejected')) === rejected && (await of('exhausted')) === exhausted);
    await isCounted(4, 6);
    const { dlq } = mq.keys.partition(topic, 0);
    const [[first]] = (await mq.client.xrange(dlq, '-', '+', 'COUNT', 1)) as [[string, string[]]];
    await mq.client.xdel(dlq, first);
    await isCounted(3, 6);
    // As many as before, and others.
    const [[second]] = (await mq.client.xrange(dlq, '-', '+', 'COUNT', 1)) as [[string, string[]]];
    await mq.client.xdel(dlq, second);
    await instance.producer.send(topic, { n: 10 });
    await isCounted(2, 7);
    await instance.runtime.deadLetters.clear(topic);
    await isCounted(undefined, undefined);
  });

  it('counts the dead letters of every partition, also of more than one sample looks at', async () => {
    const registry = new Registry();
    const instance = await mq.open({ ...options, defaultPartitionCount: 60 }, { registry });
    await instance.start({ topic, group, handle: decide });
    for (let partition = 0; partition < 60; partition++) await instance.producer.send(topic, { n: 0 }, { partition });
    await waitFor(async () => (await instance.runtime.deadLetters.size(topic)) === 60);
    const of = (labels: Record<string, string>) =>
      valueOf(registry, 'redis_streaming_mq_dlq_total', { topic, ...labels });
    await waitFor(async () => (await of({ group, reason: 'rejected' })) === 60, { timeoutMs: 20_000 });
    expect(await of({ group: '', reason: '(uncounted)' })).toBeUndefined();
  });

  it('leaves a topic out of which a part cannot be read, and says so', async () => {
    const service = new Service((registry) => mq.open(options, { registry }));
    await service.join();
    const broken = uniqueName('broken');
    const { producer } = service.members[0]!.instance;
    await producer.send(topic, { n: 1 });
    await producer.send(broken, { n: 1 });
    await waitFor(async () => (await service.sums())[`messages_total ${broken}`] === 1);
    const { meta } = mq.keys.topic(broken);
    await mq.client.multi().del(meta).set(meta, 'not a hash').exec();
    await waitFor(async () => (await service.sums())['sample_left_out_topics'] === 1);
    expect(await service.sums()).toMatchObject({ [`messages_total ${topic}`]: 1 });
    expect((await service.sums())[`messages_total ${broken}`]).toBeUndefined();
  });

  it('is left to another instance by one whose user may not read it, with one warning and no fault', async () => {
    await mq.client.call('ACL', 'SETUSER', 'sender', 'on', '>secret', '~*', '&*', '+@all', '-sscan');
    const url = new URL(mq.redis.url);
    url.username = 'sender';
    url.password = 'secret';
    const [barred, allowed] = [new Registry(), new Registry()];
    const sender = await mq.open({ ...options, redis: url.href }, { registry: barred, name: 'default' });
    const [warnings, faults] = [eventsOf(sender, 'warning'), eventsOf(sender, 'fault')];
    await sender.producer.send(topic, { n: 1 });
    await waitFor(() => warnings.length > 0);
    await mq.open(options, { registry: allowed });
    await waitFor(async () => (await valueOf(allowed, 'redis_streaming_mq_messages_total', { topic })) === 1);
    expect(await isReporter(barred)).toBe(false);
    expect(warnings.map(({ message }) => message)).toEqual([expect.stringMatching(/may not read what the metrics/)]);
    expect(faults).toEqual([]);
  });
});

describeWithServer('a Redis that hangs', () => {
  it('holds up no scrape, and what concerns all is no longer shown before another may show it', async () => {
    const service = new Service((registry) => mq.open({ ...options, leaseTtlSeconds: 1.5 }, { registry }));
    await service.join(() => undefined);
    await service.join(() => undefined);
    await service.members[0]!.instance.producer.send(topic, { n: 2 });
    await waitFor(async () => (await service.sums())[`messages_total ${topic}`] === 1);
    // As the server has it: while it is there, nobody else reports.
    const left = await mq.client.pttl(mq.keys.reporter);
    mq.redis.pause();
    const hungAt = performance.now();
    try {
      let slowest = 0;
      let lastShown = 0;
      await waitFor(async () => {
        const before = performance.now();
        const isShown = (await service.sums())[`messages_total ${topic}`] !== undefined;
        slowest = Math.max(slowest, performance.now() - before);
        if (isShown) lastShown = before - hungAt;
        return !isShown;
      });
      expect(lastShown).toBeGreaterThan(0);
      expect(slowest).toBeLessThan(1_000);
      // A renewal may have come between the look and the pause.
      expect(lastShown).toBeLessThan(left + 1_000);
    } finally {
      mq.redis.resume();
    }
    await waitFor(async () => (await service.sums())[`messages_total ${topic}`] === 1);
    expect(service.doubles).toEqual([]);
  });
});

describeWithServer('on Redis Cluster', () => {
  it('what concerns all is exported by one instance, and its sum over all is true after three rebalances', async () => {
    const cluster = await startCluster({ masters: 3 });
    const prefixes = { keyPrefix: uniqueName('mq'), streamKeyPrefix: uniqueName('data') };
    const raw = cluster.client();
    const service = new Service((registry) =>
      TestInstance.open({ redis: { cluster: { nodes: cluster.startupNodes } }, ...options, ...prefixes }, { registry }),
    );
    try {
      const sums = await rebalanceThreeTimes(service, (partition) =>
        raw.xgroup('CREATE', `${prefixes.streamKeyPrefix}:{${topic}:p:${partition}}`, 'nobody', '0'),
      );
      expect(sums).toEqual([truth(), truth(), truth(), truth()]);
      expect(service.doubles).toEqual([]);
    } finally {
      await Promise.all(service.members.map(({ instance }) => instance.close()));
      await cluster.stop();
    }
  });
});
