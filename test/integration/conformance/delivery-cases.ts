import { MqInvalidMessageError } from 'nestjs-redis-streams-mq';
import { deferred } from '../../support/wait-for.js';
import type { ConformanceCase } from './conformance-case.js';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** Sending, partitions, groups, order, and what is told about a message. */
export const deliveryCases: readonly ConformanceCase[] = [
  {
    name: 'a message reaches its handler with all that was sent with it',
    async run({ engine }) {
      await engine.start([{}]);
      const sent = await engine.producer.send(
        engine.topic,
        { id: 7 },
        { key: 'ann', headers: { tenant: 'acme' }, eventId: 'order-7', timestamp: 1_700_000_000_000 },
      );
      await engine.until(() => engine.calls.length === 1);
      const [{ payload, ctx }] = engine.calls as [(typeof engine.calls)[0]];
      expect(payload).toEqual({ id: 7 });
      expect({ ...ctx.headers }).toEqual({ tenant: 'acme' });
      expect(ctx).toMatchObject({
        topic: engine.topic,
        partition: sent.partition,
        group: 'g',
        id: sent.id,
        key: 'ann',
        eventId: 'order-7',
        attempt: 1,
        timestamp: 1_700_000_000_000,
      });
      expect(sent).toMatchObject({ eventId: 'order-7', duplicate: false });
      expect(ctx.epoch).toBeGreaterThan(0);
      expect(Math.abs(ctx.publishedAt - engine.calls[0]!.at)).toBeLessThan(5_000);
    },
  },
  {
    name: 'messages of a key come in the order of their sending, over partitions',
    async run({ engine }) {
      await engine.start([{}], { defaultPartitionCount: 3 });
      const keys = ['ann', 'bob', 'eve', 'joe'];
      await Promise.all(range(80).map((n) => engine.producer.send(engine.topic, n, { key: keys[n % keys.length]! })));
      await engine.until(() => engine.calls.length === 80);
      for (const [i, key] of keys.entries()) {
        const got = engine.calls.filter(({ ctx }) => ctx.key === key).map(({ payload }) => payload);
        expect(got).toEqual(range(20).map((n) => n * keys.length + i));
      }
      expect(new Set(engine.calls.map(({ ctx }) => ctx.partition)).size).toBeGreaterThan(1);
    },
  },
  {
    name: 'each group gets every message, and the failure of one is none of the others',
    async run({ engine }) {
      const fails = (): void => {
        throw new Error('no');
      };
      await engine.start([{ group: 'good' }, { group: 'bad', handle: fails }]);
      for (const n of range(3)) await engine.producer.send(engine.topic, n, { key: 'k' });
      await engine.until(async () => (await engine.letters('bad')).length === 3);
      expect(engine.calls.filter(({ group }) => group === 'good').map(({ payload }) => payload)).toEqual(range(3));
      expect(engine.calls.filter(({ group }) => group === 'bad')).toHaveLength(9);
      expect(await engine.letters('good')).toEqual([]);
    },
  },
  {
    name: 'what was acknowledged does not come again after a crash',
    async run({ engine }) {
      await engine.start([{}]);
      for (const n of range(5)) await engine.producer.send(engine.topic, n);
      await engine.until(() => engine.calls.length === 5);
      await engine.idle();
      await engine.crash();
      await engine.producer.send(engine.topic, 'last');
      await engine.until(() => engine.calls.some(({ payload }) => payload === 'last'));
      expect(engine.calls).toHaveLength(6);
    },
  },
  {
    name: 'a crash repeats what was not settled, first and in order, without costing an attempt',
    async run({ engine }) {
      const never = deferred();
      let isDown = true;
      await engine.start([{ handle: (n) => (n === 1 && isDown ? never.promise : undefined) }]);
      for (const n of range(4)) await engine.producer.send(engine.topic, n, { key: 'k' });
      await engine.until(() => engine.calls.length === 2);
      // What was handled in the last milliseconds may come again as well.
      await engine.idle();
      isDown = false;
      await engine.crash();
      await engine.until(() => engine.calls.length === 5);
      expect(engine.calls.map(({ payload }) => payload)).toEqual([0, 1, 1, 2, 3]);
      expect(engine.calls.map(({ ctx }) => ctx.attempt)).toEqual([1, 1, 1, 1, 1]);
      const [before, after] = [engine.calls[1]!.ctx, engine.calls[2]!.ctx];
      expect([after.eventId, after.id]).toEqual([before.eventId, before.id]);
      expect(after.epoch).toBeGreaterThan(before.epoch);
      never.resolve();
    },
  },
  {
    name: 'a handler that has lost its partition in a crash can settle nothing any more',
    async run({ engine }) {
      const first = deferred();
      await engine.start([
        {
          handle: (_, { epoch }) =>
            epoch === engine.calls[0]!.ctx.epoch ? first.promise : Promise.reject(new Error('no')),
        },
      ]);
      await engine.producer.send(engine.topic, 'x');
      await engine.until(() => engine.calls.length === 1);
      await engine.crash();
      first.resolve();
      await engine.until(async () => (await engine.letters()).length === 1);
      expect((await engine.letters())[0]).toMatchObject({ reason: 'exhausted', attempts: 3 });
    },
  },
  {
    name: 'a group that begins with what is new gets nothing older',
    async run({ engine }) {
      await engine.start([{ topic: `${engine.topic}.other` }]);
      await engine.producer.send(engine.topic, 'old', { key: 'k' });
      await engine.passes(20);
      await engine.start([{ options: { startFrom: 'latest' } }]);
      await engine.until(async () => {
        const { partitions } = await engine.admin.describeTopic(engine.topic);
        return partitions.every(({ groups }) => groups.some(({ group }) => group === 'g'));
      });
      await engine.producer.send(engine.topic, 'new', { key: 'k' });
      await engine.until(() => engine.calls.length > 0);
      expect(engine.calls.map(({ payload }) => payload)).toEqual(['new']);
    },
  },
  {
    name: 'a delayed message comes when it is due, equal times in the order of sending',
    async run({ engine }) {
      await engine.start([{}]);
      const before = await engine.producer.send(engine.topic, 'now', { key: 'k' });
      await engine.until(() => engine.calls.length === 1);
      const at = engine.calls[0]!.at + 700;
      const sent = await engine.producer.send(engine.topic, 'later 1', { key: 'k', deliverAt: at });
      await engine.producer.send(engine.topic, 'later 2', { key: 'k', deliverAt: at });
      await engine.producer.send(engine.topic, 'soon', { key: 'k', delayMs: 300 });
      expect([before.id, sent.id]).toEqual([expect.any(String), null]);
      await engine.until(() => engine.calls.length === 4);
      expect(engine.calls.map(({ payload }) => payload)).toEqual(['now', 'soon', 'later 1', 'later 2']);
      expect(engine.calls[2]!.at).toBeGreaterThanOrEqual(at);
    },
  },
  {
    name: 'a repeated dedupId stores nothing again',
    async run({ engine }) {
      await engine.start([{}]);
      const first = await engine.producer.send(engine.topic, 1, { key: 'k', dedupId: 'd' });
      const second = await engine.producer.send(engine.topic, 2, { key: 'k', dedupId: 'd' });
      await engine.producer.send(engine.topic, 3, { key: 'k' });
      await engine.until(() => engine.calls.length === 2);
      expect(second).toMatchObject({ id: first.id, duplicate: true });
      expect(engine.calls.map(({ payload }) => payload)).toEqual([1, 3]);
    },
  },
  {
    name: 'a message that cannot be sent is refused, and a batch reports on each',
    async run({ engine }) {
      await engine.start([{}], { maxPayloadBytes: 100 });
      const large = 'x'.repeat(200);
      await expect(engine.producer.send(engine.topic, large)).rejects.toBeInstanceOf(MqInvalidMessageError);
      const batch = await engine.producer.sendBatch(engine.topic, [{ payload: 1 }, { payload: large }, { payload: 3 }]);
      expect(batch).toMatchObject({ sent: 2, failed: 1 });
      expect(batch.results.map(({ status }) => status)).toEqual(['sent', 'failed', 'sent']);
      await engine.until(() => engine.calls.length === 2);
      expect(engine.calls.map(({ payload }) => String(payload)).toSorted()).toEqual(['1', '3']);
    },
  },
  {
    name: 'a paused group handles nothing until it is resumed',
    async run({ engine }) {
      await engine.start([{ group: 'paused' }, { group: 'other' }]);
      await engine.producer.send(engine.topic, 0, { key: 'k' });
      await engine.until(() => engine.calls.length === 2);
      await engine.admin.pause(engine.topic, { group: 'paused' });
      await engine.producer.send(engine.topic, 1, { key: 'k' });
      await engine.until(() => engine.calls.length === 3);
      await engine.passes(700);
      expect(engine.calls.map(({ group }) => group).slice(2)).toEqual(['other']);
      await engine.admin.resume(engine.topic, { group: 'paused' });
      await engine.until(() => engine.calls.length === 4);
      expect(engine.calls[3]).toMatchObject({ group: 'paused', payload: 1 });
    },
  },
  {
    name: 'topics and groups are listed, described and looked for in all topics',
    async run({ engine }) {
      await engine.start([{}, { topic: `${engine.topic}.b`, group: 'other' }], { retryMaxAttempts: 1 });
      for (const n of range(3)) await engine.producer.send(engine.topic, n);
      await engine.until(() => engine.calls.length === 3);
      const { admin, topic, deadLetters } = engine;
      await engine.until(async () => (await admin.listTopics({ prefix: topic })).items.length === 2);
      const all = [topic, `${topic}.b`];
      expect((await admin.listTopics({ prefix: topic })).items.map((item) => item.topic)).toEqual(all);
      expect((await admin.listTopics({ prefix: `${topic}.b` })).items.map((item) => item.topic)).toEqual([all[1]]);
      const groups = (await admin.listGroups()).items.filter((item) => item.topic.startsWith(topic));
      expect(groups.map((item) => [item.topic, item.group])).toEqual([
        [topic, 'g'],
        [`${topic}.b`, 'other'],
      ]);
      await engine.until(async () => (await admin.describeGroup('g')).state === 'active');
      expect((await deadLetters.topics()).items.filter((item) => item.topic.startsWith(topic))).toEqual([]);
      const codeOf = (work: Promise<unknown>): Promise<unknown> =>
        work.then(
          () => 'resolved',
          (error: unknown) => (error as { code?: string }).code ?? error,
        );
      expect(await codeOf(admin.deleteGroup('g'))).toBe('MQ_GROUP_RUNNING');
      expect(await codeOf(admin.deleteGroup('nobody'))).toBe('MQ_GROUP_NOT_FOUND');
    },
  },
];
