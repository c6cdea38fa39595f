import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const mq = useMq({ args: ['--enable-protected-configs', 'yes'] });
const options: MqOptions = { defaultPartitionCount: 2, redisTimeoutMs: 1_000, consumerPollTimeoutMs: 300 };

let topic: string;
let group: string;
let record: HandlingRecord;
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});

interface Answer {
  readonly status: string;
  readonly reasons: readonly string[];
  readonly redis: { readonly reachable: boolean; readonly writable: boolean };
  readonly partitionsOwned: number;
  readonly lag?: { readonly messages: number; readonly oldestMs: number } | null;
}

async function readiness(instance: TestInstance): Promise<Answer> {
  return (await instance.runtime.health.readiness()).redisStreamsMq as unknown as Answer;
}

async function isAlive(instance: TestInstance): Promise<boolean> {
  return (await instance.runtime.health.liveness()).redisStreamsMq!.status === 'up';
}

async function consume(): Promise<TestInstance> {
  const instance = await mq.open(options);
  await instance.start({ topic, group, handle: record.handler('owner') });
  await instance.producer.send(topic, { n: 0 });
  await waitFor(() => record.handled === 1);
  await waitFor(async () => (await readiness(instance)).status === 'up');
  return instance;
}

/** Down for this reason, all the time, and alive; and afterwards up and at work without a restart. */
async function isDownUntilMended(
  instance: TestInstance,
  reason: RegExp,
  mend: () => Promise<unknown>,
): Promise<Answer> {
  const down = await waitFor(
    async () => {
      const answer = await readiness(instance);
      return answer.status === 'down' && answer.reasons.some((text) => reason.test(text)) && answer;
    },
    { describe: `readiness to be down for ${reason}` },
  );
  expect(await isAlive(instance)).toBe(true);
  await mend();
  await waitFor(async () => (await readiness(instance)).status === 'up');
  await waitFor(() => instance.producer.send(topic, { n: 1 }).then(() => true));
  await waitFor(() => record.handled === 2);
  return down;
}

const config = (name: string, value: string): Promise<unknown> => mq.client.config('SET', name, value);

