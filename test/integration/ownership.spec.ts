import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { renew } from '../../libs/redis-streams-mq/src/redis/scripts/lease.script.js';
import { blockedReader } from '../support/blocked-reader.js';
import { TestInstance, type TestHandler } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { mentions, startProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait-for.js';

const keys = new Keys('streaming:mq', 'stream:topic');
const ignore = (): void => undefined;

/** Timers that come too late to do what announcements should. */
const unhurried: MqOptions = { rebalanceIntervalSec: 30 };

let redis: TestRedis;
let raw: Redis;
let group: string;
/** Hears of every change of a lease, whoever's it is. */
let onLease: (name: string, lease: { topic: string; partition: number; epoch: number }) => void;
const open: Member[] = [];

beforeAll(async () => {
  redis = await startRedis();
  raw = redis.client();
});
afterAll(() => redis.stop());
beforeEach(() => {
  group = uniqueName('group');
  onLease = ignore;
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((member) => member.instance.close()));
});

/** An instance, and what it said about its leases. */
class Member {
  private constructor(
    readonly name: string,
    readonly instance: TestInstance,
    readonly log: EventLog,
  ) {}

  static async open(name: string, options: MqOptions = {}): Promise<Member> {
    const instance = await TestInstance.open({ redis: redis.url, rebalanceIntervalSec: 0.2, ...options });
    const { events } = instance.runtime;
    const log = EventLog.of(
      events,
      'leaseAcquired',
      'leaseReleased',
      'leaseLost',
      'ledgerRepaired',
      'warning',
      'fault',
    );
    for (const event of ['leaseAcquired', 'leaseReleased'] as const) events.on(event, (lease) => onLease(event, lease));
    const member = new Member(name, instance, log);
    open.push(member);
    return member;
  }

  get owned(): number {
    return this.log.count('leaseAcquired') - this.log.count('leaseReleased') - this.log.count('leaseLost');
  }

  async handle(...handlers: Omit<TestHandler, 'group'>[]): Promise<this> {
    await this.instance.start(...handlers.map((handler) => ({ group, ...handler })));
    return this;
  }

  close(): Promise<void> {
    return this.instance.close();
  }
}

/** Instance by partition, as Redis has it. */
async function owners(topic: string, partitions = 4): Promise<(string | null)[]> {
  const leases = Array.from({ length: partitions }, (_, p) => keys.groupPartition(topic, p, group).lease);
  return (await raw.mget(leases)).map((token) => token && token.slice(0, token.lastIndexOf('#')));
}

/** How many partitions each owner has; empty while some partition has none. */
function shares(all: readonly (string | null)[]): number[] {
  if (all.includes(null)) return [];
  const counts = new Map<string, number>();
  for (const owner of all as string[]) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  return [...counts.values()].sort((a, b) => a - b);
}

/** Resolves when every member has looked `looks` times at who owns what. */
async function afterLooks(looks: number): Promise<void> {
  const { members } = keys.members(group);
  const seen = new Map<string, Set<string>>();
  await waitFor(async () => {
    const flat = await raw.zrange(members, '0', '-1', 'WITHSCORES');
    for (let i = 0; i < flat.length; i += 2) {
      seen.set(flat[i]!, (seen.get(flat[i]!) ?? new Set()).add(flat[i + 1]!));
    }
    return seen.size > 0 && [...seen.values()].every((scores) => scores.size > looks);
  });
}

/** Sends `count` messages with 20 keys, some at a time, and tells how far it is. */
function flow(producer: TestInstance['producer'], topic: string, count: number, pauseMs: number) {
  const progress = { sent: 0, done: Promise.resolve() };
  progress.done = (async () => {
    while (progress.sent < count) {
      const messages = Array.from({ length: Math.min(40, count - progress.sent) }, () => {
        const n = progress.sent++;
        return { payload: { n }, key: `key-${n % 20}` };
      });
      expect((await producer.sendBatch(topic, messages)).failed).toBe(0);
      await sleep(pauseMs);
    }
  })();
  return progress;
}

