import { Registry } from 'prom-client';
import { systemClock } from '../../libs/redis-streams-mq/src/core/clock.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { jsonSerializer } from '../../libs/redis-streams-mq/src/core/serializer.js';
import type { ComposeDeps } from '../../libs/redis-streams-mq/src/nest/compose.js';
import { LogListener } from '../../libs/redis-streams-mq/src/nest/log-listener.js';
import { acquire, holders, renew } from '../../libs/redis-streams-mq/src/redis/scripts/lease.script.js';
import { heartbeat } from '../../libs/redis-streams-mq/src/redis/scripts/members.script.js';
import { heal, page } from '../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import { dueTimes, moveRetries } from '../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { dead, fail, settle } from '../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { mentions } from '../support/tcp-proxy.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
const options: MqOptions = {
  defaultPartitionCount: 1,
  leaseTtlSeconds: 2,
  renewIntervalSec: 0.2,
  rebalanceIntervalSec: 0.2,
  consumerPollTimeoutMs: 200,
  retryMaxAttempts: 2,
};

let topic: string;
const unhandled: unknown[] = [];
const keep = (error: unknown): void => void unhandled.push(error);
beforeEach(() => {
  topic = uniqueName('topic');
  unhandled.length = 0;
  process.on('unhandledRejection', keep);
});
afterEach(() => void process.off('unhandledRejection', keep));

/** A consumer that succeeds with most, fails once with `retry` and always with `bad`. */
async function consume(more: MqOptions = {}, deps: Partial<ComposeDeps> = {}) {
  const instance = await mq.open({ ...options, ...more }, deps);
  await instance.runtime.admin.createTopic(topic);
  const done: string[] = [];
  const start = (): Promise<TestInstance> =>
    instance.start({
      topic,
      group,
      handle: ({ payload, context }) => {
        const name = payload as string;
        if (name.startsWith('bad') || (name.startsWith('retry') && context.attempt === 1)) throw new Error(name);
        done.push(name);
      },
    });
  return { instance, done, start };
}

/** Each kind of message takes its way to the end: handled, retried and handled, dead-lettered. */
async function expectWork({ instance, done }: Awaited<ReturnType<typeof consume>>, round: string): Promise<void> {
  const sent = ['good', 'retry', 'bad', 'more', 'retry too'].map((name) => `${name} ${round}`);
  for (const name of sent) await instance.producer.send(topic, name);
  const ends = sent.filter((name) => !name.startsWith('bad')).toSorted();
  const ended = (): string[] => done.filter((name) => name.endsWith(round)).toSorted();
  await waitFor(() => JSON.stringify([...new Set(ended())]) === JSON.stringify(ends), {
    describe: `all of round ${round} to be handled`,
  });
  await waitFor(async () => (await instance.runtime.deadLetters.size(topic)) >= 1);
  const { stream, retryStream, retry } = mq.keys.groupPartition(topic, 0, group);
  await waitFor(async () => {
    const pending = await Promise.all(
      [stream, retryStream].map(async (key) => ((await mq.client.xpending(key, group)) as [number])[0]),
    );
    return pending[0]! + pending[1]! + (await mq.client.zcard(retry)) === 0;
  });
  expect(ended()).toEqual(ends);
  await waitFor(async () => (await instance.runtime.health.readiness()).redisStreamsMq!.status === 'up');
  await instance.runtime.deadLetters.clear(topic);
  expect(unhandled).toEqual([]);
}

