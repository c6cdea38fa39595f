import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { redisOptionProblems } from './redis-option.js';

const made: (Redis | Cluster)[] = [];
const keep = <C extends Redis | Cluster>(client: C): C => (made.push(client), client);
const lazy = (options: RedisOptions = {}): Redis => keep(new Redis({ ...options, lazyConnect: true }));
const lazyCluster = (options: ConstructorParameters<typeof Cluster>[1] = {}): Cluster =>
  keep(new Cluster([{ host: 'node-1', port: 7_000 }], { ...options, lazyConnect: true }));

afterEach(() => {
  for (const client of made.splice(0)) client.disconnect();
});

const nodes = [{ host: 'node-1', port: 7_000 }];

describe('redisOptionProblems', () => {
  it.each<[string, unknown]>([
    ['nothing, which is localhost', undefined],
    ['a URL', 'redis://user:p%40ss@redis.internal:6380/2'],
    ['a TLS URL', 'rediss://redis.internal'],
    ['a URL with an IPv6 address', 'redis://[::1]:6379'],
    ['a socket', '/var/run/redis.sock'],
    ['no options', {}],
    ['options', { host: 'redis.internal', port: 6380, db: 2, password: undefined }],
    ['a socket in options', { host: undefined, path: '/var/run/redis.sock' }],
    ['Sentinel', { sentinels: [{ host: 's1', port: 26379 }], name: 'mymaster' }],
    ['a cluster', { cluster: { nodes } }],
    [
      'a cluster by URLs and ports',
      { cluster: { nodes: ['redis://node-1:7000', 7001], options: { redisOptions: { db: 0 } } } },
    ],
  ])('finds none with %s', (_, option) => {
    expect(redisOptionProblems(option)).toEqual([]);
  });

  it('finds none with a client of the user’s', () => {
    expect(redisOptionProblems(lazy())).toEqual([]);
    expect(redisOptionProblems(lazyCluster())).toEqual([]);
  });

  const KEY_PREFIX = expect.stringMatching(
    /^redis: ioredis' keyPrefix is not supported.*keyPrefix and streamKeyPrefix$/,
  ) as string;
  const NO_REPLICA = 'redis: readOnly connections and replicas cannot be used, every step of the queue writes';
  const SHAPE = 'redis must be a URL as text, ioredis options, { cluster: { nodes } } or an ioredis client';
  const DATABASE = 'redis: what follows the host in the URL must be the number of the database';
  const TEXT = 'redis: a string must be a URL that begins with redis:// or rediss://, or the path of a socket';
  const UNREADABLE = 'redis: the URL cannot be read; special characters in a password must be percent-encoded';
  const NODES = 'redis.cluster.nodes must be an array that names at least one node';

  it.each<[unknown, string[]]>([
    [null, [SHAPE]],
    [6379, [SHAPE]],
    [true, [SHAPE]],
    [() => 'redis://localhost', [SHAPE]],
    [['redis://localhost'], [SHAPE]],
    [new URL('redis://localhost'), [SHAPE]],
    ['', [TEXT]],
    ['localhost:6379', [TEXT]],
    ['http://localhost:6379', [TEXT]],
    ['//localhost:6379', [TEXT]],
    ['/', [TEXT]],
    ['${REDIS_URL}', [TEXT]],
    ['redis://', ['redis: the URL names no host']],
    ['redis:///2', ['redis: the URL names no host']],
    ['redis://localhost:port', [UNREADABLE]],
    ['redis://user:p#ss@localhost', [UNREADABLE]],
    ['redis://user:p%zz@localhost', [UNREADABLE]],
    ['redis://localhost/orders', [DATABASE]],
    ['redis://localhost/1x', [DATABASE]],
    ['redis://localhost/-1', [DATABASE]],
    ['redis://localhost/1/2', [DATABASE]],
    ['redis://localhost:0', ['redis.port must be a port from 1 to 65535; got 0']],
    ['redis://localhost:70000', [UNREADABLE]],
    // ioredis would connect without TLS.
    ['REDISS://localhost', [TEXT]],
    ['redis://localhost?tls=true', [expect.stringMatching(/^redis\.tls must be true, an object such as/) as string]],
    ['redis://localhost?enableReadyCheck=false', ['redis.enableReadyCheck must be true or false; got "false"']],
    ['redis://localhost?keyPrefix=app:', [KEY_PREFIX]],
    ['/var/run/redis.sock?readOnly=true', [NO_REPLICA]],
    [{ keyPrefix: 'app:' }, [KEY_PREFIX]],
    [{ readOnly: true }, [NO_REPLICA]],
    [{ db: -1 }, ['redis.db must be an integer from 0; got -1']],
    [{ host: undefined, port: 6379 }, ['redis.host is given but empty; leave it out for localhost']],
    [{ host: '' }, ['redis.host is given but empty; leave it out for localhost']],
    [{ url: 'redis://redis.internal' }, ['redis.url is not an option of ioredis; give the URL itself']],
    [
      { sentinels: [], name: 'mymaster' },
      ['redis: Sentinel needs at least one of sentinels, and the name of the master'],
    ],
    [{ sentinels: [{ host: 's1' }] }, ['redis: Sentinel needs at least one of sentinels, and the name of the master']],
    [{ sentinels: [{ host: 's1' }], name: 'mymaster', role: 'slave' }, [NO_REPLICA]],
    [
      { keyPrefix: 'app:', readOnly: true, host: null },
      ['redis.host is given but empty; leave it out for localhost', KEY_PREFIX, NO_REPLICA],
    ],
    [{ cluster: null }, [NODES]],
    [{ cluster: {} }, [NODES]],
    [{ cluster: { nodes: [] } }, [NODES]],
    [{ cluster: { nodes: 'node-1:7000' } }, [NODES]],
    [
      { cluster: { nodes: [undefined, { host: '', port: 1 }, ''] } },
      [
        'redis.cluster.nodes[0] must be { host, port }, a URL or a port',
        'redis.cluster.nodes[1].host is given but empty; leave it out for localhost',
        'redis.cluster.nodes[2] must be { host, port }, a URL or a port',
      ],
    ],
    [{ cluster: { nodes, options: { keyPrefix: 'app:' } } }, [KEY_PREFIX]],
    [{ cluster: { nodes, options: { redisOptions: { keyPrefix: 'app:' } } } }, [KEY_PREFIX]],
    [{ cluster: { nodes, options: { redisOptions: { db: 2 } } } }, ['redis: db must be 0 in Cluster']],
    [{ cluster: { nodes, options: { redisOptions: { readOnly: true } } } }, [NO_REPLICA]],
    [{ cluster: { nodes: { host: 'node-1' } } }, [NODES]],
    [
      { cluster: { nodes, redisOptions: {} }, password: 'secret' },
      [
        'redis.password has no effect beside cluster; see redis.cluster.options',
        'redis.cluster.redisOptions is neither nodes nor options',
      ],
    ],
    [
      { cluster: { nodes: ['rediss://user:secret@node-1:7000/3', { host: 'node-2:7000', port: '70x' }, 0] } },
      [
        'redis: db must be 0 in Cluster',
        ...['username', 'password', 'tls'].map(
          (name) =>
            `redis.cluster.nodes[0] has ${name}, which is for all nodes: give it as redis.cluster.options.redisOptions.${name}`,
        ),
        'redis.cluster.nodes[1].host must be a host name or an address, without port and scheme; got "node-2:7000"',
        'redis.cluster.nodes[1].port must be a port from 1 to 65535; got "70x"',
        'redis.cluster.nodes[2].port must be a port from 1 to 65535; got 0',
      ],
    ],
    [
      { cluster: { nodes, options: { redisOptions: { path: '/tmp/r.sock', sentinels: [{ host: 's' }] } } } },
      ['path', 'sentinels'].map((name) => `redis.cluster.options.redisOptions.${name} cannot be used in Cluster`),
    ],
    [
      { cluster: { nodes, options: 'scaleReads' } },
      [expect.stringContaining('redis.cluster.options must be') as string],
    ],
    [
      { sentinels: ['s1', { host: 's2', port: 0 }], name: 'm', tls: {} },
      [
        'redis.sentinels[0] must be { host, port }',
        'redis.sentinels[1].port must be a port from 1 to 65535; got 0',
        'redis: with Sentinel, tls and enableTLSForSentinelMode: true go together',
      ],
    ],
    [{ name: 'mymaster' }, ['redis.name is the name of a master that sentinels know, and sentinels are not given']],
    [{ username: 'app', host: 'h' }, ["redis.username is given without a password; an empty one is given as ''"]],
    [{ password: 1234 }, ['redis.password must be text']],
    [{ hots: 'redis.internal' }, ['redis.hots is not an option of ioredis; did you mean redis.host?']],
    [{ Password: 's' }, ['redis.Password is not an option of ioredis; did you mean redis.password?']],
    [
      { socket: { host: 'h' }, database: 3 },
      [
        'redis.socket is not an option of ioredis; give host and port themselves, and tls',
        'redis.database is not an option of ioredis; it is called db',
      ],
    ],
    [
      { tls: { ca: '/etc/ssl/ca.pem' } },
      ['redis.tls.ca must be the text of the certificate (PEM), not the name of its file'],
    ],
    [{ tls: { cert: 'x' } }, [expect.stringMatching(/^redis\.tls cannot be used for TLS: /) as string]],
    [{ host: '${REDIS_HOST}' }, [expect.stringContaining('redis.host must be a host name') as string]],
    [{ ttl: 60, isGlobal: true, extra: {} }, []],
  ])('%j: %j', (option, problems) => {
    expect(redisOptionProblems(option)).toEqual(problems);
  });

  it('CLU-08 finds what a client of the user’s was made with', () => {
    expect(redisOptionProblems(lazy({ keyPrefix: 'app:' }))).toEqual([KEY_PREFIX]);
    expect(redisOptionProblems(lazy({ readOnly: true }))).toEqual([NO_REPLICA]);
    expect(redisOptionProblems(lazyCluster({ keyPrefix: 'app:' }))).toEqual([KEY_PREFIX]);
    expect(redisOptionProblems(lazyCluster({ redisOptions: { db: 3 } }))).toEqual(['redis: db must be 0 in Cluster']);
  });

  const PROMISE = `${SHAPE}; a promise has to be awaited, in the factory of forRootAsync()`;
  class NodeRedis {
    duplicate = (): NodeRedis => new NodeRedis();
    disconnect(): void {}
  }
  class Glide {
    defaultDatabase = 0;
    customCommand(): void {}
    close(): void {}
  }
  it.each<[string, unknown, string]>([
    ['a client of node-redis', new NodeRedis(), 'redis: this client is not one of ioredis'],
    ['a client of Valkey Glide', new Glide(), SHAPE],
    ['a service that holds a client', new (class RedisService {})(), SHAPE],
    ['a pipeline', lazy().pipeline(), SHAPE],
    ['functions', { get: () => null, set: () => null }, SHAPE],
    ['a promise of a client', Promise.resolve(lazy()), PROMISE],
    ['a Map', new Map([['host', 'h']]), SHAPE],
    ['a Buffer', Buffer.from('redis://localhost'), SHAPE],
    ['the class', Redis, SHAPE],
  ])('refuses %s', (_, option, problem) => {
    expect(redisOptionProblems(option)).toEqual([problem]);
  });

  it('survives options that throw when they are read', () => {
    const thrower = {
      get host(): string {
        throw new Error('no host today');
      },
    };
    expect(redisOptionProblems(thrower)).toEqual(['redis cannot be read: no host today']);
  });

  it('takes options of a class of the user’s', () => {
    class RedisConfig {
      host = 'redis.internal';
      port = '6380';
    }
    expect(redisOptionProblems(new RedisConfig())).toEqual([]);
  });

  it('never repeats a password', () => {
    const problems = redisOptionProblems('redis://user:s#cret@localhost');
    expect(problems.join()).not.toContain('cret');
  });
});