/** How long each partition that changes hands from now on had no owner, in milliseconds, by its name and its new epoch. */
function timeHandOvers(): Map<string, number> {
  const took = new Map<string, number>();
  const releasedAt = new Map<string, number>();
  onLease = (name, { topic, partition, epoch }) => {
    const id = `${topic}:${partition}`;
    const since = releasedAt.get(id);
    if (name === 'leaseReleased') releasedAt.set(id, performance.now());
    else if (since !== undefined) took.set(`${id}#${epoch}`, performance.now() - since);
  };
  return took;
}

function expectOnceAndInOrder(record: HandlingRecord): void {
  expect(record.repeated).toEqual([]);
  expect(record.overlaps).toEqual([]);
  expect(record.disorder).toEqual([]);
}

describe('ownership', () => {
  it('is of one instance when there is one', async () => {
    const topic = uniqueName('topic');
    const a = await (await Member.open('a')).handle({ topic, handle: ignore });
    await waitFor(() => a.owned === 4);
    expect(shares(await owners(topic))).toEqual([4]);
  });

  it('gives a second instance its share within a second, and nothing is handled twice while 2,000 messages flow (I1, I2, I3)', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const work = (): Promise<void> => sleep(1);
    const a = await (await Member.open('a', unhurried)).handle({ topic, handle: record.handler('a', work) });
    await waitFor(() => a.owned === 4);
    const b = await Member.open('b', unhurried);
    const progress = flow(a.instance.producer, topic, 2_000, 20);
    await waitFor(() => record.handled > 400);
    const joinedAt = performance.now();
    await b.handle({ topic, handle: record.handler('b', work) });
    await waitFor(() => b.owned === 2 && a.owned === 2);
    expect(performance.now() - joinedAt).toBeLessThan(1_000);
    expect(progress.sent).toBeLessThan(2_000);
    await progress.done;
    await waitFor(() => record.handled === 2_000);
    await waitFor(() => record.calls.every((call) => call.endedAt));
    expectOnceAndInOrder(record);
    expect(record.by('b').length).toBeGreaterThan(100);
    expect(a.log.count('ledgerRepaired') + b.log.count('ledgerRepaired')).toBe(0);
  });

  it('moves with hardly a pause and without a repetition when a third joins and the second leaves', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const start = async (name: string): Promise<Member> =>
      (await Member.open(name, unhurried)).handle({ topic, handle: record.handler(name, () => sleep(1)) });
    const [a, b] = [await start('a'), await start('b')];
    await waitFor(() => a.owned === 2 && b.owned === 2);
    const handOvers = timeHandOvers();
    const progress = flow(a.instance.producer, topic, 3_200, 20);
    await waitFor(() => record.handled > 300);
    const c = await start('c');
    await waitFor(() => c.owned === 1 && a.owned + b.owned === 3);
    const handledAtJoin = record.handled;
    await waitFor(() => record.handled > handledAtJoin + 300);
    await b.close();
    await waitFor(() => a.owned === 2 && c.owned === 2);
    expect(progress.sent).toBeLessThan(3_200);
    await progress.done;
    await waitFor(() => record.handled === 3_200);
    await waitFor(() => record.calls.every((call) => call.endedAt));
    expectOnceAndInOrder(record);
    expect(handOvers.size).toBeGreaterThanOrEqual(2);
    // The timers that stand in for a lost announcement are half a second.
    expect(Math.max(...handOvers.values())).toBeLessThan(400);
    for (const partition of [0, 1, 2, 3]) expect(record.longestPause(partition)).toBeLessThan(1_000);
  });

  it('waits at a hand-over for the handler that runs, and the heir begins behind it (I3)', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const work = (): Promise<void> => sleep(1_200);
    const a = await (
      await Member.open('a', { defaultPartitionCount: 2 })
    ).handle({ topic, handle: record.handler('a', work) });
    await waitFor(() => a.owned === 2);
    for (let n = 0; n < 6; n++) await a.instance.producer.send(topic, { n }, { partition: n % 2 });
    await waitFor(() => record.calls.length === 2);
    const b = await (await Member.open('b')).handle({ topic, handle: record.handler('b', work) });
    await waitFor(() => b.owned === 1);
    await waitFor(() => record.handled === 6 && record.calls.every((call) => call.endedAt));
    expectOnceAndInOrder(record);
    expect(record.by('b').length).toBeGreaterThanOrEqual(1);
  });

  it('DEL-10 is spread over two topics within one partition, through joins, a leave and a return, and then rests', async () => {
    const [first, second] = [uniqueName('topic'), uniqueName('topic')];
    const start = async (name: string): Promise<Member> =>
      // A lease that a starved machine does not lose: only joins and leaves may move anything here.
      (await Member.open(name, { leaseTtlSeconds: 10 })).handle(
        { topic: first, handle: ignore },
        { topic: second, handle: ignore },
      );
    const spread = async (): Promise<number[]> => shares([...(await owners(first)), ...(await owners(second))]);
    const settles = (expected: number[]): Promise<unknown> =>
      waitFor(async () => JSON.stringify(await spread()) === JSON.stringify(expected), {
        describe: `the shares ${expected.join()}`,
      });

    await start('1');
    await settles([8]);
    const two = await start('2');
    await settles([4, 4]);
    await start('3');
    await settles([2, 3, 3]);
    await two.close();
    await settles([4, 4]);
    await start('2 again');
    await settles([2, 3, 3]);
    const before = open.map((member) => member.log.count('leaseAcquired'));
    await afterLooks(4);
    expect(await spread()).toEqual([2, 3, 3]);
    expect(open.map((member) => member.log.count('leaseAcquired'))).toEqual(before);
  });

  it('DEL-10 is spread over many topics of one partition', async () => {
    const topics = Array.from({ length: 10 }, () => uniqueName('topic'));
    for (const name of ['1', '2', '3']) {
      const member = await Member.open(name, { defaultPartitionCount: 1 });
      await member.handle(...topics.map((topic) => ({ topic, handle: ignore })));
    }
    await waitFor(async () => {
      const all = await Promise.all(topics.map((topic) => owners(topic, 1)));
      return JSON.stringify(shares(all.flat())) === '[3,3,4]';
    });
  });

  it('DEL-09 moves only what must move when an instance comes, and only its share when it goes', async () => {
    const topic = uniqueName('topic');
    const options = { defaultPartitionCount: 12 };
    const members: Member[] = [];
    for (const name of ['1', '2', '3'])
      members.push(await (await Member.open(name, options)).handle({ topic, handle: ignore }));
    await afterLooks(2);
    const moves = (): number => open.reduce((sum, member) => sum + member.log.count('leaseAcquired'), 0);
    const settles = (...expected: number[]): Promise<unknown> =>
      waitFor(
        () =>
          open
            .map((member) => member.owned)
            .filter(Boolean)
            .join() === expected.join(),
      );
    await settles(4, 4, 4);
    for (let round = 0; round < 3; round++) {
      const before = moves();
      const flapping = await (await Member.open('4', options)).handle({ topic, handle: ignore });
      await settles(3, 3, 3, 3);
      expect(moves() - before).toBe(3);
      await flapping.close();
      await settles(4, 4, 4);
      expect(moves() - before).toBe(6);
    }
  });

  it('keeps to the caps of the members', async () => {
    const topic = uniqueName('topic');
    const capped = await (
      await Member.open('capped', { maxLeasedPartitionsPerConsumer: 1 })
    ).handle({ topic, handle: ignore });
    const other = await (await Member.open('other')).handle({ topic, handle: ignore });
    await waitFor(() => capped.owned === 1 && other.owned === 3);
    await afterLooks(3);
    expect([capped.owned, other.owned]).toEqual([1, 3]);
  });

  it('exceeds the caps, with a warning, rather than leave a partition unread', async () => {
    const topic = uniqueName('topic');
    const options = { maxLeasedPartitionsPerConsumer: 1 };
    const a = await (await Member.open('a', options)).handle({ topic, handle: ignore });
    await waitFor(() => a.owned === 4);
    expect(a.log.all('warning').map(({ message }) => message)).toEqual([
      'partitions are taken over maxLeasedPartitionsPerConsumer, since no other member can take them',
    ]);
    const b = await (await Member.open('b', options)).handle({ topic, handle: ignore });
    await waitFor(() => a.owned === 2 && b.owned === 2);
  });

  it('is confined to the share that partitionModulo and partitionRemainder name', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const half = (name: string, partitionRemainder: number) => ({
      topic,
      handle: record.handler(name),
      options: { partitionModulo: 2, partitionRemainder },
    });
    const even = await (await Member.open('even')).handle(half('even', 0));
    const odd = await (await Member.open('odd')).handle(half('odd', 1));
    await waitFor(() => even.owned === 2 && odd.owned === 2);
    for (let n = 0; n < 40; n++) await even.instance.producer.send(topic, { n }, { partition: n % 4 });
    await waitFor(() => record.handled === 40);
    expect(new Set(record.by('even').map((call) => call.partition))).toEqual(new Set([0, 2]));
    expect(new Set(record.by('odd').map((call) => call.partition))).toEqual(new Set([1, 3]));
    await odd.close();
    await afterLooks(3);
    expect(even.owned).toBe(2);
    expect((await owners(topic)).map((owner) => owner !== null)).toEqual([true, false, true, false]);
  });

  it('reads every partition as soon as it owns it, however long its reads may wait', async () => {
    for (let round = 0; round < 5; round++) {
      const topic = uniqueName('topic');
      const record = new HandlingRecord();
      const options = { defaultPartitionCount: 8, consumerPollTimeoutMs: 5_000 };
      const member = await (await Member.open('a', options)).handle({ topic, handle: record.handler('a') });
      await waitFor(() => member.owned === 8);
      // To one alone: a message for any other partition would end the read that leaves this one out.
      await member.instance.producer.send(topic, { n: 0 }, { partition: 7 - round });
      await waitFor(() => record.handled === 1, { timeoutMs: 1_500, describe: `partition ${7 - round} to be read` });
      await member.close();
    }
  });

  it('DEL-08 is told apart by instance, though these are of one process and of one name', async () => {
    const topic = uniqueName('topic');
    const options = { consumerNamePrefix: 'same-', defaultPartitionCount: 2 };
    const a = await (await Member.open('a', options)).handle({ topic, handle: ignore });
    const b = await (await Member.open('b', options)).handle({ topic, handle: ignore });
    await waitFor(() => a.owned === 1 && b.owned === 1);
    const [first, second] = await owners(topic, 2);
    expect(first).toMatch(/^same-/);
    expect(second).toMatch(/^same-/);
    expect(first).not.toBe(second);
  });
});

