import { Registry } from 'prom-client';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import { TestInstance } from './engine.js';
import { EventLog } from './event-log.js';
import { HandlingRecord } from './handling-record.js';
import { uniqueName } from './unique-name.js';
import { waitFor } from './wait-for.js';

const PARTITIONS = 4;

/**
 * Uses everything there is once, with two instances made with `options`: sends of all kinds, retry, dead letters and
 * their replay, hand-over, administration, health and metrics. No fault that stays may be reported meanwhile.
 *
 * @returns the topics that were made
 */
export async function expectAllFeatures(options: MqOptions): Promise<{ topic: string; empty: string }> {
  const topic = uniqueName('topic');
  const group = uniqueName('group');
  const record = new HandlingRecord();
  const registry = new Registry();
  const all: MqOptions = { failFast: true, defaultPartitionCount: PARTITIONS, rebalanceIntervalSec: 30, ...options };
  const a = await TestInstance.open(all, { registry });
  const b = await TestInstance.open(all);
  const logs = [a, b].map(({ runtime }) => EventLog.of(runtime.events, 'leaseAcquired', 'leaseReleased', 'fault'));
  const owned = (log: EventLog): number => log.count('leaseAcquired') - log.count('leaseReleased');
  let isFixed = false;
  const work: Parameters<HandlingRecord['handler']>[1] = ({ context }, { n }) => {
    if (n === 3 && context.attempt === 1) throw new Error('fails once');
    if ((n === 4 || n === 5) && !isFixed) throw new DeadLetter('fails until it is fixed');
  };
  try {
    await a.start({ topic, group, handle: record.handler('a', work) });
    await waitFor(() => owned(logs[0]!) === PARTITIONS);
    await b.start({ topic, group, handle: record.handler('b', work) });
    await waitFor(() => owned(logs[0]!) === PARTITIONS / 2 && owned(logs[1]!) === PARTITIONS / 2);

    const { producer, deadLetters, admin, health } = a.runtime;
    const batch = Array.from({ length: 10 }, (_, n) => ({ payload: { n }, key: `key-${n}`, headers: { n: `${n}` } }));
    expect(await producer.sendBatch(topic, batch)).toMatchObject({ failed: 0 });
    await producer.send(topic, { n: 10 }, { delayMs: 50 });
    const { id } = await producer.send(topic, { n: 11 }, { dedupId: 'once' });
    expect((await producer.send(topic, { n: 11 }, { dedupId: 'once' })).id).toBe(id);
    await waitFor(() => record.handled === 12 && record.calls.some((call) => call.n === 3 && call.attempt === 2));

    const letters = await waitFor(async () => {
      const { items } = await deadLetters.list(topic);
      return items.length === 2 && items;
    });
    expect(letters.map(({ reason }) => reason)).toEqual(['rejected', 'rejected']);
    expect(await deadLetters.get(topic, letters[0]!.id)).toMatchObject({ id: letters[0]!.id });
    isFixed = true;
    expect(await deadLetters.replay(topic, letters[0]!.id)).toBe(true);
    expect(await deadLetters.delete(topic, letters[1]!.id)).toBe(true);
    await waitFor(() => record.calls.length === 14);
    expect(await deadLetters.replayAll(topic)).toMatchObject({ replayed: 0 });
    expect(await deadLetters.clear(topic)).toBe(0);
    expect(await deadLetters.size(topic)).toBe(0);

    const empty = uniqueName('empty');
    await admin.createTopic(empty, { partitionCount: 1 });
    const { items } = await admin.listTopics({ limit: 1_000 });
    expect(items.map((item) => item.topic)).toEqual(expect.arrayContaining([topic, empty]));
    expect(await admin.topicExists(empty)).toBe(true);
    const described = await admin.describeTopic(topic);
    expect(described).toMatchObject({ topic, groups: [group] });
    expect(described.partitions.map(({ bytes }) => typeof bytes)).toEqual(Array(PARTITIONS).fill('number'));
    expect((await admin.listGroups({ topic })).items).toMatchObject([{ group, topic, partitions: PARTITIONS }]);
    await waitFor(async () => {
      const { state, lag } = await admin.describeGroup(group, { topic });
      return state === 'active' && lag.messages === 0;
    });
    expect((await admin.listPending(topic, group, { minIdleMs: 1, messages: true })).items).toEqual([]);
    const [newest] = await admin.newest(topic, 1);
    const { partition, eventId } = newest!;
    expect(await admin.getMessage(topic, partition, newest!.id)).toEqual(newest);
    expect((await admin.getMessages(topic, partition, { order: 'newest-first', limit: 1 })).items).toEqual([newest]);
    expect((await admin.findByEventId(topic, eventId!)).message).toEqual(newest);
    await waitFor(async () => (await health.readiness()).redisStreamsMq!.status === 'up');
    expect((await health.liveness()).redisStreamsMq!.status).toBe('up');
    expect(await registry.metrics()).toMatch(/redis_streaming_mq_\w+\{[^}]*\} [1-9]/);

    await b.close();
    await waitFor(() => owned(logs[0]!) === PARTITIONS);
    await producer.send(topic, { n: 12 });
    await waitFor(() => record.handled === 13);
    await a.close();
    expect(record.calls).toHaveLength(15);
    expect(logs.flatMap((log) => log.all('fault')).filter((fault) => fault.class !== 'transient')).toEqual([]);
    return { topic, empty };
  } finally {
    await Promise.all([a.close(), b.close()]);
  }
}
