import type { Cluster, Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { startCluster } from './cluster.js';
import { TestInstance } from './engine.js';
import { describeWithServer, startRedis } from './redis-server.js';
import { uniqueName } from './unique-name.js';

/** One kind of Redis, and instances on it that end with their test. */
export interface RedisKind {
  readonly client: Redis | Cluster;
  readonly keys: Keys;
  /** What an instance in another process needs to find this one. */
  readonly options: MqOptions;
  open(options?: MqOptions): Promise<TestInstance>;
}

/** The same tests on a single Redis and on a Cluster of three masters. */
export function onEachKind(name: string, tests: (kind: RedisKind) => void): void {
  describe(`${name}, on a single Redis`, () => tests(useKind('single')));
  describeWithServer(`${name}, on a Cluster of three masters`, () => tests(useKind('cluster')));
}

function useKind(kind: 'single' | 'cluster'): RedisKind {
  let redis: MqOptions['redis'];
  let client: Redis | Cluster;
  let end: () => Promise<unknown>;
  let prefixes: { keyPrefix: string; streamKeyPrefix: string };
  const open: TestInstance[] = [];
  beforeAll(async () => {
    if (kind === 'single') {
      const server = await startRedis();
      redis = server.url;
      client = server.client();
      end = () => server.stop();
    } else {
      const cluster = await startCluster();
      redis = { cluster: { nodes: cluster.startupNodes } } as MqOptions['redis'];
      client = cluster.client();
      end = () => cluster.stop();
    }
  });
  beforeEach(() => (prefixes = { keyPrefix: uniqueName('mq'), streamKeyPrefix: uniqueName('data') }));
  afterEach(async () => {
    for (const instance of open.splice(0).reverse()) await instance.close();
  });
  afterAll(() => end());
  return {
    get client() {
      return client;
    },
    get keys() {
      return new Keys(prefixes.keyPrefix, prefixes.streamKeyPrefix);
    },
    get options() {
      return { redis, failFast: true, ...prefixes };
    },
    async open(options = {}) {
      const instance = await TestInstance.open({ redis, failFast: true, ...prefixes, ...options });
      open.push(instance);
      return instance;
    },
  };
}
