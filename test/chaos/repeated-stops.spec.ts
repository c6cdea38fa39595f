import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { Child } from '../support/child.js';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';
const STOPS = 5;
const FOREVER_MS = 60_000;
const loading: Promise<Child>[] = [];

// One after the other, while the one before is at work.
beforeAll(() => {
  for (let i = 0; i < STOPS; i++) loading.push(i === 0 ? Child.load() : loading[i - 1]!.then(() => Child.load()));
});
afterAll(() => Promise.all(loading.map(async (child) => (await child).kill())));

describe('DEL-12 SIGTERM while a process works on a message', () => {
  it('costs no attempt, five times in a row, though its handler heeds nothing and maxAttempts is 3', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const options: MqOptions = {
      defaultPartitionCount: 1,
      retryMaxAttempts: 3,
      drainTimeoutMs: 100,
      leaseTtlSeconds: 1,
      renewIntervalSec: 0.2,
      consumerPollTimeoutMs: 200,
    };
    const last = await mq.open(options);
    await last.producer.send(topic, { n: 0 });
    const place = {
      redis: mq.redis.url,
      keyPrefix: `${mq.redis.keyPrefix}:mq`,
      streamKeyPrefix: `${mq.redis.keyPrefix}:topic`,
    };
    for (const [round, child] of loading.entries()) {
      const owner = await child;
      const handlers = [{ topic, group, behaviour: { slowOn: { 0: FOREVER_MS } } }];
      await owner.begin({ name: `owner ${round}`, options: { ...place, ...options }, handlers }, record);
      await waitFor(() => record.calls.length === round + 1);
      expect(await owner.terminate()).toBe(true);
    }
    await last.start({ topic, group, handle: record.handler('last') });
    await waitFor(() => record.by('last').some((call) => call.endedAt));
    expect(record.calls.map(({ instance, attempt }) => [instance, attempt])).toEqual([
      ...loading.map((_, round) => [`owner ${round}`, 1]),
      ['last', 1],
    ]);
    const { stream, crash } = mq.keys.groupPartition(topic, 0, group);
    await waitFor(async () => ((await mq.client.xpending(stream, group)) as [number])[0] === 0);
    expect(await last.runtime.deadLetters.size(topic)).toBe(0);
    expect(await mq.client.exists(crash)).toBe(0);
  }, 60_000);
});
