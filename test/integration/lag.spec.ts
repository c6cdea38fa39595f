import type { Redis } from 'ioredis';
import { Registry } from 'prom-client';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { streamIdTime } from '../../libs/redis-streams-mq/src/core/stream-id.js';
import type { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { record as eventsOf, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();

let topic: string;
let group: string;
let record: HandlingRecord;
beforeEach(() => {
  topic = uniqueName('topic');
  group = uniqueName('group');
  record = new HandlingRecord();
});

const open = (options: MqOptions = {}, registry?: Registry): Promise<TestInstance> =>
  mq.open({ defaultPartitionCount: 1, ...options }, registry === undefined ? {} : { registry });

async function send(instance: TestInstance, ns: readonly number[]): Promise<void> {
  const sent = await instance.producer.sendBatch(
    topic,
    ns.map((n) => ({ payload: { n } })),
  );
  expect(sent.failed).toBe(0);
}

async function settled(client: Redis): Promise<void> {
  await waitFor(async () => (await client.xpending(mq.keys.stream(topic, 0), group))[0] === 0);
}

/** What `XINFO GROUPS` says of the group's lag; Redis gives null when it cannot tell. */
async function lagOf(client: Redis): Promise<unknown> {
  const [info] = (await client.xinfo('GROUPS', mq.keys.stream(topic, 0))) as unknown[][];
  return info![info!.indexOf('lag') + 1];
}

/** All sample values of a scrape, as text. */
async function values(registry: Registry): Promise<string[]> {
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return lines.map((line) => line.slice(line.lastIndexOf(' ') + 1));
}

describe('a lag that Redis cannot tell', () => {
  it('STR-06 with an unread message deleted: the scrape, the admin and readiness work, and the others are handled', async () => {
    const first = await open();
    await first.start({ topic, group, handle: record.handler('first') });
    await send(first, [0, 1]);
    await waitFor(() => record.handled === 2);
    await settled(mq.client);
    await first.close();
    const registry = new Registry();
    const second = await open({}, registry);
    await send(second, [2, 3, 4]);
    const stream = mq.keys.stream(topic, 0);
    const [, , third] = await mq.client.xrange(stream, '-', '+');
    await mq.client.xdel(stream, third![0]);
    expect(await lagOf(mq.client)).toBeNull();

    await second.start({ topic, group, handle: record.handler('second') });
    await waitFor(() => record.handled === 4);
    await settled(mq.client);
    expect(record.by('second').map((call) => call.n)).toEqual([3, 4]);
    expect((await values(registry)).filter((value) => !Number.isFinite(Number(value)))).toEqual([]);
    expect(await second.runtime.admin.describeTopic(topic)).toMatchObject({ partitions: [{ length: 4 }] });
    await waitFor(async () => (await second.runtime.health.readiness()).redisStreamsMq!.status === 'up');
  });

  it('STR-07 with everything read and a lag that stays: nothing waits for it, and the shutdown is quick', async () => {
    const first = await open();
    await first.start({ topic, group, handle: record.handler('first') });
    await send(first, [0]);
    await waitFor(() => record.handled === 1);
    await settled(mq.client);
    await first.close();
    const registry = new Registry();
    const second = await open({}, registry);
    await send(second, [1, 2, 3, 4]);
    await mq.client.xtrim(mq.keys.stream(topic, 0), 'MAXLEN', 1);
    await second.start({ topic, group, handle: record.handler('second') });
    await waitFor(() => record.handled === 2);
    await settled(mq.client);
    expect(record.by('second').map((call) => call.n)).toEqual([4]);
    expect(Number(await lagOf(mq.client))).toBeGreaterThan(0);
    await waitFor(async () => (await second.runtime.health.readiness()).redisStreamsMq!.status === 'up');
    expect((await values(registry)).filter((value) => !Number.isFinite(Number(value)))).toEqual([]);
    const since = performance.now();
    await second.close();
    expect(performance.now() - since).toBeLessThan(2_000);
    await send(await open(), [5]);
    await (await open()).start({ topic, group, handle: record.handler('third') });
    await waitFor(() => record.handled === 3);
    expect(record.repeated).toEqual([]);
  });
});

describe('an entry whose id lies in the far future', () => {
  it('STR-18 keeps no message from being sent, retried and handled, and makes no age negative or absurd', async () => {
    const registry = new Registry();
    const instance = await open({}, registry);
    const stream = mq.keys.stream(topic, 0);
    await send(instance, [0]);
    const [[, fields]] = (await mq.client.xrange(stream, '-', '+')) as [[string, string[]]];
    await mq.client.xadd(stream, '9999999999999-0', ...fields);
    const retried = eventsOf(instance, 'retried');
    const handled = eventsOf(instance, 'handled');
    await instance.start({
      topic,
      group,
      handle: record.handler('owner', ({ context }, { n }) => {
        if (n === 3 && context.attempt === 1) throw new Error('once');
      }),
    });
    const { id } = await instance.producer.send(topic, { n: 1 });
    expect(streamIdTime(id!)).toBe(9_999_999_999_999);
    await send(instance, [2, 3]);
    await instance.producer.send(topic, { n: 4 }, { delayMs: 20 });
    await instance.producer.send(topic, { n: 5 }, { dedupId: 'once' });
    await waitFor(() => record.handled === 6 && record.calls.some((call) => call.n === 3 && call.attempt === 2));
    await settled(mq.client);
    expect(retried).toHaveLength(1);
    expect(retried.filter(({ delayMs }) => delayMs < 0 || delayMs > 1_000)).toEqual([]);
    expect(handled.filter(({ endToEndMs }) => !(endToEndMs >= 0 && endToEndMs < 60_000))).toEqual([]);
    expect((await values(registry)).map(Number).filter((value) => value < 0 || value > 1e9)).toEqual([]);

    // Nor does a lost group, or another owner.
    await send(instance, [6]);
    await waitFor(() => record.handled === 7);
    await settled(mq.client);
    await mq.client.xgroup('DESTROY', stream, group);
    await send(instance, [7]);
    await waitFor(() => record.handled === 8);
    await instance.close();
    const next = await open();
    await next.start({ topic, group, handle: record.handler('next') });
    await send(next, [8]);
    await waitFor(() => record.handled === 9);
    expect(record.repeated.filter((n) => n !== 0)).toEqual([]);
  });
});
