import { MessageHandleResult } from 'nestjs-redis-streams-mq';
import { deferred } from '../../support/wait-for.js';
import type { ConformanceCase } from './conformance-case.js';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** What runs at once, and what waits for what. */
export const orderCases: readonly ConformanceCase[] = [
  {
    name: 'with concurrency, keys run at once and each key in order',
    async run({ engine }) {
      const release = deferred();
      let running = 0;
      let most = 0;
      await engine.start([
        {
          options: { concurrency: 4, ordering: 'key' },
          handle: async () => {
            most = Math.max(most, ++running);
            await release.promise;
            running--;
          },
        },
      ]);
      for (const n of range(12)) await engine.producer.send(engine.topic, n, { key: `key ${n % 3}`, partition: 0 });
      await engine.until(() => running === 3);
      await engine.idle();
      expect([running, most]).toEqual([3, 3]);
      release.resolve();
      await engine.until(() => engine.calls.length === 12);
      for (const key of range(3)) {
        const got = engine.calls.filter(({ ctx }) => ctx.key === `key ${key}`).map(({ payload }) => payload);
        expect(got).toEqual(range(4).map((n) => n * 3 + key));
      }
    },
  },
  {
    name: 'with retryOrdering key, what is behind a failed message of its key waits, others pass, also through a crash',
    async run({ engine }) {
      let failures = 0;
      await engine.start([
        {
          options: { retryOrdering: 'key', retry: { backoff: () => 1_500, maxAttempts: 5 } },
          handle: (n) => {
            if (n === 0 && failures++ === 0) throw new Error('once more');
          },
        },
      ]);
      for (const n of range(3)) await engine.producer.send(engine.topic, n, { key: 'a', partition: 0 });
      await engine.producer.send(engine.topic, 'other', { key: 'b', partition: 0 });
      await engine.until(() => engine.calls.some(({ payload }) => payload === 'other'));
      await engine.idle();
      expect(engine.calls.map(({ payload }) => payload)).toEqual([0, 'other']);
      await engine.crash();
      await engine.until(() => engine.calls.filter(({ ctx }) => ctx.key === 'a').length === 4);
      const ofKey = engine.calls.filter(({ ctx }) => ctx.key === 'a');
      expect(ofKey.map(({ payload }) => payload)).toEqual([0, 0, 1, 2]);
      expect(ofKey.map(({ ctx }) => ctx.attempt)).toEqual([1, 2, 1, 1]);
      expect(ofKey[1]!.at - ofKey[0]!.at).toBeGreaterThanOrEqual(1_499);
    },
  },
  {
    name: 'a batch is handed over when it is full, or with fewer after waitMs; what failed alone comes again, with its attempts',
    async run({ engine }) {
      await engine.start([
        {
          options: { batch: { size: 3, waitMs: 1_000 }, retry: { backoff: () => 500, maxAttempts: 2 } },
          handle: (payloads) => (payloads as number[]).map((n) => (n === 1 ? MessageHandleResult.RETRY : undefined)),
        },
      ]);
      for (const n of range(4)) await engine.producer.send(engine.topic, n, { partition: 0 });
      await engine.until(() => engine.calls.length === 1);
      expect(engine.calls[0]!.payload).toEqual([0, 1, 2]);
      await engine.until(async () => (await engine.letters()).length === 1);
      const [letter] = await engine.letters();
      expect(letter).toMatchObject({ reason: 'exhausted', attempts: 2 });
      const later = engine.calls.slice(1).flatMap(({ payload }) => payload as number[]);
      expect(later).toHaveLength(2);
      expect(new Set(later)).toEqual(new Set([1, 3]));
      expect(engine.calls[1]!.at - engine.calls[0]!.at).toBeGreaterThanOrEqual(400);
    },
  },
  {
    name: 'a range of messages is replayed to one group, and a position is reset while it is paused',
    async run({ engine }) {
      await engine.start([{ group: 'one' }, { group: 'two' }]);
      for (const n of range(3)) await engine.producer.send(engine.topic, n, { key: 'k' });
      await engine.until(() => engine.calls.length === 6);
      await engine.idle();
      await engine.admin.replayRange(engine.topic, 'one');
      await engine.until(() => engine.calls.length === 9);
      expect(engine.calls.slice(6).map(({ group, payload }) => `${group} ${String(payload)}`)).toEqual([
        'one 0',
        'one 1',
        'one 2',
      ]);
      await engine.idle();
      await engine.admin.pause(engine.topic, { group: 'two' });
      await engine.admin.resetPosition(engine.topic, 'two', 'earliest');
      await engine.admin.resume(engine.topic, { group: 'two' });
      await engine.until(() => engine.calls.length === 12);
      expect(engine.calls.slice(9).map(({ group, payload }) => `${group} ${String(payload)}`)).toEqual([
        'two 0',
        'two 1',
        'two 2',
      ]);
    },
  },
];
