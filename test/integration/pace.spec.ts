import { setTimeout as sleep } from 'node:timers/promises';
import { systemClock } from '../../libs/redis-streams-mq/src/core/clock.js';
import { LogListener } from '../../libs/redis-streams-mq/src/nest/log-listener.js';
import type { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { recordingLogger } from '../support/nest-fakes.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const mq = useMq();
const WINDOW_MS = 3_000;

let topic: string;
let group: string;
let record: HandlingRecord;
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});

/** How often the server was asked this, refusals included. */
async function calls(command: string): Promise<number> {
  const stats = await mq.client.info('commandstats');
  const line = new RegExp(`cmdstat_${command}:calls=(\\d+),.*rejected_calls=(\\d+)`).exec(stats);
  return Number(line?.[1] ?? 0) + Number(line?.[2] ?? 0);
}

async function perSecond(command: string): Promise<number> {
  const [before, since] = [await calls(command), performance.now()];
  await sleep(WINDOW_MS);
  return ((await calls(command)) - before) / ((performance.now() - since) / 1_000);
}

const send = (instance: TestInstance, n: number, partition = 0) => instance.producer.send(topic, { n }, { partition });

async function readiness(instance: TestInstance) {
  return (await instance.runtime.health.readiness()).redisStreamsMq!;
}

describe('a partition that cannot move on', () => {
  it('STR-17 with pending entries of its own after a restart, and a handler that does not end, is read less than ten times a second', async () => {
    const go = deferred();
    // A handler that heeds nothing keeps its lease until that ends by itself.
    const short = {
      leaseTtlSeconds: 1.5,
      renewIntervalSec: 0.4,
      rebalanceIntervalSec: 0.3,
      consumerPollTimeoutMs: 400,
    };
    const first = await mq.open({ ...short, defaultPartitionCount: 1, drainTimeoutMs: 100 });
    const handle = record.handler('owner', () => go.promise);
    await first.start({ topic, group, handle });
    for (const n of [0, 1, 2]) await send(first, n);
    const pending = async (): Promise<unknown> => (await mq.client.xpending(mq.keys.stream(topic, 0), group))[0];
    await waitFor(async () => record.calls.length === 1 && (await pending()) === 3);
    await first.close();
    const second = await mq.open(short);
    await second.start({ topic, group, handle });
    await waitFor(() => record.calls.length === 2);
    expect(await pending()).toBe(3);
    const reads = await perSecond('xreadgroup');
    expect(reads).toBeGreaterThan(0);
    expect(reads).toBeLessThan(10);
    go.resolve();
    await waitFor(async () => (await pending()) === 0);
    await send(second, 3);
    await waitFor(() => record.handled === 4);
  });

  it('STR-17 because its group is paused, is not read at all, and goes on when it may', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1, renewIntervalSec: 0.3, rebalanceIntervalSec: 0.3 });
    await instance.start({ topic, group, handle: record.handler('owner') });
    await send(instance, 0);
    await waitFor(() => record.handled === 1);
    await mq.client.set(mq.keys.groupPartition(topic, 0, group).paused, '1');
    await waitFor(async () => (await mq.client.exists(mq.keys.groupPartition(topic, 0, group).lease)) === 0);
    await send(instance, 1);
    expect(await perSecond('xreadgroup')).toBeLessThan(10);
    expect(record.handled).toBe(1);
    await mq.client.del(mq.keys.groupPartition(topic, 0, group).paused);
    await waitFor(() => record.handled === 2);
  });
});

