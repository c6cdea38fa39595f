import { existsSync } from 'node:fs';
import { Redis, type RedisOptions } from 'ioredis';
import { ServerProcess } from '../../scripts/server-process.mjs';
import { startCluster } from '../support/cluster.js';
import {
  describeWithServer,
  requireServerBinary,
  startRedis,
  type TestRedis,
  uniqueName,
} from '../support/redis-server.js';
import { startSentinel } from '../support/sentinel.js';
import { mentions, startProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { deferred, waitFor } from '../support/wait-for.js';

describe('waitFor', () => {
  it('gives what the condition gives as soon as that is truthy', async () => {
    let looks = 0;
    await expect(waitFor(() => (++looks === 3 ? 'there' : ''))).resolves.toBe('there');
  });

  it('says what it waited for, what it saw last and what was thrown', async () => {
    const never = waitFor(() => 0, { timeoutMs: 20, describe: 'a third call' });
    await expect(never).rejects.toThrow('waited 20 ms in vain for a third call (last: 0)');
    const cause = new Error('boom');
    const throwing = waitFor(() => Promise.reject(cause), { timeoutMs: 20, describe: 'calm' });
    await expect(throwing).rejects.toMatchObject({ cause, message: expect.stringContaining('boom') });
  });

  it('gives up a condition that never answers', async () => {
    await expect(waitFor(() => deferred().promise, { timeoutMs: 20 })).rejects.toThrow('no answer');
  });
});

describe('startRedis', () => {
  it('gives each test file a Redis that looks the same wherever it comes from', async () => {
    const redis = await startRedis();
    const client = redis.client();
    await client.set(`${redis.keyPrefix}:a`, '1');
    await expect(client.get(`${redis.keyPrefix}:a`)).resolves.toBe('1');
    await redis.stop();
    await waitFor(() => client.status === 'end');
  });
});

describeWithServer('a server process of our own', () => {
  let redis: TestRedis;
  const start = async (options?: Parameters<typeof startRedis>[0]): Promise<Redis> => {
    redis = await startRedis(options);
    return redis.client({ retryStrategy: () => 20 });
  };
  afterEach(() => redis.stop());

  it('keeps its data through a SIGKILL with aof', async () => {
    const client = await start({ aof: true });
    await client.set('a', '1');
    await redis.kill('SIGKILL');
    await redis.restart();
    await expect(client.get('a')).resolves.toBe('1');
  });

  it('comes back empty without', async () => {
    const client = await start();
    await client.set('a', '1');
    const { pid } = redis;
    await redis.restart();
    expect(redis.pid).not.toBe(pid);
    await expect(client.get('a')).resolves.toBeNull();
  });

  it('answers nothing while it is paused', async () => {
    const client = await start();
    await client.ping();
    redis.pause();
    let answered = false;
    const answer = client.ping().finally(() => (answered = true));
    await expect(waitFor(() => answered, { timeoutMs: 100 })).rejects.toThrow('in vain');
    redis.resume();
    await expect(answer).resolves.toBe('PONG');
  });

  it('takes further arguments', async () => {
    const client = await start({ args: ['--maxmemory', '5mb'] });
    await expect(client.config('GET', 'maxmemory')).resolves.toEqual(['maxmemory', '5242880']);
  });

  it('leaves nothing behind', async () => {
    await start();
    const server = await ServerProcess.start(requireServerBinary());
    const { pid } = server;
    await server.stop();
    expect(existsSync(server.dir)).toBe(false);
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
    await server.stop();
  });

  it('reports what the server said when it does not start', async () => {
    await start();
    const start2 = ServerProcess.start(requireServerBinary(), { args: ['--nonsense', '1'] });
    await expect(start2).rejects.toThrow(/did not become ready.*nonsense/s);
  });
});

describe('startProxy', () => {
  let redis: TestRedis;
  let direct: Redis;
  let proxy: TcpProxy;
  let clients: Redis[];
  const connect = (options: RedisOptions = {}): Redis => {
    const defaults: RedisOptions = { maxRetriesPerRequest: 0, retryStrategy: () => 20, disconnectTimeout: 100 };
    const client = new Redis(proxy.port, '127.0.0.1', { ...defaults, ...options });
    client.on('error', () => {});
    clients.push(client);
    return client;
  };

  beforeAll(async () => {
    redis = await startRedis();
    direct = redis.client();
  });
  afterAll(() => redis.stop());
  beforeEach(async () => {
    proxy = await startProxy(redis.port);
    clients = [];
  });
  afterEach(async () => {
    for (const client of clients) client.disconnect();
    await proxy.stop();
  });

  it('passes everything on, large values and pipelines too', async () => {
    const client = connect();
    const key = uniqueName('key');
    const value = Buffer.alloc(3_000_000, '\r\n$5*1');
    await client.set(key, value);
    expect((await client.getBuffer(key))?.equals(value)).toBe(true);
    const replies = await Promise.all(Array.from({ length: 1000 }, (_, n) => client.echo(`${n}`)));
    expect(replies).toEqual(Array.from({ length: 1000 }, (_, n) => `${n}`));
    expect(proxy.connections()).toBe(1);
  });

  it('cutAll ends open connections and serves new ones', async () => {
    const client = connect();
    await client.ping();
    const closed = new Promise((resolve) => client.once('close', resolve));
    proxy.cutAll();
    await closed;
    expect(proxy.connections()).toBe(0);
    await waitFor(() => client.status === 'ready');
    await expect(client.ping()).resolves.toBe('PONG');
  });

  it('refuse leaves open connections and lets no new one in', async () => {
    const open = connect();
    await open.ping();
    await proxy.refuse(true);
    const late = connect({ retryStrategy: () => null });
    const error = await new Promise((resolve) => late.once('error', resolve));
    expect(error).toMatchObject({ code: 'ECONNREFUSED' });
    await expect(open.ping()).resolves.toBe('PONG');
    await proxy.refuse(false);
    await expect(connect().ping()).resolves.toBe('PONG');
  });

  it('blackhole swallows both ways, for good on the connections that lost something', async () => {
    const key = uniqueName('key');
    const client = connect();
    await client.ping();
    proxy.blackhole(true);
    const lost = client.set(key, '1').catch((error: Error) => error);
    await expect(waitFor(() => direct.get(key), { timeoutMs: 100 })).rejects.toThrow('in vain');
    proxy.blackhole(false);
    await expect(connect().ping()).resolves.toBe('PONG');
    await expect(direct.get(key)).resolves.toBeNull();
    client.disconnect();
    await expect(lost).resolves.toBeInstanceOf(Error);
  });

  it('delayReplies holds replies back in order', async () => {
    const client = connect();
    await client.ping();
    proxy.delayReplies(100);
    const sentAt = performance.now();
    await expect(Promise.all([client.echo('a'), client.echo('b')])).resolves.toEqual(['a', 'b']);
    expect(performance.now() - sentAt).toBeGreaterThan(95);
  });

  it('cutOnReply cuts before the reply that matches', async () => {
    const client = connect();
    const key = uniqueName('key');
    await client.ping();
    const cut = proxy.cutOnReply(mentions('unheard'));
    await expect(client.echo('heard')).resolves.toBe('heard');
    const replies = await Promise.allSettled([client.set(key, '1'), client.echo('unheard')]);
    await cut;
    expect(replies[1].status).toBe('rejected');
    await expect(direct.get(key)).resolves.toBe('1');
  });

  it('dropNextReplyMatching loses exactly one reply, after the server has done the work', async () => {
    const client = connect();
    const key = uniqueName('key');
    await client.ping();
    const dropped = proxy.dropNextReplyMatching(mentions('INCR', key));
    const replies = await Promise.allSettled([client.echo('before'), client.incr(key), client.echo('after')]);
    await dropped;
    expect(replies.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
    await expect(direct.get(key)).resolves.toBe('1');
    await waitFor(() => client.status === 'ready');
    await expect(client.incr(key)).resolves.toBe(2);
  });

  it('dropNextReplyMatching counts replies of every shape', async () => {
    for (const protocol of [2, 3] as const) {
      const client = connect({ protocol });
      const key = uniqueName('stream');
      await client.hset(`${key}:h`, { a: '1', b: '2' });
      const dropped = proxy.dropNextReplyMatching(mentions('lost'));
      const replies = await Promise.allSettled([
        client.xadd(key, '*', 'field', 'value'),
        client.xrange(key, '-', '+'),
        client.get('missing'),
        client.blpop('missing', 0.01),
        client.hgetall(`${key}:h`),
        client.call('NOSUCH'),
        client.multi().ping().ping().exec(),
        client.echo('last'),
        client.echo('lost'),
      ]);
      await dropped;
      const statuses = replies.map(({ status }) => status);
      const others = Array.from({ length: 9 }, (_, n) => (n === 5 || n === 8 ? 'rejected' : 'fulfilled'));
      expect(statuses).toEqual(others);
    }
  });

  it('answerNextMatching puts other words into the mouth of the server', async () => {
    const client = connect();
    const key = uniqueName('key');
    const answered = proxy.answerNextMatching(mentions('INCR', key), '-LOADING soon\r\n');
    const replies = await Promise.allSettled([client.incr(key), client.incr(key)]);
    await answered;
    expect(replies).toMatchObject([{ reason: { message: 'LOADING soon' } }, { value: 2 }]);
  });

  it('pointTo sends new connections elsewhere and leaves the open ones', async () => {
    const other = await startProxy(redis.port);
    const client = connect();
    await client.ping();
    proxy.pointTo(other.port);
    expect(other.connections()).toBe(0);
    await connect().ping();
    expect(other.connections()).toBe(1);
    await client.ping();
    await other.stop();
  });
});

describeWithServer('startCluster', () => {
  it('is whole, and spreads keys over its masters', async () => {
    const cluster = await startCluster({ masters: 3 });
    const client = cluster.client();
    await Promise.all(Array.from({ length: 30 }, (_, n) => client.set(`key-${n}`, n)));
    const sizes = await Promise.all(client.nodes('master').map((node) => node.dbsize()));
    expect(sizes).toHaveLength(3);
    expect(Math.min(...sizes)).toBeGreaterThan(0);
    await cluster.stop();
  });
});

describeWithServer('startSentinel', () => {
  it('makes the replica master when the master is killed', async () => {
    const sentinel = await startSentinel();
    const client = sentinel.client({ sentinelRetryStrategy: () => 100, retryStrategy: () => 100 });
    await client.set('a', '1');
    await expect(sentinel.masterPort()).resolves.toBe(sentinel.master.port);
    await sentinel.master.kill();
    await waitFor(async () => (await sentinel.masterPort()) === sentinel.replica.port, { timeoutMs: 20_000 });
    await waitFor(() => client.set('a', '2').catch(() => false), { timeoutMs: 10_000 });
    await sentinel.stop();
  });
});
