import { setTimeout as sleep } from 'node:timers/promises';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord, nowMs } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const PARTITIONS = 2;
const LEASE_MS = 1_000;
const short: MqOptions = {
  defaultPartitionCount: PARTITIONS,
  leaseTtlSeconds: LEASE_MS / 1_000,
  renewIntervalSec: 0.3,
  rebalanceIntervalSec: 0.2,
  consumerPollTimeoutMs: 200,
  drainTimeoutMs: 100,
};

let topic: string;
let group: string;
let record: HandlingRecord;
const closing: Promise<unknown>[] = [];
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});
afterEach(() => Promise.all(closing.splice(0)));

const partitions = Array.from({ length: PARTITIONS }, (_, p) => p);
const place = (p: number) => mq.keys.groupPartition(topic, p, group);

/** Names that the group has on each source of each partition. */
async function consumers(): Promise<string[][]> {
  const sources = partitions.flatMap((p) => [place(p).stream, place(p).retryStream]);
  const infos = await Promise.all(sources.map((source) => mq.client.xinfo('CONSUMERS', source, group)));
  return infos.map((info) => (info as unknown[][]).map((fields) => String(fields[1])));
}

async function consume(name: string, options: MqOptions = {}, handle = record.handler(name)): Promise<TestInstance> {
  const instance = await mq.open({ ...short, ...options });
  await instance.start({ topic, group, handle });
  return instance;
}

/** A message to each partition; the first call for every third one fails, so that retry streams are read too. */
async function sendRound(round: number): Promise<number[]> {
  const ns = partitions.map((p) => round * PARTITIONS + p);
  const { results } = await producer.sendBatch(
    topic,
    ns.map((n) => ({ payload: { n }, partition: n % PARTITIONS })),
  );
  expect(results.every(({ status }) => status === 'sent')).toBe(true);
  return ns;
}

let producer: TestInstance['producer'];

describe('consumers of processes that were killed', () => {
  beforeEach(async () => {
    producer = (await mq.open(short)).producer;
  });

  it('STR-09 do not pile up: after 30 deaths there are no more than a few on each partition, and every message was handled', async () => {
    for (let round = 0; round < 30; round++) {
      const proxy = await mq.proxy();
      const handle = record.handler(`life ${round}`, ({ context }, { n }) => {
        if (n % 3 === 0 && context.attempt === 1) throw new Error('once');
      });
      const instance = await consume(`life ${round}`, { redis: proxy.url }, handle);
      const ns = await sendRound(round);
      await waitFor(() =>
        ns.every((n) => record.calls.some((call) => call.n === n && call.attempt === (n % 3 === 0 ? 2 : 1))),
      );
      // To the server this is a SIGKILL; then the time of its lease and of its membership is over.
      await proxy.refuse(true);
      proxy.cutAll();
      closing.push(instance.close());
      const { members, info } = mq.keys.members(group);
      await mq.client.del(members, info, ...partitions.map((p) => place(p).lease));
    }
    const counts = (await consumers()).map((names) => names.length);
    expect(Math.max(...counts)).toBeLessThanOrEqual(3);
    const last = await consume('last');
    await sendRound(30);
    await waitFor(() => record.handled === 31 * PARTITIONS);
    await last.close();
    expect(Math.max(...(await consumers()).map((names) => names.length))).toBeLessThanOrEqual(1);
  });

  it('STR-08 are removed only with nothing pending: one that reads in the very moment of 20 take-overs loses no message', async () => {
    let stealing = true;
    let stolen = 0;
    await consume('first').then((instance) => instance.close());
    // A late reader of a former life: it takes what comes and never settles anything.
    const ghost = mq.redis.client();
    const thief = (async () => {
      while (stealing) {
        for (const p of partitions) {
          const taken = await ghost
            .xreadgroup('GROUP', group, 'ghost', 'COUNT', 1, 'STREAMS', place(p).stream, '>')
            .catch(() => null);
          if (taken !== null) stolen++;
        }
      }
    })();
    for (let round = 0; round < 20; round++) {
      const sent = (async () => {
        for (let i = 0; i < 5; i++) await sendRound(5 * round + i);
      })();
      const instance = await consume(`life ${round}`);
      await sent;
      await waitFor(async () => (await mq.client.exists(...partitions.map((p) => place(p).lease))) === PARTITIONS);
      await instance.close();
    }
    stealing = false;
    await thief;
    expect(stolen).toBeGreaterThan(0);
    await consume('last');
    await waitFor(() => record.handled === 100 * PARTITIONS);
    const pending = async (): Promise<number> => {
      const all = await Promise.all(partitions.map((p) => mq.client.xpending(place(p).stream, group)));
      return all.reduce((sum, [count]) => sum + Number(count), 0);
    };
    await waitFor(async () => (await pending()) === 0);
    expect(record.disorder).toEqual([]);
    expect(record.overlaps).toEqual([]);
  });

  it('STR-10 a live owner on a quiet topic is not one of them: it stays the owner, and its first message comes at once', async () => {
    const owner = await consume('owner');
    const log = EventLog.of(owner.runtime.events, 'leaseAcquired', 'leaseLost', 'leaseReleased', 'healed');
    await sendRound(0);
    await waitFor(() => record.handled === PARTITIONS);
    const before = await Promise.all(partitions.map((p) => mq.client.get(place(p).lease)));
    const names = new Set((await consumers()).flat());
    expect(names.size).toBe(1);
    await sleep(4 * LEASE_MS);
    expect(await Promise.all(partitions.map((p) => mq.client.get(place(p).lease)))).toEqual(before);
    expect([log.count('leaseLost'), log.count('leaseReleased'), log.count('healed')]).toEqual([0, 0, 0]);
    expect(new Set((await consumers()).flat())).toEqual(names);
    // An instance that comes meanwhile, takes a share over and goes, removes it from nowhere it still owns.
    const second = await consume('second');
    const leases = () => Promise.all(partitions.map((p) => mq.client.get(place(p).lease)));
    await waitFor(async () => new Set((await leases()).map((token) => token?.split('#')[0])).size === PARTITIONS);
    const sentAt = nowMs();
    await sendRound(1);
    await waitFor(() => record.handled === 2 * PARTITIONS);
    expect(new Set(record.calls.slice(PARTITIONS).map((call) => call.instance)).size).toBe(2);
    expect(Math.max(...record.calls.slice(PARTITIONS).map((call) => call.startedAt)) - sentAt).toBeLessThan(1_000);
    await second.close();
    await sendRound(2);
    await waitFor(() => record.handled === 3 * PARTITIONS);
    expect(record.repeated).toEqual([]);
  });
});