describe('a command that is refused for good', () => {
  it('STR-13 without the right to XREADGROUP it is tried a few times a second, said a few times, readiness is down, and it recovers', async () => {
    const user = uniqueName('user');
    await mq.client.call('ACL', 'SETUSER', user, 'on', '>secret', '~*', '&*', '+@all');
    const options = { redis: { port: mq.redis.port, username: user, password: 'secret' } };
    const refused = await mq.open(options);
    const { logger, lines } = recordingLogger();
    const listener = new LogListener(refused.runtime.events, logger, systemClock);
    listener.start();
    const log = EventLog.of(refused.runtime.events, 'leaseAcquired', 'fault', 'leaseLost');
    await refused.start({ topic, group, handle: record.handler('refused') });
    await waitFor(() => log.count('leaseAcquired') === 4);
    await send(refused, 0);
    await waitFor(() => record.handled === 1);

    // Another instance, whose user keeps his rights.
    const other = uniqueName('topic');
    const neighbour = await mq.open();
    const beside = new HandlingRecord();
    await neighbour.start({ topic: other, group: uniqueName('group'), handle: beside.handler('neighbour') });

    await mq.client.call('ACL', 'SETUSER', user, '-xreadgroup');
    await waitFor(() => log.count('fault') >= 5);
    await waitFor(async () => (await readiness(refused)).status === 'down');
    expect(JSON.stringify((await readiness(refused)).reasons)).toContain('NOPERM');
    expect((await refused.runtime.health.liveness()).redisStreamsMq!.status).toBe('up');
    const [lineCount, faults, since] = [lines.length, log.count('fault'), performance.now()];
    // Sending needs no such right, and what is refused here stays for later.
    for (let n = 1; n <= 8; n++) await send(refused, n, n % 4);
    const before = await refusals();
    await sleep(WINDOW_MS);
    const seconds = (performance.now() - since) / 1_000;
    expect(((await refusals()) - before) / seconds).toBeLessThan(10);
    expect((log.count('fault') - faults) / seconds).toBeLessThan(10);
    expect((lines.length - lineCount) / seconds).toBeLessThan(3);
    expect(log.count('leaseLost')).toBe(0);
    for (let n = 0; n < 8; n++) await neighbour.producer.send(other, { n });
    await waitFor(() => beside.handled === 8, { timeoutMs: 2_000 });
    expect(record.handled).toBe(1);

    await mq.client.call('ACL', 'SETUSER', user, '+xreadgroup');
    await waitFor(() => record.handled === 9);
    await waitFor(async () => (await readiness(refused)).status === 'up');
    expect(record.repeated).toEqual([]);
    listener.stop();
  });

  async function refusals(): Promise<number> {
    return Number(/errorstat_NOPERM:count=(\d+)/.exec(await mq.client.info('errorstats'))?.[1] ?? 0);
  }
});

describe('answers that come late', () => {
  const BLOCK_MS = 300;
  it.each([
    ['within redisTimeoutMs: no connection is replaced', 5_000, false],
    ['later than redisTimeoutMs: connections are replaced', 500, true],
  ])(
    'STR-19 by BLOCK and 1.5 s, %s, no message is stranded and none is handled twice',
    async (_, redisTimeoutMs, replaces) => {
      const proxy = await mq.proxy();
      const instance = await mq.open({
        redis: proxy.url,
        redisTimeoutMs,
        defaultPartitionCount: 1,
        consumerPollTimeoutMs: BLOCK_MS,
        leaseTtlSeconds: 30,
      });
      const log = EventLog.of(instance.runtime.events, 'readerReplaced', 'leaseAcquired', 'leaseLost');
      await instance.start({ topic, group, handle: record.handler('owner') });
      await waitFor(() => log.count('leaseAcquired') === 1);
      const producer = await mq.open();
      await send(producer, 0);
      await waitFor(() => record.handled === 1);
      proxy.delayReplies(BLOCK_MS + 1_500);
      for (let n = 1; n <= 20; n++) {
        await send(producer, n);
        await sleep(150);
      }
      proxy.delayReplies(0);
      await waitFor(() => record.handled === 21);
      await waitFor(async () => (await mq.client.xpending(mq.keys.stream(topic, 0), group))[0] === 0);
      expect(log.count('readerReplaced') > 0).toBe(replaces);
      expect(log.count('leaseLost')).toBe(0);
      expect(record.repeated).toEqual([]);
      expect(record.disorder).toEqual([]);
      await send(producer, 21);
      await waitFor(() => record.handled === 22, { timeoutMs: 3_000 });
    },
  );
});

describe('a backlog that is handled without trouble', () => {
  it('is never looked through again: no pending list is read and nothing is claimed', async () => {
    const COUNT = 20_000;
    const instance = await mq.open({ defaultPartitionCount: 4, consumerBatchCount: 100 });
    const messages = Array.from({ length: COUNT }, (_, n) => ({ payload: { n } }));
    expect((await instance.producer.sendBatch(topic, messages)).failed).toBe(0);
    const before = await calls('xclaim');
    let handled = 0;
    await instance.start({ topic, group, handle: () => void handled++ });
    await waitFor(() => handled === COUNT, { timeoutMs: 20_000 });
    expect((await calls('xclaim')) - before).toBe(0);
  });
});
