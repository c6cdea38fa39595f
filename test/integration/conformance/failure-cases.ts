import { UseGuards, UseInterceptors, UsePipes } from '@nestjs/common';
import { DeadLetter, MessageHandleResult, RetryLater } from 'nestjs-redis-streams-mq';
import { tap } from 'rxjs';
import { deferred } from '../../support/wait-for.js';
import type { ConformanceCase } from './conformance-case.js';

const fail = (message = 'no'): never => {
  throw new Error(message);
};

/** Retries, dead letters and their replay, and the stages of the pipeline. */
export const failureCases: readonly ConformanceCase[] = [
  {
    name: 'a failure is retried with growing pauses, then it is dead',
    async run({ engine }) {
      await engine.start([{ handle: () => fail('boom') }]);
      const sent = await engine.producer.send(engine.topic, 1, { key: 'k' });
      await engine.until(async () => (await engine.letters()).length === 1);
      expect(engine.calls.map(({ ctx }) => ctx.attempt)).toEqual([1, 2, 3]);
      expect(new Set(engine.calls.map(({ ctx }) => `${ctx.eventId} ${ctx.id}`)).size).toBe(1);
      const [first, second, third] = engine.calls.map(({ at }) => at) as [number, number, number];
      // From half of the pause to all of it; a ms for rounding.
      expect(second - first).toBeGreaterThanOrEqual(49);
      expect(third - second).toBeGreaterThanOrEqual(99);
      expect((await engine.letters())[0]).toMatchObject({
        reason: 'exhausted',
        attempts: 3,
        group: 'g',
        key: 'k',
        eventId: sent.eventId,
        originalMessageId: sent.id,
        error: { name: 'Error', message: 'boom' },
      });
      await engine.passes(500);
      expect(engine.calls).toHaveLength(3);
    },
  },
  {
    name: 'others pass a message that waits for its retry',
    async run({ engine }) {
      await engine.start([{ handle: (n, { attempt }) => (n === 0 && attempt === 1 ? fail() : undefined) }]);
      for (const n of [0, 1, 2]) await engine.producer.send(engine.topic, n, { key: 'k' });
      await engine.until(() => engine.calls.length === 4);
      expect(engine.calls.map(({ payload }) => payload)).toEqual([0, 1, 2, 0]);
    },
  },
  {
    name: 'what the handler returns or throws decides',
    async run({ engine }) {
      const { SUCCESS, RETRY, FAIL, DEAD_LETTER } = MessageHandleResult;
      const results: Record<string, unknown> = { SUCCESS, RETRY, FAIL, DEAD_LETTER, text: 'RETRY' };
      await engine.start([{ handle: (name, { attempt }) => (attempt === 1 ? results[name as string] : undefined) }]);
      for (const name of Object.keys(results)) await engine.producer.send(engine.topic, name, { key: name });
      await engine.until(() => engine.calls.length === 6);
      await engine.until(async () => (await engine.letters()).length === 2);
      const count = (name: string): number => engine.calls.filter(({ payload }) => payload === name).length;
      expect(Object.keys(results).map(count)).toEqual([1, 2, 1, 1, 1]);
      expect((await engine.letters()).map(({ reason, attempts }) => [reason, attempts])).toEqual([
        ['rejected', 1],
        ['rejected', 1],
      ]);
    },
  },
  {
    name: 'DeadLetter is dead at once, with its reason',
    async run({ engine }) {
      await engine.start([
        {
          handle: () => {
            throw new DeadLetter('no such customer');
          },
        },
      ]);
      await engine.producer.send(engine.topic, 1);
      await engine.until(async () => (await engine.letters()).length === 1);
      expect(engine.calls).toHaveLength(1);
      expect((await engine.letters())[0]).toMatchObject({
        reason: 'rejected',
        attempts: 1,
        error: { message: 'no such customer' },
      });
    },
  },
  {
    name: 'RetryLater comes after the time it names',
    async run({ engine }) {
      await engine.start([
        {
          handle: (_, { attempt }) => {
            if (attempt === 1) throw new RetryLater(900);
          },
        },
      ]);
      await engine.producer.send(engine.topic, 1);
      await engine.until(() => engine.calls.length === 2);
      expect(engine.calls[1]!.at - engine.calls[0]!.at).toBeGreaterThanOrEqual(899);
    },
  },
  {
    name: 'the retry options of a handler go before those of the module',
    async run({ engine }) {
      const retry = {
        maxAttempts: 2,
        backoff: () => 250,
        retryIf: (error: unknown) => (error as Error).message !== 'final',
      };
      await engine.start([{ options: { retry }, handle: (message) => fail(message as string) }]);
      await engine.producer.send(engine.topic, 'final', { key: 'a' });
      await engine.producer.send(engine.topic, 'again', { key: 'b' });
      await engine.until(async () => (await engine.letters()).length === 2);
      const letters = (await engine.letters()).map(
        ({ error, reason, attempts }) => `${error?.message} ${reason} ${attempts}`,
      );
      expect(letters.toSorted()).toEqual(['again exhausted 2', 'final rejected 1']);
      const [first, second] = engine.calls.filter(({ payload }) => payload === 'again');
      expect(second!.at - first!.at).toBeGreaterThanOrEqual(249);
    },
  },
  {
    name: 'a handler over its time hears it, has failed, and is waited for',
    async run({ engine }) {
      const ended = deferred();
      await engine.start([
        {
          options: { handlerTimeoutMs: 300 },
          handle: (n, { attempt }) => (n === 0 && attempt === 1 ? ended.promise : undefined),
        },
      ]);
      await engine.producer.send(engine.topic, 0, { key: 'k' });
      await engine.producer.send(engine.topic, 1, { key: 'k' });
      await engine.until(() => engine.calls.length === 1);
      const { signal } = engine.calls[0]!.ctx;
      expect(signal.aborted).toBe(false);
      await engine.until(() => signal.aborted);
      await engine.passes(300);
      expect(engine.calls).toHaveLength(1);
      ended.resolve();
      await engine.until(() => engine.calls.length === 3);
      expect(engine.calls.filter(({ payload }) => payload === 0).map(({ ctx }) => ctx.attempt)).toEqual([1, 2]);
    },
  },
  {
    name: 'a pipe that refuses is validation, a guard that denies is rejected, and the handler is not called',
    async run({ engine }) {
      const pipe = { transform: (value: unknown) => (value === 'bad' ? fail('not valid') : value) };
      const guard = {
        canActivate: (host: { getArgByIndex: (i: number) => unknown }) => host.getArgByIndex(0) !== 'secret',
      };
      await engine.start([{ enhancers: [UsePipes(pipe), UseGuards(guard as never)] }]);
      for (const text of ['good', 'bad', 'secret']) await engine.producer.send(engine.topic, text, { key: text });
      await engine.until(async () => (await engine.letters()).length === 2);
      await engine.until(() => engine.calls.length === 1);
      expect(engine.calls[0]!.payload).toBe('good');
      const letters = (await engine.letters()).map(
        ({ reason, attempts, payload }) => `${reason} ${attempts} ${payload?.toString()}`,
      );
      expect(letters.toSorted()).toEqual(['rejected 1 "secret"', 'validation 1 "bad"']);
    },
  },
  {
    name: 'an interceptor is around the handler',
    async run({ engine }) {
      const seen: string[] = [];
      const interceptor = {
        intercept: (_: unknown, next: { handle: () => import('rxjs').Observable<unknown> }) => {
          seen.push('before');
          return next.handle().pipe(tap(() => void seen.push('after')));
        },
      };
      await engine.start([
        { enhancers: [UseInterceptors(interceptor as never)], handle: () => void seen.push('handler') },
      ]);
      await engine.producer.send(engine.topic, 1);
      await engine.until(() => seen.length === 3);
      expect(seen).toEqual(['before', 'handler', 'after']);
    },
  },
  {
    name: 'a message past its time to live is dead as expired, and one that cannot be read as malformed',
    async run({ engine }) {
      const release = deferred();
      await engine.start([{ handle: (n) => (n === 'first' ? release.promise : undefined) }]);
      await engine.producer.send(engine.topic, 'first', { partition: 0 });
      await engine.until(() => engine.calls.length === 1);
      await engine.producer.send(engine.topic, 'short-lived', { partition: 0, ttlMs: 200 });
      await engine.inject(0, ['some', 'thing']).catch(() => undefined);
      await engine.passes(400);
      release.resolve();
      await engine.until(async () => (await engine.letters()).length === 2);
      const letters = await engine.letters();
      expect(letters.map(({ reason, attempts }) => `${reason} ${attempts}`).toSorted()).toEqual([
        'expired 0',
        'malformed 0',
      ]);
      expect(engine.calls).toHaveLength(1);
    },
  },
  {
    name: 'a replayed dead letter comes to its own group alone, with its event id and attempts anew',
    async run({ engine }) {
      let isMended = false;
      const handle = (): void => (isMended ? undefined : fail());
      await engine.start([
        { group: 'one', handle },
        { group: 'two', handle },
      ]);
      const sent = await engine.producer.send(engine.topic, { id: 1 }, { key: 'k', headers: { h: 'v' } });
      await engine.until(async () => (await engine.letters()).length === 2);
      const before = engine.calls.length;
      isMended = true;
      const [letter] = await engine.letters('one');
      expect(await engine.deadLetters.replay(engine.topic, letter!.id)).toBe(true);
      expect(await engine.deadLetters.replay(engine.topic, letter!.id)).toBe(false);
      await engine.until(() => engine.calls.length === before + 1);
      await engine.passes(300);
      expect(engine.calls).toHaveLength(before + 1);
      expect(engine.calls.at(-1)).toMatchObject({
        group: 'one',
        payload: { id: 1 },
        ctx: { eventId: sent.eventId, id: sent.id, attempt: 1, key: 'k' },
      });
      expect(await engine.letters('one')).toEqual([]);
      expect(await engine.deadLetters.size(engine.topic, { group: 'two' })).toBe(1);
      expect(await engine.deadLetters.clear(engine.topic)).toBe(1);
      expect(await engine.letters()).toEqual([]);
    },
  },
  {
    name: 'a message on which three processes die is set aside, and the next is handled',
    async run({ engine }) {
      const never = deferred();
      await engine.start([{ handle: (n) => (n === 'poison' ? never.promise : undefined) }]);
      await engine.producer.send(engine.topic, 'poison', { key: 'k' });
      await engine.producer.send(engine.topic, 'good', { key: 'k' });
      for (let crashes = 1; crashes <= 4 && (await engine.letters()).length === 0; crashes++) {
        await engine.until(async () => engine.calls.length === crashes || (await engine.letters()).length > 0);
        if ((await engine.letters()).length === 0) await engine.crash();
      }
      await engine.until(() => engine.calls.some(({ payload }) => payload === 'good'));
      expect((await engine.letters())[0]).toMatchObject({ reason: 'crash-loop', attempts: 0 });
      never.resolve();
    },
  },
  {
    name: 'retries and dead letters outlive a crash',
    async run({ engine }) {
      let isMended = false;
      await engine.start([
        {
          handle: (n) => {
            if (n === 'dead') throw new DeadLetter('no');
            if (!isMended) throw new RetryLater(1_000);
          },
        },
      ]);
      await engine.producer.send(engine.topic, 'dead', { key: 'k' });
      await engine.producer.send(engine.topic, 'later', { key: 'k' });
      await engine.until(async () => engine.calls.length === 2 && (await engine.letters()).length === 1);
      await engine.idle();
      isMended = true;
      await engine.crash();
      await engine.until(() => engine.calls.length === 3);
      expect(engine.calls[2]).toMatchObject({ payload: 'later', ctx: { attempt: 2 } });
      expect(engine.calls[2]!.at - engine.calls[1]!.at).toBeGreaterThanOrEqual(999);
      expect(await engine.letters()).toHaveLength(1);
    },
  },
];