describe('DEL-30 one error of Redis', () => {
  const stages: [stage: string, word: string, when: 'at the start' | 'at work'][] = [
    ['the heartbeat', heartbeat.sha, 'at the start'],
    ['the look at the leases', holders.sha, 'at the start'],
    ['an acquire', acquire.sha, 'at the start'],
    ['the making of the group', heal.sha, 'at the start'],
    ['a page of the take-over', page.sha, 'at the start'],
    ['the first read', 'xreadgroup', 'at the start'],
    ['the subscription', 'subscribe', 'at the start'],
    ['a read', 'xreadgroup', 'at work'],
    ['a look at the pending totals', 'xpending', 'at work'],
    ['a heartbeat', heartbeat.sha, 'at work'],
    ['a look at the leases', holders.sha, 'at work'],
    ['a renewal', renew.sha, 'at work'],
    ['an acknowledgement', settle.sha, 'at work'],
    ['a move into the bucket', fail.sha, 'at work'],
    ['a move to the DLQ', dead.sha, 'at work'],
    ['a look at what is due', dueTimes.sha, 'at work'],
    ['a move out of the bucket', moveRetries.sha, 'at work'],
    ['an announcement', 'publish', 'at work'],
  ];

  it.each(stages)('at %s stops nothing', async (_, word, when) => {
    const proxy = await mq.proxy();
    const consumer = await consume({ redis: proxy.url, failFast: true });
    const inject = (): Promise<void> => proxy.answerNextMatching(mentions(word), '-ERR injected by the test\r\n');
    const early = when === 'at the start' ? inject() : undefined;
    await consumer.start();
    await early;
    await expectWork(consumer, 'one');
    const late = when === 'at work' ? inject() : undefined;
    await expectWork(consumer, 'two');
    if (word === 'publish') await consumer.instance.producer.send(topic, 'later', { delayMs: 1 });
    await late;
    await expectWork(consumer, 'three');
  });
});

describe('DEL-30 one error of the application', () => {
  it('in the serializer makes that message a dead letter, and stops nothing', async () => {
    let throws = 0;
    const serializer = {
      serialize: (value: unknown) => jsonSerializer.serialize(value),
      deserialize: (bytes: Buffer) => {
        if (throws-- > 0) throw new Error('cannot read');
        return jsonSerializer.deserialize(bytes);
      },
    };
    const consumer = await consume({ serializer });
    await consumer.start();
    throws = 1;
    await consumer.instance.producer.send(topic, 'unreadable');
    const letter = await waitFor(async () => (await consumer.instance.runtime.deadLetters.list(topic)).items[0]);
    expect(letter.reason).toBe('malformed');
    await expectWork(consumer, 'after it');
  });

  it('or of whoever else writes to the stream: stops nothing', async () => {
    const consumer = await consume();
    await consumer.start();
    await mq.client.xadd(mq.keys.stream(topic, 0), '*', 'foo', 'bar');
    await waitFor(async () => (await consumer.instance.runtime.deadLetters.size(topic)) === 1);
    await expectWork(consumer, 'after it');
  });

  it('in every listener, at every event: stops nothing, and each is reported', async () => {
    const reported: unknown[] = [];
    const ignore = (): void => undefined;
    const logger = {
      log: ignore,
      warn: ignore,
      debug: ignore,
      error: (message: string) => void reported.push(message),
    };
    const consumer = await consume({}, { logger });
    const handling = ['produced', 'consumed', 'handled', 'acked', 'retried', 'dead', 'moved'] as const;
    for (const event of [...handling, 'leaseAcquired', 'rebalanced', 'groupCreated', 'connection'] as const) {
      consumer.instance.runtime.events.on(event, () => {
        throw new Error(`listener of ${event}`);
      });
    }
    await consumer.start();
    await expectWork(consumer, 'one');
    expect(reported.length).toBeGreaterThan(10);
    expect(new Set(reported)).toEqual(new Set(['a listener of the queue threw']));
  });

  it('in the metrics: stops nothing', async () => {
    const registry = new Registry();
    const consumer = await consume({}, { registry });
    for (const { name } of await registry.getMetricsAsJSON()) {
      Object.assign(registry.getSingleMetric(name)!, {
        labels: () => {
          throw new Error(`metric ${name}`);
        },
      });
    }
    await consumer.start();
    await expectWork(consumer, 'one');
  });

  it('in the logger, at every line, also at the line about that: stops nothing', async () => {
    const lines: string[] = [];
    const throwing = (message: string): never => {
      lines.push(message);
      throw new Error('the disk is full');
    };
    const logger = { log: throwing, warn: throwing, error: throwing, debug: throwing };
    const consumer = await consume({}, { logger });
    const { events } = consumer.instance.runtime;
    new LogListener(events, logger, systemClock).start();
    const faults = record(consumer.instance, 'fault');
    await consumer.start();
    await expectWork(consumer, 'one');
    expect(lines).toContain('a listener of the queue threw');
    expect(lines.length).toBeGreaterThan(5);
    expect(faults).toEqual([]);
  });
});
