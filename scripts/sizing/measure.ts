import { Redis } from 'ioredis';
import { describeMember, parseMember } from '../../libs/redis-streams-mq/src/core/member-description.js';
import { LeaseClient } from '../../libs/redis-streams-mq/src/consumer/lease-client.js';
import { systemClock } from '../../libs/redis-streams-mq/src/core/clock.js';
import type { PartitionRef } from '../../libs/redis-streams-mq/src/core/events.js';
import { newWireEventId } from '../../libs/redis-streams-mq/src/core/event-id.js';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import { encodeMessage } from '../../libs/redis-streams-mq/src/core/message.js';
import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { callMulti, call } from '../../libs/redis-streams-mq/src/redis/script.js';
import { renew } from '../../libs/redis-streams-mq/src/redis/scripts/lease.script.js';
import { heartbeat } from '../../libs/redis-streams-mq/src/redis/scripts/members.script.js';
import { dueTimes } from '../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { TestInstance } from '../../test/support/engine.js';
import { waitFor } from '../../test/support/wait-for.js';
import { findServer } from '../find-server.mjs';
import { howToGetRedis } from '../redis.mjs';
import { ServerProcess } from '../server-process.mjs';

/** What one server was seen to need; the defaults of the calculator are such figures, rounded up. */
export interface Measured {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
}

const TOPIC = 'orders';
const GROUP = 'billing';
const MESSAGES = 10_000;
const PAYLOADS = [130, 1_024, 16_384];
const MEMBERS = 1_000;
const LEASES = 4_000;

/** Measures memory and processor time on a server of its own: some seconds. */
export async function measure(): Promise<Measured[]> {
  const binary = findServer();
  if (binary === undefined) throw new Error(howToGetRedis());
  const server = await ServerProcess.start(binary);
  const client = new Redis(server.url);
  try {
    return [
      ...(await messages(client)),
      ...(await partitions(client, server.url)),
      ...(await leases(client)),
      ...(await traffic(client, server.url)),
    ];
  } finally {
    client.disconnect();
    await server.stop();
  }
}

/** Stored and pending messages, with a key of eight characters, as the producer writes them. */
async function messages(client: Redis): Promise<Measured[]> {
  const results: Measured[] = [];
  for (const size of PAYLOADS) {
    await client.flushall();
    await client.xgroup('CREATE', TOPIC, GROUP, '0', 'MKSTREAM');
    const empty = await usedMemory(client);
    for (let sent = 0; sent < MESSAGES; sent += 500) {
      const pipeline = client.pipeline();
      for (let i = sent; i < sent + 500; i++) {
        const payload = Buffer.alloc(size, 'x');
        const fields = encodeMessage({ payload, key: `key-${1_000 + (i % 1_000)}`, eventId: newWireEventId() });
        pipeline.xadd(TOPIC, '*', ...fields);
      }
      await pipeline.exec();
    }
    const stored = ((await usedMemory(client)) - empty) / MESSAGES;
    results.push({ name: `a message of ${size} B`, value: stored, unit: 'B' });
    if (size !== PAYLOADS[0]) continue;
    for (let read = 0; read < MESSAGES; read += 500)
      await client.xreadgroup('GROUP', GROUP, 'consumer', 'COUNT', 500, 'STREAMS', TOPIC, '>');
    const pending = ((await usedMemory(client)) - empty) / MESSAGES - stored;
    results.push({ name: 'a message that is pending, for each group, more', value: pending, unit: 'B' });
  }
  return results;
}

/** Empty partitions, and what a group that owns them adds. */
async function partitions(client: Redis, url: string): Promise<Measured[]> {
  await client.flushall();
  const count = 1_000;
  const instance = await TestInstance.open({ redis: url });
  try {
    const empty = await usedMemory(client);
    await instance.runtime.admin.createTopic(TOPIC, { partitionCount: count });
    const made = await usedMemory(client);
    await instance.start({ topic: TOPIC, group: GROUP });
    const owned = (): number => instance.runtime.control.handlers.reduce((sum, handler) => sum + handler.partitions, 0);
    await waitFor(() => owned() === count, { timeoutMs: 20_000 });
    const held = await usedMemory(client);
    return [
      { name: 'an empty partition', value: (made - empty) / count, unit: 'B' },
      { name: 'a partition owned, for each group, more', value: (held - made) / count, unit: 'B' },
    ];
  } finally {
    await instance.close();
  }
}

