import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { createClient } from './create-client.js';
import type { RedisOption } from './redis-option.js';

const made: (Redis | Cluster)[] = [];
const keep = <C extends Redis | Cluster>(client: C): C => (made.push(client), client);
const single = (option: RedisOption | undefined, timeoutMs: number | null = 5_000): RedisOptions =>
  (keep(createClient(option, timeoutMs, 'app:command')) as Redis).options;
const cluster = (option: RedisOption): Cluster['options'] =>
  (keep(createClient(option, 5_000, 'app:command')) as Cluster).options;
const lazy = (options: RedisOptions = {}): Redis => keep(new Redis({ ...options, lazyConnect: true }));
const lazyCluster = (options: ConstructorParameters<typeof Cluster>[1] = {}): Cluster =>
  keep(new Cluster([{ host: 'node-1', port: 7_000 }], { ...options, lazyConnect: true }));

afterEach(() => {
  for (const client of made.splice(0)) client.disconnect();
});

const nodes = [{ host: 'node-1', port: 7_000 }];

describe('createClient', () => {
  /** What the guarantees rest on, whatever the user's option says. */
  const pinned = {
    connectionName: 'app:command',
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableAutoPipelining: false,
    commandTimeout: undefined,
    blockingTimeout: undefined,
    socketTimeout: 5_000,
    connectTimeout: 5_000,
    protocol: 2,
    replyMapping: 'legacy',
    stringNumbers: false,
  };
  const opposite: RedisOptions = {
    connectionName: 'theirs',
    lazyConnect: false,
    enableOfflineQueue: true,
    autoResendUnfulfilledCommands: true,
    maxRetriesPerRequest: 20,
    enableAutoPipelining: true,
    commandTimeout: 1,
    blockingTimeout: 1,
    socketTimeout: 1,
    connectTimeout: 1,
    protocol: 3,
    replyMapping: 'resp3',
    stringNumbers: true,
    retryStrategy: () => null,
    reconnectOnError: () => 2,
  };
  const query = new URLSearchParams(
    Object.entries(opposite).map(([name, value]): [string, string] => [
      name,
      typeof value === 'function' ? 'x' : String(value),
    ]),
  );

  it.each<[string, () => RedisOption | undefined]>([
    ['nothing', () => undefined],
    ['a URL', () => 'redis://redis.internal:6380/2'],
    [
      'a URL whose query says otherwise',
      () => `redis://redis.internal:6380/2?${query.toString().replace('replyMapping=resp3', '')}`,
    ],
    ['a socket', () => '/var/run/redis.sock'],
    ['options that say otherwise', () => ({ host: 'redis.internal', ...opposite })],
    ['Sentinel', () => ({ sentinels: [{ host: 's1' }], name: 'mymaster', ...opposite })],
    ['a client that says otherwise', () => lazy(opposite)],
  ])('pins what the guarantees rest on: %s', (_, option) => {
    const options = single(option());
    expect(options).toMatchObject(pinned);
    expect(options.retryStrategy!(1)).toBeGreaterThan(0);
    expect(options.reconnectOnError!(new Error('READONLY as anyone may write'))).toBe(false);
    const readonly = Object.assign(new Error("READONLY You can't write against a read only replica."), {
      name: 'ReplyError',
    });
    expect(options.reconnectOnError!(readonly)).toBe(true);
  });

  it.each<[string, () => RedisOption]>([
    [
      'a description that says otherwise',
      () => ({ cluster: { nodes, options: { redisOptions: opposite, ...clusterOpposite } } }),
    ],
    ['a client that says otherwise', () => lazyCluster({ redisOptions: opposite, ...clusterOpposite })],
  ])('pins what the guarantees rest on: a cluster by %s', (_, option) => {
    const { redisOptions, ...options } = cluster(option());
    const { enableOfflineQueue: _ours, ...ofNodes } = pinned;
    expect(redisOptions).toMatchObject(ofNodes);
    expect(options).toMatchObject({
      lazyConnect: true,
      enableOfflineQueue: true,
      enableAutoPipelining: false,
      scaleReads: 'master',
      retryDelayOnFailover: 0,
    });
    expect(options.clusterRetryStrategy!(1)).toBeGreaterThan(0);
  });
  const clusterOpposite = {
    enableOfflineQueue: false,
    enableAutoPipelining: true,
    scaleReads: 'all',
    retryDelayOnFailover: 100,
    clusterRetryStrategy: () => null,
  } as const;

  it('keeps where Redis is and who we are', () => {
    expect(single('rediss://user:p%40ss@redis.internal:6380/2')).toMatchObject({
      host: 'redis.internal',
      port: 6380,
      db: 2,
      username: 'user',
      password: 'p@ss',
      tls: true,
    });
    expect(single('/var/run/redis.sock')).toMatchObject({ path: '/var/run/redis.sock' });
    expect(single({ host: 'h', port: 1, password: 'p', tls: { servername: 's' } })).toMatchObject({
      host: 'h',
      port: 1,
      password: 'p',
      tls: { servername: 's' },
    });
    expect(single(lazy({ host: 'h', port: 1, db: 3, username: 'u' }))).toMatchObject({
      host: 'h',
      port: 1,
      db: 3,
      username: 'u',
    });
    expect(single(undefined)).toMatchObject({ host: 'localhost', port: 6379, db: 0 });
    expect(cluster({ cluster: { nodes, options: { natMap: {}, redisOptions: { password: 'p' } } } })).toMatchObject({
      natMap: {},
      redisOptions: { password: 'p' },
    });
  });

  it('asks the sentinels for ever, with no extra connections to them, also with a client of the user’s', () => {
    const option: RedisOptions = { sentinels: [{ host: 's1' }], name: 'mymaster', sentinelRetryStrategy: () => null };
    for (const options of [single(option), single(lazy(option))]) {
      expect(options).toMatchObject({ sentinels: [{ host: 's1' }], name: 'mymaster', failoverDetector: false });
      expect(options.sentinelRetryStrategy!(100)).toBeGreaterThan(0);
    }
  });

  it('lets a connection that blocks wait', () => {
    expect(single('redis://redis.internal?socketTimeout=1', null)).toMatchObject({
      socketTimeout: undefined,
      connectTimeout: 10_000,
    });
    expect(single({ socketTimeout: 1 }, null)).toMatchObject({ socketTimeout: undefined });
    expect(single(lazy({ socketTimeout: 1, commandTimeout: 1 }), null)).toMatchObject({
      socketTimeout: undefined,
      commandTimeout: undefined,
    });
  });

  it('tries again for ever, at least every second, never all at once', () => {
    const { retryStrategy } = single(undefined);
    for (const [times, ceiling] of [
      [1, 50],
      [2, 100],
      [5, 800],
      [6, 1_000],
      [1_000_000, 1_000],
    ] as const) {
      const delays = Array.from({ length: 50 }, () => retryStrategy!(times) as number);
      expect(Math.min(...delays)).toBeGreaterThanOrEqual(ceiling / 2);
      expect(Math.max(...delays)).toBeLessThanOrEqual(ceiling);
      expect(new Set(delays).size).toBeGreaterThan(1);
    }
  });

  it.each<[string, () => Redis | Cluster]>([
    ['client', () => lazy({ host: 'h' })],
    ['cluster', () => lazyCluster()],
  ])('takes the user’s %s for a pattern: it is neither used nor connected nor changed', (_, make) => {
    const theirs = make();
    const before = { ...theirs.options };
    const ours = keep(createClient(theirs, 5_000, 'app:command'));
    expect(ours).not.toBe(theirs);
    expect([ours.status, theirs.status]).toEqual(['wait', 'wait']);
    expect(theirs.options).toEqual(before);
    ours.disconnect();
    expect(theirs.status).toBe('wait');
  });

  it('connects nothing by itself', () => {
    for (const option of [undefined, 'redis://h?lazyConnect=', { host: 'h' }, { cluster: { nodes } }]) {
      expect(keep(createClient(option, 5_000, 'x')).status).toBe('wait');
    }
  });
});
