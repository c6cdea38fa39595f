import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { connect, type Socket } from 'node:net';
import { AbstractConnector, Redis, type RedisOptions } from 'ioredis';
import { type RedisClusterOption, redisOptionProblems } from '../../libs/redis-streams-mq/src/redis/redis-option.js';
import { startCluster, type TestCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { describeWithServer, startRedis, type TestRedis, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const BUILT = join(process.cwd(), 'node_modules/ioredis/built');
const throws = (): never => {
  throw new Error('from a function of the user');
};
/** What nobody should give, and somebody will. */
const SILLY: readonly unknown[] = [null, '', 'x', Number.NaN, -1, {}, [], true, throws];
const socket = join(tmpdir(), `${uniqueName('mq')}.sock`);

interface Outcomes {
  /** A message goes through. */
  works: readonly unknown[];
  /** The boot is refused with a sentence that names the option. */
  refused: readonly unknown[];
}

const flag: Outcomes = { works: [undefined, true, false], refused: ['false', '', 0, null] };
const text: Outcomes = { works: [undefined, null], refused: [1_234, true, {}, Number.NaN] };
const delay: Outcomes = { works: [undefined, 0, 50], refused: [-1, 'x', Number.NaN, null] };
const lookup = (host: string, answer: (error: null, address: string) => void): void => answer(null, host);
/** Stand for what is known only when the server runs. */
const OUR_PORT = Symbol('port');
const OUR_PORT_AS_TEXT = Symbol('port as text');

let redis: TestRedis;
let cluster: TestCluster;
const clients: Redis[] = [];
let rejections: unknown[];
const onRejection = (error: unknown): void => void rejections.push(error);

beforeAll(async () => {
  redis = await startRedis({ args: ['--unixsocket', socket] });
});
afterAll(() => redis.stop());
beforeEach(() => {
  rejections = [];
  process.on('unhandledRejection', onRejection);
});
afterEach(() => {
  process.off('unhandledRejection', onRejection);
  for (const client of clients.splice(0)) client.disconnect();
});

/** Proves that the queue works over it: a message is sent and handled. */
async function expectMessagePasses(option: unknown): Promise<void> {
  const topic = uniqueName('topic');
  const instance = await TestInstance.open({
    redis: option,
    failFast: true,
    bootTimeoutMs: 5_000,
    defaultPartitionCount: 1,
  });
  try {
    let handled = 0;
    await instance.start({ topic, group: uniqueName('group'), handle: () => void handled++ });
    await instance.producer.send(topic, { n: 1 });
    await waitFor(() => handled === 1);
  } finally {
    await instance.close();
  }
  expect(rejections).toEqual([]);
}

/** Names of the members of an interface in a declaration file of the ioredis that is installed. */
function members(file: string, from: string): string[] {
  const source = readFileSync(join(BUILT, file), 'utf8');
  const body = source.slice(source.indexOf(from));
  return [...body.slice(0, body.indexOf('\n}')).matchAll(/^ {4}(\w+)\??:/gm)].map((match) => match[1]!);
}

const known = (value: unknown): unknown =>
  value === OUR_PORT ? redis.port : value === OUR_PORT_AS_TEXT ? `${redis.port}` : value;

async function expectRefused({ refused }: Outcomes, name: string, option: (value: unknown) => unknown): Promise<void> {
  for (const value of refused) {
    const problems = redisOptionProblems(option(value)).join('\n');
    expect([value, problems]).toEqual([value, expect.stringContaining(name)]);
    await expect(TestInstance.open({ redis: option(value) })).rejects.toMatchObject({ code: 'MQ_INVALID_OPTIONS' });
  }
}

/** A connector of the user's, as ioredis allows. */
class OwnConnector extends AbstractConnector {
  constructor(private readonly options: RedisOptions) {
    super(100);
  }

  override connect(): Promise<Socket> {
    this.connecting = true;
    this.stream = connect(this.options.port!, this.options.host);
    return Promise.resolve(this.stream as Socket);
  }
}

describeWithServer('options of a client', () => {
  const table: Record<string, Outcomes> = {
    host: { works: ['127.0.0.1', 'localhost'], refused: ['', ' ', 5, 'localhost:6379', 'redis://localhost', null] },
    port: { works: [OUR_PORT, OUR_PORT_AS_TEXT], refused: [0, -1, 70_000, '6379x', '', Number.NaN, 1.5, null, true] },
    path: { works: [undefined, null, socket], refused: ['', 5, {}] },
    family: { works: [undefined, 0, 4], refused: ['4', 5, -1, Number.NaN, null] },
    tls: {
      works: [undefined, null, false],
      refused: ['x', 5, [], { ca: '/ca.pem' }, { key: 'x' }, { minVersion: '1' }],
    },
    username: { works: [undefined, null, ''], refused: ['app', 5, {}] },
    password: text,
    db: { works: [undefined, 0, 3, '3'], refused: [-1, 1.5, '', 'x', '3x', Number.NaN, Infinity, null, true] },
    keepAlive: { works: [undefined, 0, 1_000], refused: ['x', -1, 0.5, Number.NaN, true, null] },
    noDelay: flag,
    disableClientInfo: flag,
    clientInfoTag: { works: [undefined, null, 'tag', 'a tag'], refused: [5, {}, true] },
    enableReadyCheck: flag,
    Connector: { works: [undefined, null, OwnConnector], refused: ['x', 5, {}] },
    role: { works: [undefined, 'master'], refused: ['replica', 5, null] },
    name: { works: [undefined, null], refused: ['mymaster', '', 5] },
    sentinels: { works: [undefined, null], refused: [[], {}, 'host', [5], [{ host: 's', port: 0 }], [{ host: '' }]] },
    sentinelUsername: text,
    sentinelPassword: text,
    sentinelCommandTimeout: { works: [undefined, 1_000], refused: [0, -1, 'x', Number.NaN] },
    enableTLSForSentinelMode: flag,
    updateSentinels: flag,
    natMap: { works: [undefined, null, {}, throws], refused: [5, 'x', true] },
    readOnly: { works: [undefined, false], refused: [true] },
    keyPrefix: { works: [undefined, ''], refused: ['app:', 5] },
  };
  const withoutEffect = (
    'retryStrategy commandTimeout blockingTimeout blockingTimeoutGrace socketTimeout connectTimeout ' +
    'disconnectTimeout connectionName autoResubscribe autoResendUnfulfilledCommands reconnectOnError ' +
    'stringNumbers protocol replyMapping monitor maxRetriesPerRequest maxLoadingRetryTime ' +
    'enableAutoPipelining autoPipeliningIgnoredCommands offlineQueue commandQueue enableOfflineQueue ' +
    'lazyConnect scripts himportFieldsets showFriendlyErrorStack sentinelRetryStrategy ' +
    'sentinelReconnectStrategy sentinelMaxConnections failoverDetector preferredSlaves sentinelTLS'
  ).split(' ');

  it('are all in one of the two lists', () => {
    const known = new Set([
      ...members('redis/RedisOptions.d.ts', 'interface CommonRedisOptions'),
      ...members('connectors/SentinelConnector/index.d.ts', 'interface SentinelConnectionOptions'),
      ...members('utils/Commander.d.ts', 'interface CommanderOptions'),
      'host',
      'port',
      'family',
      'path',
      'disconnectTimeout',
      'tls',
    ]);
    expect(known.size).toBeGreaterThan(50);
    expect([...known].filter((name) => !(name in table) && !withoutEffect.includes(name))).toEqual([]);
  });

  it.each(Object.entries(table))('%s is refused, or works', async (name, outcomes) => {
    const option = (value: unknown): unknown => ({ host: '127.0.0.1', port: redis.port, [name]: known(value) });
    await expectRefused(outcomes, name, option);
    await Promise.all(outcomes.works.map((value) => expectMessagePasses(option(value))));
  });

  it.each(SILLY.map((value) => [inspect(value), value]))('without effect do no harm as %s', async (_, value) => {
    const silly = Object.fromEntries(withoutEffect.map((name) => [name, value]));
    await expectMessagePasses({ ...silly, port: redis.port });
  });

  it('role may not be that of a replica', () => {
    const problem = 'redis: readOnly connections and replicas cannot be used, every step of the queue writes';
    expect(redisOptionProblems({ role: 'slave' })).toEqual([problem]);
  });

  it('without effect do no harm to a template', async () => {
    const scripts = { callBuffer: { lua: 'return 1', numberOfKeys: 0 } };
    const client = new Redis({ port: redis.port, scripts, retryStrategy: throws, reconnectOnError: throws });
    clients.push(client);
    await expectMessagePasses(client);
  });
});

describeWithServer('options of a cluster', () => {
  const nodes = (): RedisClusterOption['cluster']['nodes'] => cluster.startupNodes;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster.stop());

  const table: Record<string, Outcomes> = {
    enableReadyCheck: flag,
    maxRedirections: { works: [undefined, 1, 16], refused: [0, -1, 'x', Number.NaN, null] },
    retryDelayOnClusterDown: delay,
    retryDelayOnTryAgain: delay,
    retryDelayOnMoved: delay,
    slotsRefreshTimeout: { works: [undefined, 1_000], refused: [0, -1, 'x', Number.NaN, null] },
    slotsRefreshInterval: { works: [undefined, 0, 1_000], refused: [-1, 'x', Number.NaN, null] },
    useSRVRecords: { works: [undefined, false], refused: ['false', 0, null] },
    dnsLookup: { works: [undefined, lookup], refused: ['x', 5, {}] },
    resolveSrv: { works: [undefined, lookup], refused: ['x', 5, {}] },
    natMap: { works: [undefined, null, {}, () => null, throws], refused: [5, 'x', true] },
    redisOptions: {
      works: [undefined, null, {}, { db: 0 }, { retryStrategy: throws, protocol: 3, replyMapping: 'resp3' }],
      refused: ['x', 5, { db: 2 }, { path: '/r.sock' }, { password: 5 }, { keyPrefix: 'app:' }],
    },
    keyPrefix: { works: [undefined, ''], refused: ['app:', 5] },
  };
  const withoutEffect = (
    'clusterRetryStrategy clusterNodeRetryStrategy enableOfflineQueue scaleReads retryDelayOnFailover ' +
    'shardedSubscribers lazyConnect enableAutoPipelining autoPipeliningIgnoredCommands scripts ' +
    'himportFieldsets showFriendlyErrorStack'
  ).split(' ');

  it('are all in one of the two lists', () => {
    const known = new Set([
      ...members('cluster/ClusterOptions.d.ts', 'interface ClusterOptions'),
      ...members('utils/Commander.d.ts', 'interface CommanderOptions'),
    ]);
    expect(known.size).toBeGreaterThan(20);
    expect([...known].filter((name) => !(name in table) && !withoutEffect.includes(name))).toEqual([]);
  });

  it.each(Object.entries(table))('%s is refused', async (name, outcomes) => {
    const problem = name === 'redisOptions' ? 'redis' : name;
    await expectRefused(outcomes, problem, (value) => ({ cluster: { nodes: nodes(), options: { [name]: value } } }));
  });

  it.each([0, 1, 2, 3, 4])('work otherwise, together (column %i)', async (column) => {
    const options = Object.fromEntries(Object.entries(table).map(([name, { works }]) => [name, works[column]]));
    await expectMessagePasses({ cluster: { nodes: nodes(), options } });
  });

  it.each([null, Number.NaN, 'x', throws].map((value) => [inspect(value), value]))(
    'without effect do no harm as %s',
    async (_, value) => {
      const options = Object.fromEntries(withoutEffect.map((name) => [name, value]));
      await expectMessagePasses({ cluster: { nodes: nodes(), options } });
    },
  );
});

describeWithServer("a client of the user's", () => {
  const own = (options: RedisOptions = {}): Redis => {
    const client = new Redis({ port: redis.port, ...options });
    client.on('error', () => undefined);
    clients.push(client);
    return client;
  };

  it.each<[string, () => Promise<Redis>]>([
    [
      'that has ended',
      async () => {
        const client = own();
        client.disconnect();
        await waitFor(() => client.status === 'end');
        return client;
      },
    ],
    [
      'that subscribes',
      async () => {
        const client = own();
        await client.subscribe('news');
        return client;
      },
    ],
    [
      'that monitors',
      async () => {
        const client = await own().monitor();
        clients.push(client);
        return client;
      },
    ],
    [
      'that is in the middle of a blocking read',
      async () => {
        const client = own();
        await client.ping();
        client.blpop('nothing', 0).catch(() => undefined);
        return client;
      },
    ],
  ])('%s serves as a template', async (_, make) => {
    const client = await make();
    const { status, mode } = client;
    await expectMessagePasses(client);
    expect([client.status, client.mode]).toEqual([status, mode]);
  });
});