describe('leases', () => {
  it('have epochs that grow with every ownership, also when their keys are gone', async () => {
    const topic = uniqueName('topic');
    const { epoch } = keys.groupPartition(topic, 0, group);
    const epochs: number[] = [];
    const handle = ({ context }: { context: { epoch: number } }): void => void epochs.push(context.epoch);
    for (let round = 0; round < 4; round++) {
      const member = await (await Member.open('a', { defaultPartitionCount: 1 })).handle({ topic, handle });
      await member.instance.producer.send(topic, { n: round });
      await waitFor(() => epochs.length === round + 1);
      await member.close();
      expect(member.log.all('leaseAcquired')).toEqual([expect.objectContaining({ epoch: epochs.at(-1) })]);
      if (round === 2) await raw.del(epoch);
    }
    expect(epochs).toEqual([...new Set(epochs)].sort((a, b) => a - b));
  });

  it('DEL-04 of another holder are neither renewed, overwritten nor deleted', async () => {
    const topic = uniqueName('topic');
    const options = { defaultPartitionCount: 1, renewIntervalSec: 0.1, leaseTtlSeconds: 2 };
    const a = await (await Member.open('a', options)).handle({ topic, handle: ignore });
    await blockedReader(raw, group);
    const { lease } = keys.groupPartition(topic, 0, group);
    await raw.set(lease, 'somebody#1', 'PX', 60_000);
    await waitFor(() => a.log.count('leaseLost') === 1);
    expect(a.log.all('leaseLost')).toEqual([expect.objectContaining({ topic, partition: 0, group, reason: 'taken' })]);
    await afterLooks(2);
    expect(await raw.get(lease)).toBe('somebody#1');
    await a.close();
    expect(await raw.get(lease)).toBe('somebody#1');
    expect(await raw.pttl(lease)).toBeGreaterThan(30_000);
    expect(a.log.count('leaseReleased')).toBe(0);
  });

  it('DEL-05 survive renewals whose answers are lost', async () => {
    const proxy = await startProxy(redis.port);
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const options = { redis: proxy.url, leaseTtlSeconds: 3, renewIntervalSec: 0.4 };
    const a = await (await Member.open('a', options)).handle({ topic, handle: record.handler('a') });
    await waitFor(() => a.owned === 4);
    await proxy.dropNextReplyMatching(mentions(renew.sha));
    const second = proxy.dropNextReplyMatching(mentions(renew.sha));
    await proxy.dropNextReplyMatching(mentions(renew.sha));
    await second;
    await raw.pexpire(keys.groupPartition(topic, 0, group).lease, 1_500);
    await waitFor(async () => (await raw.pttl(keys.groupPartition(topic, 0, group).lease)) > 2_000);
    for (let n = 0; n < 20; n++) await a.instance.producer.send(topic, { n });
    await waitFor(() => record.handled === 20);
    expect(a.log.count('leaseLost')).toBe(0);
    expect(a.log.count('leaseAcquired')).toBe(4);
    await a.close();
    await proxy.stop();
  });

  it('DEL-05 that are answered "not yours" end at once: nothing more is started', async () => {
    const proxy = await startProxy(redis.port);
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const options = { redis: proxy.url, defaultPartitionCount: 1, leaseTtlSeconds: 3, renewIntervalSec: 0.3 };
    const a = await Member.open('a', options);
    let aborted = 0;
    await a.handle({
      topic,
      handle: record.handler('a', async ({ context }) => {
        context.signal.addEventListener('abort', () => aborted++);
        await sleep(100);
      }),
    });
    await waitFor(() => a.owned === 1);
    for (let n = 0; n < 12; n++) await a.instance.producer.send(topic, { n });
    await waitFor(() => record.calls.length === 2);
    await proxy.answerNextMatching(mentions(renew.sha), '*3\r\n$5\r\nother\r\n:-1\r\n:-1\r\n');
    await waitFor(() => a.log.count('leaseLost') === 1);
    const { epoch } = a.log.all('leaseLost')[0]!;
    const startedUnderIt = record.calls.length;
    await waitFor(() => record.handled === 12);
    expect(record.calls.filter((call) => call.epoch === epoch)).toHaveLength(startedUnderIt);
    expect(aborted).toBe(1);
    expect(record.overlaps).toEqual([]);
    expect(record.disorder).toEqual([]);
    // The one that ran when the lease was lost could not be acknowledged.
    expect(record.repeated.length).toBeLessThanOrEqual(1);
    await a.close();
    await proxy.stop();
  });
});