describeWithServer('readiness is down although Redis answers PING, and says why', () => {
  const states: [what: string, reason: RegExp, breakIt: () => Promise<unknown>, mend: () => Promise<unknown>][] = [
    [
      'the server is a replica',
      /Redis refuses writes \(READONLY\)/,
      () => mq.client.replicaof('127.0.0.1', 1),
      () => mq.client.replicaof('NO', 'ONE'),
    ],
    [
      'replicas are missing',
      /Redis refuses writes \(NOREPLICAS\)/,
      () => config('min-replicas-to-write', '1'),
      () => config('min-replicas-to-write', '0'),
    ],
    ['memory is full', /Redis refuses writes \(OOM\)/, () => config('maxmemory', '1'), () => config('maxmemory', '0')],
  ];

  it.each(states)('OBS-05 when %s', async (_what, reason, breakIt, mend) => {
    const instance = await consume();
    await breakIt();
    await expect(mq.client.ping()).resolves.toBe('PONG');
    const down = await isDownUntilMended(instance, reason, mend);
    expect(down.redis).toEqual({ reachable: true, writable: false });
  });

  it('OBS-05 when the disk cannot be written', async () => {
    const instance = await consume();
    const dir = await mkdtemp(join(tmpdir(), 'mq-test-'));
    await config('dir', dir);
    await config('save', '3600 1');
    await rm(dir, { recursive: true });
    await mq.client.bgsave();
    await waitFor(async () => (await mq.client.info('persistence')).includes('rdb_last_bgsave_status:err'));
    const down = await isDownUntilMended(instance, /Redis refuses writes \(MISCONF\)/, () =>
      config('stop-writes-on-bgsave-error', 'no'),
    );
    expect(down.redis).toEqual({ reachable: true, writable: false });
  });

  it('OBS-05 when the blocking connection alone is killed again and again', async () => {
    const instance = await consume();
    let killing = true;
    let kills = 0;
    const killed = (async () => {
      while (killing) {
        for (const line of ((await mq.client.client('LIST')) as string).split('\n')) {
          if (!line.includes(`reader:${group}`)) continue;
          kills += Number(await mq.client.client('KILL', 'ID', Number(/^id=(\d+)/.exec(line)![1])));
        }
        await sleep(2);
      }
    })();
    const mend = async (): Promise<void> => {
      killing = false;
      await killed;
    };
    try {
      await waitFor(() => kills >= 3);
      const down = await isDownUntilMended(instance, /loops are failing: reader/, mend);
      expect(down.redis).toEqual({ reachable: true, writable: true });
    } finally {
      await mend();
    }
  });

  it('OBS-05 when the stream of a partition is of another type', async () => {
    const instance = await consume();
    const stream = mq.keys.stream(topic, 1);
    await mq.client.multi().del(stream).set(stream, 'not a stream').exec();
    const down = await isDownUntilMended(instance, new RegExp(`partitions cannot be read: ${topic}:p:1:${group}`), () =>
      mq.client.del(stream),
    );
    expect(down).toMatchObject({ failingPartitions: [{ error: 'WRONGTYPE' }] });
  });

  it('OBS-05 when a partition stays without an owner', async () => {
    const instance = await mq.open({ ...options, rebalanceIntervalSec: 0.3 });
    await instance.runtime.admin.createTopic(topic, { partitionCount: 2 });
    // What nobody can acquire: the key that remembers the last epoch is of another type.
    const { epoch } = mq.keys.groupPartition(topic, 1, group);
    await mq.client.rpush(epoch, 'not a string');
    await instance.start({ topic, group, handle: record.handler('owner') });
    await instance.producer.send(topic, { n: 0 }, { partition: 0 });
    await waitFor(() => record.handled === 1);
    await isDownUntilMended(instance, new RegExp(`partitions have no owner: ${topic}:p:1:${group}`), () =>
      mq.client.del(epoch),
    );
  });
});

describeWithServer('readiness with a limit of the lag', () => {
  const limits = { ...options, healthMaxLag: 5, healthMaxLagAgeMs: 60_000 };
  const stuckOn = (gate: Promise<void>) => ({ topic, group, handle: () => gate });

  it('is down while a partition owned is beyond it, names that one, and is up when it is settled', async () => {
    const gate = deferred<void>();
    const instance = await mq.open(limits);
    await instance.start(stuckOn(gate.promise));
    await waitFor(async () => (await readiness(instance)).partitionsOwned === 2);
    const messages = Array.from({ length: 12 }, (_, n) => ({ payload: { n }, partition: n < 9 ? 1 : 0 }));
    expect((await instance.producer.sendBatch(topic, messages)).failed).toBe(0);
    const down = await waitFor(async () => {
      const state = await readiness(instance);
      return state.status === 'down' ? state : null;
    });
    expect(down.reasons).toEqual([`more than 5 messages are unsettled: ${topic}:p:1:${group} (9)`]);
    expect(down.lag).toMatchObject({ messages: 12 });
    expect(await isAlive(instance)).toBe(true);
    gate.resolve();
    await waitFor(async () => (await readiness(instance)).status === 'up');
  });

  it('OBS-04 answers within its time when Redis hangs', async () => {
    const instance = await mq.open(limits);
    await instance.start({ topic, group, handle: () => undefined });
    await waitFor(async () => (await readiness(instance)).status === 'up');
    mq.redis.pause();
    try {
      const before = performance.now();
      const answer = await readiness(instance);
      // Its time is 2 s.
      expect(performance.now() - before).toBeLessThan(5_000);
      expect(answer.status).toBe('down');
      expect(answer.reasons[0]).toMatch(/^Redis cannot be reached/);
    } finally {
      mq.redis.resume();
    }
    await waitFor(async () => (await readiness(instance)).status === 'up');
  });
});