/** What a look at members and owners costs, and a renewal, on the server and here. */
async function leases(client: Redis): Promise<Measured[]> {
  await client.flushall();
  const connection = new Connection('sizing', client, systemClock);
  const keys = new Keys('streaming:mq', 'stream:topic');
  const refs = Array.from({ length: LEASES }, (_, partition): PartitionRef => ({ topic: TOPIC, partition }));
  const leaseClient = (isCluster: boolean): LeaseClient =>
    new LeaseClient({
      group: GROUP,
      instance: 'consumer-host-1-1234-abcdef',
      connection,
      isCluster,
      keys,
      clock: systemClock,
      leaseTtlMs: 60_000,
    });
  const together = leaseClient(false);
  const oneByOne = leaseClient(true);
  const acquired = await Promise.all(
    refs.map(async (ref) => {
      await client.xgroup('CREATE', keys.stream(ref.topic, ref.partition), GROUP, '0', 'MKSTREAM');
      return (await together.acquire(ref))!.terms;
    }),
  );
  const about = describeMember({
    id: '',
    cap: 0,
    subscriptions: new Map([[TOPIC, { modulo: 1, remainder: 0 }]]),
  });
  const beat = (id: number): Promise<{ readonly members: ReadonlyMap<string, string> }> =>
    connection.run(
      call(heartbeat, keys.members(GROUP), { instance: `consumer-host-${id}-1234-abcdef`, about, ttl: 60_000 }),
    );
  for (let id = 0; id < MEMBERS; id++) await beat(id);

  const looked = await costOf(client, 10, () => together.holders(refs));
  const lookedOneByOne = await costOf(client, 3, () => oneByOne.holders(refs));
  const beaten = await costOf(client, 20, async () => {
    for (const [id, text] of (await beat(1)).members) parseMember(id, text);
  });
  const renewal = (size: number): Promise<unknown> =>
    inPages(acquired, size, (page) => {
      const six = page.flatMap(({ keys: k }) => [k.lease, k.stream, k.retryStream, k.paused, k.pausedAll, k.activity]);
      const args = page.flatMap(({ token, group }) => [token, group]);
      return connection.run(callMulti(renew, six, [60_000, ...args]));
    });
  const renewed = await costOf(client, 10, () => renewal(250));
  const renewedOneByOne = await costOf(client, 3, () => renewal(1));
  const look = (size: number): Promise<unknown> =>
    inPages(acquired, size, (page) => {
      const buckets = page.flatMap(({ keys: k }) => [k.retry, k.delayed]);
      return connection.run(callMulti(dueTimes, buckets, []));
    });
  const due = await costOf(client, 10, () => look(250));
  const dueOneByOne = await costOf(client, 3, () => look(1));
  const read = await emptyReads(client, keys);
  const us = (ms: number, per: number): number => (1_000 * ms) / per;
  return [
    { name: 'a look, for each partition of the group, Redis', value: us(looked.redisMs, LEASES), unit: 'us' },
    { name: 'the same in Cluster, one by one', value: us(lookedOneByOne.redisMs, LEASES), unit: 'us' },
    { name: 'a look, for each partition of the group, Node', value: us(looked.nodeMs, LEASES), unit: 'us' },
    { name: 'the same in Cluster, one by one', value: us(lookedOneByOne.nodeMs, LEASES), unit: 'us' },
    { name: 'a look, for each member of the group, Redis', value: us(beaten.redisMs, MEMBERS), unit: 'us' },
    { name: 'a look, for each member of the group, Node', value: us(beaten.nodeMs, MEMBERS), unit: 'us' },
    { name: 'a renewal, for each lease, Redis', value: us(renewed.redisMs, LEASES), unit: 'us' },
    { name: 'the same in Cluster, one by one', value: us(renewedOneByOne.redisMs, LEASES), unit: 'us' },
    { name: 'a look for what is due, for each partition, Redis', value: us(due.redisMs, LEASES), unit: 'us' },
    { name: 'the same in Cluster, one by one', value: us(dueOneByOne.redisMs, LEASES), unit: 'us' },
    { name: 'an empty read, for each partition, Redis', value: us(read.together, LEASES), unit: 'us' },
    { name: 'the same in Cluster, one by one', value: us(read.oneByOne, LEASES), unit: 'us' },
  ];
}

