import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { describeWithServer, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describeWithServer('a database number', () => {
  const mq = useMq();

  /** Of each connection of ours, by name. */
  async function databases(): Promise<Map<string, number>> {
    const lines = ((await mq.client.client('LIST')) as string).split('\n');
    return new Map(
      lines.flatMap((line) => {
        const [, name, db] = / name=redis-streams-mq:default:(\S+) .* db=(\d+) /.exec(line) ?? [];
        return name === undefined ? [] : [[name, Number(db)] as const];
      }),
    );
  }

  /** Databases that have keys. */
  async function used(): Promise<string[]> {
    return [...(await mq.client.info('keyspace')).matchAll(/^(db\d+):keys=/gm)].map((match) => match[1]!);
  }

  it.each<[string, () => unknown]>([
    ['options', () => ({ port: mq.redis.port, db: 3 })],
    ['a URL', () => `${mq.redis.url}/3`],
    ['a client', () => new Redis({ port: mq.redis.port, db: 3, lazyConnect: true })],
  ])('in %s is that of all connections and keys', async (_, make) => {
    const record = new HandlingRecord();
    const topic = uniqueName('topic');
    const instance = await mq.open({ redis: make(), failFast: true, defaultPartitionCount: 2 });
    const handle = record.handler('owner', ({ context }, { n }) => {
      if (n === 2 && context.attempt === 1) throw new Error('once');
    });
    await instance.start({ topic, group: 'g', handle });
    for (const n of numbers(0, 4)) await instance.producer.send(topic, { n });
    await instance.producer.send(topic, { n: 5 }, { delayMs: 20 });
    await instance.producer.send(topic, { n: 6 }, { dedupId: 'once' });
    await waitFor(() => record.handled === 7 && record.calls.length === 8);
    await waitFor(async () => (await databases()).size === 4);
    expect(new Set((await databases()).values())).toEqual(new Set([3]));
    expect(await used()).toEqual(['db3']);
  });

  it('is kept through connections that break in the middle of becoming ready, and no rejection is left alone', async () => {
    const rejections: unknown[] = [];
    const onRejection = (error: unknown): void => void rejections.push(error);
    process.on('unhandledRejection', onRejection);
    const record = new HandlingRecord();
    const topic = uniqueName('topic');
    const proxy = await mq.proxy();
    const instance = await mq.open({ redis: { port: proxy.port, db: 3 }, failFast: true, defaultPartitionCount: 2 });
    await instance.start({ topic, group: 'g', handle: record.handler('owner') });
    let n = 0;
    for (const round of numbers(1, 60)) {
      // From the connect to well after the last command of the handshake.
      await sleep((round * 7) % 50);
      proxy.cutAll();
      if (round % 10 === 0) await instance.producer.send(topic, { n: n++ }, { timeoutMs: 10_000 });
    }
    await waitFor(() => record.handled === n);
    await waitFor(async () => (await databases()).size === 4);
    expect(new Set((await databases()).values())).toEqual(new Set([3]));
    expect(await used()).toEqual(['db3']);
    process.off('unhandledRejection', onRejection);
    expect(rejections).toEqual([]);
  });

  it.each([true, false])(
    'that the server does not have fails the boot (failFast: %s), with nothing written',
    async (failFast) => {
      await expect(
        mq.open({ redis: { port: mq.redis.port, db: 99 }, failFast, bootTimeoutMs: 500 }),
      ).rejects.toMatchObject({
        code: expect.stringMatching(/^MQ_REDIS_(NOT_ALLOWED|UNREACHABLE)$/) as string,
        message: expect.stringContaining('DB index is out of range') as string,
      });
      expect(await used()).toEqual(['db3']);
    },
  );
});

describeWithServer('credentials', () => {
  const mq = useMq({ args: ['--requirepass', 'secret'] });

  it.each([
    ['a wrong password', { password: 'wrong' }, 'WRONGPASS'],
    ['a wrong user', { username: 'nobody', password: 'secret' }, 'WRONGPASS'],
    ['none', {}, 'NOAUTH'],
    ['none, and no ready check', { enableReadyCheck: false }, 'NOAUTH'],
  ])('that are not right fail the boot with the reason: %s', async (_, credentials, reason) => {
    const redis = { port: mq.redis.port, ...credentials };
    const refusal = { code: 'MQ_REDIS_NOT_ALLOWED', message: expect.stringContaining(reason) as string };
    await expect(mq.open({ redis })).rejects.toMatchObject(refusal);
    await expect(mq.open({ redis, failFast: true, bootTimeoutMs: 400 })).rejects.toMatchObject({
      message: expect.stringContaining(reason) as string,
    });
  });

  it.each([{ password: 'secret' }, { username: 'default', password: 'secret' }])(
    'that are right work: %j',
    async (right) => {
      const instance = await mq.open({ redis: { port: mq.redis.port, ...right }, failFast: true });
      expect(await instance.runtime.admin.listTopics()).toEqual({ items: [], cursor: null });
    },
  );
});
