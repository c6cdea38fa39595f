import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { startProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait-for.js';
import { leaveReplicasBehind } from '../torture/servers/every-server.js';
import { replicationInfo } from '../torture/servers/replication-info.js';

const PARTITIONS = 4;
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describeWithServer('behind one address, the "primary endpoint", a failover', () => {
  let old: TestRedis;
  let next: TestRedis;
  let oldClient: Redis;
  let nextClient: Redis;
  let endpoint: TcpProxy;
  let instance: TestInstance;
  let record: HandlingRecord;
  let log: EventLog;
  const topic = uniqueName('topic');

  beforeEach(async () => {
    [old, next] = await Promise.all([startRedis(), startRedis({ args: ['--repl-diskless-sync-delay', '0'] })]);
    oldClient = old.client();
    nextClient = next.client();
    await nextClient.call('REPLICAOF', '127.0.0.1', old.port);
    await waitFor(async () => (await replicationInfo(nextClient)).isLinkUp);
    endpoint = await startProxy(old.port);
    record = new HandlingRecord();
  });
  afterEach(async () => {
    await instance.close();
    await endpoint.stop();
    await Promise.all([old.stop(), next.stop()]);
  });

  async function open(options: MqOptions = {}): Promise<TestInstance> {
    const given = {
      redis: endpoint.url,
      failFast: true,
      redisTimeoutMs: 1_000,
      leaseTtlSeconds: 3,
      renewIntervalSec: 0.5,
    };
    instance = await TestInstance.open({ defaultPartitionCount: PARTITIONS, ...given, ...options });
    log = EventLog.of(instance.runtime.events, 'fault', 'leaseLost', 'connection', 'dead', 'retried', 'leaseReleased');
    return instance;
  }

  /** As managed services do it: the old one is demoted with its connections open, and new ones lead to the new one. */
  async function failOver(lateMs: number): Promise<void> {
    // Nothing that is accepted is lost.
    await oldClient.call('CLIENT', 'PAUSE', 20_000, 'WRITE');
    const { offset } = await replicationInfo(oldClient);
    await waitFor(async () => (await replicationInfo(nextClient)).offset >= offset);
    await nextClient.call('REPLICAOF', 'NO', 'ONE');
    await oldClient.call('REPLICAOF', '127.0.0.1', next.port);
    await oldClient.call('CLIENT', 'UNPAUSE');
    await sleep(lateMs);
    endpoint.pointTo(next.port);
  }

  async function sendUntilAccepted(n: number): Promise<void> {
    await waitFor(() => instance.producer.send(topic, { n }, { key: `key-${n % 8}` }).then(() => true));
  }

  const acceptedConnections = async (server: Redis): Promise<number> =>
    Number(/total_connections_received:(\d+)/.exec(await server.info('stats'))![1]);

  it.each([
    ['in time', 0],
    ['late', 2_500],
  ])(
    'CLU-01 that leaves the sockets open and is repointed %s is survived, without a storm of connections',
    async (_, lateMs) => {
      const { producer } = await open();
      await instance.start({ topic, group: 'g', handle: record.handler('a') });
      for (const n of numbers(0, 19)) await producer.send(topic, { n }, { key: `key-${n % 8}` });
      await waitFor(() => record.handled === 20);
      const connectionsBefore = await acceptedConnections(oldClient);
      const over = failOver(lateMs);
      const accepted: number[] = [];
      const sending = (async () => {
        for (const n of numbers(20, 119)) {
          await producer.send(topic, { n }, { key: `key-${n % 8}`, timeoutMs: 1_000 }).then(
            () => accepted.push(n),
            () => undefined,
          );
          await sleep(10);
        }
      })();
      await over;
      const connections = (await acceptedConnections(oldClient)) - connectionsBefore;
      await sending;
      for (const n of numbers(120, 139)) await sendUntilAccepted(n);
      const wanted = [...accepted, ...numbers(120, 139)];
      await waitFor(() => wanted.every((n) => record.calls.some((call) => call.n === n)), { timeoutMs: 15_000 });
      expect(accepted.length).toBeGreaterThan(20);
      expect(record.disorder).toEqual([]);
      expect(record.overlaps).toEqual([]);
      expect(connections).toBeLessThan(10 + lateMs / 100);
      expect(log.all('fault').filter((fault) => fault.class !== 'transient')).toEqual([]);
    },
  );

  it('CLU-03 to a server that knows no script is not noticed: publish, acknowledgement, renewal, retry, DLQ and replay go on', async () => {
    const { producer, runtime } = await open({ retryBaseBackoffMs: 1_500, retryMaxBackoffMs: 1_500 });
    let isFixed = false;
    const handle = record.handler('a', ({ context }, { n }) => {
      if (n === 3 && !isFixed) throw new DeadLetter('until it is fixed');
      if ((n === 7 || n === 27) && context.attempt === 1) throw new Error('once');
    });
    await instance.start({ topic, group: 'g', handle });
    for (const n of numbers(0, 9)) await producer.send(topic, { n }, { key: `key-${n % 8}` });
    await waitFor(() => record.handled === 10 && log.count('retried') === 1 && log.count('dead') === 1);
    await failOver(0);
    for (const n of numbers(20, 39)) await sendUntilAccepted(n);
    await waitFor(() => record.handled === 30 && record.calls.filter((call) => call.attempt === 2).length === 2);
    isFixed = true;
    await waitFor(async () => (await runtime.deadLetters.replayAll(topic)).replayed === 1);
    await waitFor(() => record.calls.filter(({ n }) => n === 3).length === 2);
    await waitFor(async () => (await nextClient.exists(...leaseKeys())) === PARTITIONS);
    expect(record.calls.map(({ n }) => n).sort((a, b) => a - b)).toEqual(
      [...numbers(0, 9), ...numbers(20, 39), 3, 7, 27].sort((a, b) => a - b),
    );
    expect(log.count('leaseLost')).toBe(0);
    expect(log.all('fault').filter(({ error }) => /NOSCRIPT/.test(String(error)))).toEqual([]);
  });

  const keys = new Keys('streaming:mq', 'stream:topic');
  const leaseKeys = (): string[] =>
    numbers(0, PARTITIONS - 1).map((partition) => keys.groupPartition(topic, partition, 'g').lease);

  it('CLU-04 that takes back acknowledgements brings the same messages again, in order, and then goes on', async () => {
    const { producer } = await open();
    const sent = await producer.sendBatch(
      topic,
      numbers(0, 49).map((n) => ({ payload: { n }, key: `key-${n % 8}` })),
    );
    expect(sent.failed).toBe(0);
    const ids = new Map(numbers(0, 49).map((n) => [n, new Set<string>()]));
    await waitFor(async () => (await replicationInfo(nextClient)).offset >= (await replicationInfo(oldClient)).offset);
    await leaveReplicasBehind(oldClient, 0);
    const handle = record.handler(
      'a',
      ({ context }, { n }) => void ids.get(n)?.add(`${context.id} ${context.eventId}`),
    );
    await instance.start({ topic, group: 'g', handle });
    await waitFor(() => record.handled === 50);
    await waitFor(async () => (await pendingIn(oldClient)) === 0);
    await old.kill();
    await nextClient.call('REPLICAOF', 'NO', 'ONE');
    endpoint.pointTo(next.port);
    await waitFor(() => record.calls.length === 100, { timeoutMs: 15_000 });
    await sendUntilAccepted(50);
    await waitFor(() => record.handled === 51);
    await waitFor(async () => (await pendingIn(nextClient)) === 0);
    expect(record.calls).toHaveLength(101);
    expect([...ids.values()].map((seen) => seen.size)).toEqual(numbers(0, 49).map(() => 1));
    for (const partition of numbers(0, PARTITIONS - 1)) {
      const order = record.of(partition).map(({ id }) => id);
      const again = order.slice(0, new Set(order.filter((id) => order.indexOf(id) !== order.lastIndexOf(id))).size);
      expect(order.slice(again.length, 2 * again.length)).toEqual(again);
    }
    expect(record.overlaps).toEqual([]);
    expect(log.all('fault').filter((fault) => fault.class === 'unexpected')).toEqual([]);
  });

  async function pendingIn(server: Redis): Promise<number> {
    const counts = await Promise.all(
      numbers(0, PARTITIONS - 1).map(async (p) => {
        const summary = (await server.xpending(keys.stream(topic, p), 'g')) as [number];
        return summary[0];
      }),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  }
});
