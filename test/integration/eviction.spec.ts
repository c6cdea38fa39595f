import { setTimeout as sleep } from 'node:timers/promises';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { resolveOptions } from '../../libs/redis-streams-mq/src/core/resolve-options.js';
import { composeMq } from '../../libs/redis-streams-mq/src/nest/compose.js';
import type { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record as eventsOf, useMq } from '../support/mq-fixture.js';
import { recordingLogger } from '../support/nest-fakes.js';
import { describeWithServer } from '../support/redis-server.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const mq = useMq();
const short: MqOptions = {
  leaseTtlSeconds: 2,
  renewIntervalSec: 0.5,
  rebalanceIntervalSec: 0.3,
  consumerPollTimeoutMs: 200,
};

let topic: string;
let group: string;
let record: HandlingRecord;
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});

async function consume(name: string, work?: Parameters<HandlingRecord['handler']>[1]): Promise<TestInstance> {
  const instance = await mq.open({ ...short, defaultPartitionCount: 2 });
  await instance.start({ topic, group, handle: record.handler(name, work) });
  return instance;
}

const settled = (): Promise<boolean> =>
  waitFor(async () => {
    const all = await Promise.all([0, 1].map((p) => mq.client.xpending(mq.keys.stream(topic, p), group)));
    return all.every(([count]) => count === 0);
  });

describe('a lease that vanishes', () => {
  it('STR-20 costs at most the running message a repetition: nothing behind it is lost, doubled or out of order (I1, I2, I3)', async () => {
    const go = deferred();
    const owners = [
      await consume('a', (_, { n }) => (n < 2 ? go.promise : sleep(1))),
      await consume('b', (_, { n }) => (n < 2 ? go.promise : sleep(1))),
    ];
    const logs = owners.map(({ runtime }) => EventLog.of(runtime.events, 'leaseLost', 'leaseAcquired'));
    const messages = Array.from({ length: 100 }, (_, n) => ({ payload: { n }, partition: n % 2 }));
    expect((await owners[0]!.producer.sendBatch(topic, messages)).failed).toBe(0);
    await waitFor(() => record.calls.length === 2);
    const leases = [0, 1].map((p) => mq.keys.groupPartition(topic, p, group).lease);
    await mq.client.del(...leases);
    await waitFor(() => logs.reduce((sum, log) => sum + log.count('leaseLost'), 0) === 2);
    expect(logs.flatMap((log) => log.all('leaseLost').map(({ reason }) => reason))).not.toContain('expired');
    await sleep(500);
    expect(record.overlaps.filter((text) => !/^([01]) on \w and \1 on /.test(text))).toEqual([]);
    go.resolve();
    await waitFor(() => record.handled === 100);
    await settled();
    expect(record.repeated.filter((n) => n > 1)).toEqual([]);
    expect(record.disorder).toEqual([]);
    expect(record.overlaps.filter((text) => !/^([01]) on \w and \1 on /.test(text))).toEqual([]);
    // Each later message was handled by the owner of that moment alone.
    for (const partition of [0, 1]) {
      const after = record.of(partition).filter((call) => call.n > 1);
      expect(new Set(after.map((call) => call.epoch)).size).toBe(1);
    }
  });
});

describeWithServer('a server that evicts', () => {
  afterEach(async () => {
    await mq.client.config('SET', 'maxmemory', '0');
    await mq.client.config('SET', 'maxmemory-policy', 'noeviction');
  });

  it.each(['volatile-lru', 'allkeys-lru'])(
    'STR-20 %s is warned of at the start, and health shows it',
    async (policy) => {
      await mq.client.config('SET', 'maxmemory-policy', policy);
      const { logger } = recordingLogger();
      const runtime = composeMq(resolveOptions({ redis: mq.redis.url }), { name: 'default', logger });
      const log = EventLog.of(runtime.events, 'warning');
      await runtime.connect();
      await waitFor(() => log.count('warning') > 0);
      await waitFor(async () => (await runtime.health.readiness()).redisStreamsMq!.status === 'up');
      expect((await runtime.health.readiness()).redisStreamsMq).toMatchObject({
        redis: { warnings: [`maxmemory-policy is ${policy} and not noeviction`] },
      });
      await runtime.close();
      expect(log.all('warning')).toEqual([
        { message: expect.stringContaining('must be noeviction'), fields: { policy } },
      ]);
    },
  );

  it('STR-20 is not looked at, and nothing said of it, where INFO is forbidden', async () => {
    const user = uniqueName('user');
    await mq.client.call('ACL', 'SETUSER', user, 'on', '>secret', '~*', '&*', '+@all', '-info');
    await mq.client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    jest.spyOn(console, 'warn').mockReturnValue();
    const instance = await mq.open({
      redis: { port: mq.redis.port, username: user, password: 'secret' },
      failFast: true,
    });
    const log = EventLog.of(instance.runtime.events, 'warning', 'fault');
    await instance.start({ topic, group, handle: record.handler('owner') });
    await instance.producer.send(topic, { n: 0 });
    await waitFor(() => record.handled === 1);
    expect(log.count('warning') + log.count('fault')).toBe(0);
    expect(await mq.client.call('ACL', 'LOG', '10')).toEqual(
      expect.arrayContaining([expect.arrayContaining(['info', user])]),
    );
    jest.restoreAllMocks();
  });

  it('STR-20 leases, again and again: every message that was accepted is handled, and in order', async () => {
    // The policy that takes leases first, as they have the least time to live; the least recently used may be others.
    await mq.client.config('SET', 'maxmemory-policy', 'volatile-ttl');
    const [a, b] = [await consume('a', () => sleep(2)), await consume('b', () => sleep(2))];
    const lost = [eventsOf(a, 'leaseLost'), eventsOf(b, 'leaseLost')];
    const used = Number(/used_memory:(\d+)/.exec(await mq.client.info('memory'))![1]);
    await mq.client.config('SET', 'maxmemory', String(used + 10_000_000));
    const accepted: number[] = [];
    const filler = uniqueName('filler');
    for (let round = 0; round < 5; round++) {
      const before = lost.flat().length;
      for (let i = 0; lost.flat().length === before; i++) {
        await mq.client.set(`${filler}:${round}:${i}`, 'x'.repeat(200_000), 'PX', 60_000);
        const ns = Array.from({ length: 4 }, (_, k) => 10_000 * round + 4 * i + k);
        const messages = ns.map((n) => ({ payload: { n }, key: `key-${n % 7}` }));
        const { results } = await a.producer.sendBatch(topic, messages);
        for (const [k, { status }] of results.entries()) if (status === 'sent') accepted.push(ns[k]!);
        await sleep(10);
      }
    }
    await mq.client.config('SET', 'maxmemory', '0');
    await waitFor(() => {
      const handled = new Set(record.calls.map((call) => call.n));
      return accepted.every((n) => handled.has(n));
    });
    await settled();
    expect(accepted.length).toBeGreaterThan(100);
    expect(record.disorder).toEqual([]);
  });
});