function inPages<T>(
  items: readonly T[],
  size: number,
  run: (page: readonly T[]) => Promise<unknown>,
): Promise<unknown> {
  const pages: Promise<unknown>[] = [];
  for (let i = 0; i < items.length; i += size) pages.push(run(items.slice(i, i + size)));
  return Promise.all(pages);
}

/** Both streams of each partition, in calls that do not wait: in one, and in one for each; in milliseconds of the server. */
async function emptyReads(
  client: Redis,
  keys: Keys,
): Promise<{ readonly together: number; readonly oneByOne: number }> {
  const pairs = Array.from({ length: LEASES }, (_, partition) => {
    const { stream, retryStream } = keys.groupPartition(TOPIC, partition, GROUP);
    return [stream, retryStream];
  });
  await inPages(pairs, 1, ([pair]) => client.xgroup('CREATE', pair![1]!, GROUP, '0', 'MKSTREAM'));
  const read = (size: number): Promise<unknown> =>
    inPages(pairs, size, (page) => {
      const streams = page.flat();
      const news = streams.map(() => '>');
      return client.call('XREADGROUP', ['GROUP', GROUP, 'consumer', 'COUNT', 32, 'STREAMS', ...streams, ...news]);
    });
  const together = await costOf(client, 10, () => read(LEASES));
  const oneByOne = await costOf(client, 3, () => read(1));
  return { together: together.redisMs, oneByOne: oneByOne.redisMs };
}

/** Sent one after the other as fast as it goes, then handled by one group; 130 bytes, four partitions. */
async function traffic(client: Redis, url: string): Promise<Measured[]> {
  await client.flushall();
  const count = 20_000;
  const instance = await TestInstance.open({ redis: url });
  try {
    await instance.runtime.admin.createTopic(TOPIC, { partitionCount: 4 });
    const sent = await costOf(client, 1, async () => {
      for (let i = 0; i < count; i += 1_000) {
        const some = Array.from({ length: 1_000 }, (_, n) =>
          instance.producer.send(TOPIC, 'x'.repeat(128), { key: `key-${i + n}` }),
        );
        await Promise.all(some);
      }
    });
    let handled = 0;
    const got = await costOf(client, 1, async () => {
      await instance.start({ topic: TOPIC, group: GROUP, handle: () => void handled++ });
      await waitFor(() => handled === count, { timeoutMs: 30_000 });
    });
    const us = (ms: number): number => (1_000 * ms) / count;
    return [
      { name: 'a message sent, Redis', value: us(sent.redisMs), unit: 'us' },
      { name: 'a message sent, Node', value: us(sent.nodeMs), unit: 'us' },
      { name: 'a message handled, for each group, Redis', value: us(got.redisMs), unit: 'us' },
      { name: 'a message handled, for each group, Node', value: us(got.nodeMs), unit: 'us' },
    ];
  } finally {
    await instance.close();
  }
}

/** Processor time of the server and of this process, for one of `times`, in milliseconds. */
async function costOf(
  client: Redis,
  times: number,
  work: () => Promise<unknown>,
): Promise<{ readonly redisMs: number; readonly nodeMs: number }> {
  const redisBefore = await redisCpuMs(client);
  const before = process.cpuUsage();
  for (let i = 0; i < times; i++) await work();
  const { user, system } = process.cpuUsage(before);
  const redisMs = ((await redisCpuMs(client)) - redisBefore) / times;
  return { redisMs, nodeMs: (user + system) / 1_000 / times };
}

async function redisCpuMs(client: Redis): Promise<number> {
  const info = await client.info('cpu');
  return 1_000 * (numberIn(info, 'used_cpu_user') + numberIn(info, 'used_cpu_sys'));
}

async function usedMemory(client: Redis): Promise<number> {
  return numberIn(await client.info('memory'), 'used_memory');
}

function numberIn(info: string, name: string): number {
  return Number(new RegExp(`^${name}:(.*)$`, 'm').exec(info)?.[1]);
}
