import { systemClock, type Clock } from '../../libs/redis-streams-mq/src/core/clock.js';
import { RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import { Child } from '../support/child.js';
import { HandlingRecord, nowMs } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { mentions } from '../support/tcp-proxy.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const MINUTE_MS = 60_000;
const group = 'g';
const loading: Promise<Child>[] = [];

/** This process' wall clock, wrong by that much. */
const skewed = (byMs: number): Clock => ({ ...systemClock, now: () => Date.now() + byMs });

let topic: string;
beforeAll(() => void loading.push(Child.load(), Child.load()));
beforeEach(() => (topic = uniqueName('topic')));
afterAll(() => Promise.all(loading.map(async (child) => (await child).kill())));

/** Of a scrape; the labels belong to the name. */
function samples(text: string): Map<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  );
}

describe('DEL-07 wall clocks that disagree by ten minutes', () => {
  it('move no retry, cost no lease, and make no negative times in the metrics', async () => {
    const calls = new HandlingRecord();
    const sender = await mq.open();
    await sender.runtime.admin.createTopic(topic, { partitionCount: 2 });
    const options = {
      redis: mq.redis.url,
      keyPrefix: `${mq.redis.keyPrefix}:mq`,
      streamKeyPrefix: `${mq.redis.keyPrefix}:topic`,
      leaseTtlSeconds: 3,
      renewIntervalSec: 0.5,
      rebalanceIntervalSec: 0.5,
      retryBaseBackoffMs: 2_000,
      retryMaxBackoffMs: 2_000,
      retryMaxAttempts: 2,
    };
    const [ahead, behind] = await Promise.all(loading);
    const instances = [
      { child: ahead!, name: 'ahead', clockSkewMs: 5 * MINUTE_MS },
      { child: behind!, name: 'behind', clockSkewMs: -5 * MINUTE_MS },
    ];
    for (const { child, name, clockSkewMs } of instances) {
      const handlers = [{ topic, group, behaviour: { failOn: [0, 1] } }];
      await child.begin({ name, options, handlers, clockSkewMs }, calls);
    }
    const owned = (child: Child): number => child.events.count('leaseAcquired') - child.events.count('leaseReleased');
    await waitFor(() => instances.every(({ child }) => owned(child) === 1));
    for (let n = 0; n < 10; n++) await sender.producer.send(topic, { n }, { partition: n % 2, ttlMs: MINUTE_MS });

    await waitFor(() => calls.calls.filter(({ n, endedAt }) => n < 2 && endedAt !== undefined).length === 4);
    await waitFor(() => calls.handled === 10);
    expect(new Set(calls.calls.map((call) => call.instance))).toEqual(new Set(['ahead', 'behind']));
    for (const { child, name } of instances) {
      const [first, second] = calls.by(name).filter((call) => call.n < 2);
      const [retried] = child.events.all('retried');
      expect([first!.attempt, second!.attempt]).toEqual([1, 2]);
      const waitedMs = second!.startedAt - first!.endedAt!;
      expect(waitedMs).toBeGreaterThanOrEqual(retried!.delayMs - 5);
      expect(waitedMs).toBeLessThan(retried!.delayMs + 1_500);
      expect(child.events.count('leaseLost')).toBe(0);

      const metrics = samples(await child.scrape());
      expect([...metrics].filter(([, value]) => !(value >= 0))).toEqual([]);
      const endToEnd = [...metrics].find(([metric]) =>
        metric.startsWith('redis_streaming_mq_end_to_end_latency_ms_sum'),
      );
      const handled = [...metrics].find(([metric]) =>
        metric.startsWith('redis_streaming_mq_end_to_end_latency_ms_count'),
      );
      expect(handled![1]).toBe(4);
      expect(endToEnd![1]).toBeLessThan(4 * 10_000);
    }
    // A lease is a matter of the server's clock alone: after a death the other one has it within its time.
    const killedAt = nowMs();
    await ahead!.kill();
    await sender.producer.send(topic, { n: 10 }, { partition: calls.by('ahead')[0]!.partition });
    await waitFor(() => calls.handled === 11);
    expect(calls.calls.at(-1)).toMatchObject({ n: 10, instance: 'behind' });
    expect(calls.calls.at(-1)!.startedAt - killedAt).toBeLessThan(3_000 + 1_500);
  });

  it.each([
    ['ahead', 5 * MINUTE_MS],
    ['behind', -5 * MINUTE_MS],
  ])('move no delayed message, no RetryLater and no time to live: the sender is %s', async (_, byMs) => {
    const sender = await mq.open({ defaultPartitionCount: 1 }, { clock: skewed(byMs) });
    const owner = await mq.open({}, { clock: skewed(-byMs) });
    const starts: number[] = [];
    await owner.start({
      topic,
      group,
      handle: ({ context }) => {
        starts.push(nowMs());
        if (context.attempt === 1) throw new RetryLater(300);
      },
    });
    const sentAt = nowMs();
    await sender.producer.send(topic, 'x', { delayMs: 300, ttlMs: MINUTE_MS });
    await waitFor(() => starts.length === 2);
    expect(starts[0]! - sentAt).toBeGreaterThanOrEqual(295);
    expect(starts[0]! - sentAt).toBeLessThan(1_800);
    expect(starts[1]! - starts[0]!).toBeGreaterThanOrEqual(295);
    expect(starts[1]! - starts[0]!).toBeLessThan(1_800);
    await expect(owner.runtime.deadLetters.size(topic)).resolves.toBe(0);
  });
});

describe("a server's clock that is set while a send has no answer", () => {
  // It is asked for its time when the answer is lost, and for nothing else by a producer. The first case is also what a
  // process sees whose machine was suspended: the server is further than it should be.
  it.each([
    ['forward by two minutes', 2 * MINUTE_MS],
    ['back by two minutes', -2 * MINUTE_MS],
  ])('%s: the message is stored once', async (_, byMs) => {
    const proxy = await mq.proxy();
    const sender = await mq.open({ redis: proxy.url, failFast: true, defaultPartitionCount: 1 });
    await sender.producer.send(topic, 'first');
    const [seconds] = await mq.client.time();
    const told = String(Number(seconds) + byMs / 1_000);
    const asked = proxy.answerNextMatching(mentions('$4\r\ntime'), `*2\r\n$${told.length}\r\n${told}\r\n$1\r\n0\r\n`);
    const lost = proxy.dropNextReplyMatching(mentions('xadd'));
    const sent = await sender.producer.send(topic, 'second');
    await Promise.all([lost, asked]);
    const entries = await mq.client.xrange(mq.keys.stream(topic, 0), '-', '+');
    expect(entries.map(([, fields]) => fields[1])).toEqual(['"first"', '"second"']);
    expect(entries[1]![0]).toBe(sent.id);
  });
});
