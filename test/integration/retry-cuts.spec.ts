import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { moveRetries } from '../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { moveDelayed } from '../../libs/redis-streams-mq/src/redis/scripts/send.script.js';
import { dead, fail, settle } from '../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { useMq } from '../support/mq-fixture.js';
import { mentions } from '../support/tcp-proxy.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const group = 'g';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

let topic: string;
beforeEach(() => (topic = uniqueName('topic')));

const keys = (partition = 0) => mq.keys.groupPartition(topic, partition, group);

/** Everything is handled and nothing of the group waits anywhere, at one moment. */
const isDone = async (): Promise<boolean> => {
  const { stream, retryStream, retry } = keys();
  const replies = await mq.client.multi().xpending(stream, group).xlen(retryStream).zcard(retry).exec();
  const [[, summary], [, retryLength], [, bucket]] = replies as [[null, [number]], [null, number], [null, number]];
  return summary[0] + retryLength + bucket === 0;
};

describe('a broken connection', () => {
  /** Fails on each message until `attempts` calls were made, then succeeds. */
  async function through(attempts: number, payloads: readonly unknown[], sha: string) {
    const proxy = await mq.proxy();
    const instance = await mq.open({ redis: proxy.url, failFast: true, defaultPartitionCount: 1, retryMaxAttempts: 3 });
    const calls = new Map<string, ReceivedMessage[]>();
    await instance.start({
      topic,
      group,
      handle: (message) => {
        const { eventId, attempt } = message.context;
        calls.set(eventId, [...(calls.get(eventId) ?? []), message]);
        if (attempt < attempts) throw new Error('not yet');
      },
    });
    // Now the server knows every script that is needed.
    const warm = await instance.producer.send(topic, 'warm');
    const ended = async (): Promise<boolean> =>
      (await isDone()) || (attempts > 3 && (await instance.runtime.deadLetters.size(topic)) > 0);
    await waitFor(async () => calls.get(warm.eventId)?.length === Math.min(attempts, 3) && (await ended()));
    if (attempts > 3) await instance.runtime.deadLetters.clear(topic);
    calls.clear();
    const lost = proxy.dropNextReplyMatching(mentions(sha));
    const { results } = await instance.producer.sendBatch(
      topic,
      payloads.map((payload) => ({ payload })),
    );
    await lost;
    return { instance, calls, eventIds: results.map((result) => (result.status === 'sent' ? result.eventId : '')) };
  }

  it.each([
    ['when a failed message is put into the bucket', fail.sha],
    ['when the mover puts it back', moveRetries.sha],
    ['when it is acknowledged', settle.sha],
  ])('DEL-13 %s: handled to the end, with no attempt counted twice', async (_, sha) => {
    const { calls, eventIds } = await through(3, range(5), sha);
    await waitFor(async () => eventIds.every((id) => (calls.get(id)?.length ?? 0) >= 3) && (await isDone()));
    for (const eventId of eventIds) {
      expect(calls.get(eventId)!.map(({ context }) => context.attempt)).toEqual([1, 2, 3]);
    }
  });

  it('DEL-13 when it becomes a dead letter: one letter, and nothing left pending', async () => {
    const { instance, calls, eventIds } = await through(4, range(5), dead.sha);
    const { deadLetters } = instance.runtime;
    await waitFor(async () => (await deadLetters.size(topic)) >= 5 && (await isDone()));
    const letters = (await deadLetters.list(topic)).items;
    expect(letters.map(({ eventId }) => eventId!).toSorted()).toEqual(eventIds.toSorted());
    for (const eventId of eventIds) expect(calls.get(eventId)).toHaveLength(3);
  });

  it('DEL-13 when a delayed message is moved: delivered once', async () => {
    const proxy = await mq.proxy();
    const instance = await mq.open({ redis: proxy.url, failFast: true, defaultPartitionCount: 1 });
    const seen: unknown[] = [];
    await instance.start({ topic, group, handle: ({ payload }) => void seen.push(payload) });
    await instance.producer.send(topic, 'warm', { delayMs: 1 });
    await waitFor(() => seen.length === 1);
    const lost = proxy.dropNextReplyMatching(mentions(moveDelayed.sha));
    await instance.producer.send(topic, 'x', { delayMs: 1 });
    await lost;
    await instance.producer.send(topic, 'after', { delayMs: 1 });
    await waitFor(async () => seen.includes('after') && (await isDone()));
    expect(seen).toEqual(['warm', 'x', 'after']);
  });

  it.each(['request', 'reply'] as const)(
    'DEL-13 at the %s of each command that follows a failure, one after the other: nothing lost, no attempt counted twice',
    async (what) => {
      const proxy = await mq.proxy();
      const instance = await mq.open({
        redis: proxy.url,
        failFast: true,
        defaultPartitionCount: 1,
        retryMaxAttempts: 3,
        retryBaseBackoffMs: 1,
        retryMaxBackoffMs: 1,
      });
      const calls = new Map<string, ReceivedMessage['context'][]>();
      let onFailure: (() => void) | undefined;
      await instance.start({
        topic,
        group,
        handle: ({ payload, context }) => {
          const name = payload as string;
          calls.set(name, [...(calls.get(name) ?? []), context]);
          if (context.attempt === 3 && name.startsWith('good')) return;
          onFailure?.();
          onFailure = undefined;
          throw new Error('not yet');
        },
      });
      const producer = await mq.open({ defaultPartitionCount: 1 });
      const { deadLetters } = producer.runtime;
      const attempts = (name: string): number[] => (calls.get(name) ?? []).map(({ attempt }) => attempt);
      await producer.producer.send(topic, 'good warm');
      await waitFor(async () => attempts('good warm').length === 3 && (await isDone()));
      for (let boundary = 1; boundary <= 12; boundary++) {
        const names = [`good ${boundary}`, `bad ${boundary}`];
        let passed = 0;
        let cut: Promise<void> | undefined;
        onFailure = () => {
          const isIt = (): boolean => ++passed === boundary;
          cut = what === 'request' ? proxy.dropNextRequestMatching(isIt) : proxy.dropNextReplyMatching(isIt);
        };
        for (const name of names) await producer.producer.send(topic, name);
        await waitFor(() => cut !== undefined);
        await waitFor(async () => (await deadLetters.size(topic)) === boundary && (await isDone()), {
          describe: `the end of both with a cut at ${what} ${boundary}`,
        });
        await cut;
        for (const name of names) {
          expect([name, ...new Set(attempts(name))]).toEqual([name, 1, 2, 3]);
          // The promise is at least once.
          expect(attempts(name).length).toBeLessThanOrEqual(4);
          expect(new Set(calls.get(name)!.map(({ eventId }) => eventId)).size).toBe(1);
        }
      }
    },
  );

  it('DEL-13 connections that break again and again while messages fail: each is handled to the end', async () => {
    const proxy = await mq.proxy();
    const instance = await mq.open({
      redis: proxy.url,
      failFast: true,
      defaultPartitionCount: 1,
      retryMaxAttempts: 10,
    });
    const done = new Map<unknown, number>();
    let calls = 0;
    await instance.start({
      topic,
      group,
      handle: ({ payload, context }) => {
        if (++calls % 10 === 0 && calls <= 100) proxy.cutAll();
        if (context.attempt < 3) throw new Error('not yet');
        done.set(payload, (done.get(payload) ?? 0) + 1);
      },
    });
    const producer = await mq.open({ defaultPartitionCount: 1 });
    await producer.producer.sendBatch(
      topic,
      range(40).map((payload) => ({ payload })),
    );
    await waitFor(async () => done.size === 40 && (await isDone()), { timeoutMs: 25_000 });
    expect(calls).toBeGreaterThanOrEqual(120);
    // The promise is at least once.
    for (const count of done.values()) expect(count).toBeLessThanOrEqual(2);
    await expect(producer.runtime.deadLetters.size(topic)).resolves.toBe(0);
  });
});
