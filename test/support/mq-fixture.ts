import type { Redis } from 'ioredis';
import type { MqEventMap, MqEventName } from '../../libs/redis-streams-mq/src/core/events.js';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { ComposeDeps } from '../../libs/redis-streams-mq/src/nest/compose.js';
import { TestInstance } from './engine.js';
import { type StartRedisOptions, startRedis, type TestRedis } from './redis-server.js';
import { type TcpProxy, startProxy } from './tcp-proxy.js';

/** A Redis for the whole file, and engine instances and proxies that end with their test. */
export interface MqFixture {
  readonly redis: TestRedis;
  /** For looking at Redis past the engine. */
  readonly client: Redis;
  readonly keys: Keys;
  /** A connected instance on this Redis, or one on what `options.redis` says; with the fixture's key prefixes. */
  open(options?: MqOptions, deps?: Partial<ComposeDeps>): Promise<TestInstance>;
  proxy(): Promise<TcpProxy>;
}

/** Called once at the top of a file or a `describe`; the fixture can be used inside tests and hooks. */
export function useMq(options: StartRedisOptions = {}): MqFixture {
  let redis: TestRedis;
  let client: Redis;
  let prefixes: { keyPrefix: string; streamKeyPrefix: string };
  const closers: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    redis = await startRedis(options);
    client = redis.client();
    prefixes = { keyPrefix: `${redis.keyPrefix}:mq`, streamKeyPrefix: `${redis.keyPrefix}:topic` };
  });
  afterEach(async () => {
    // Instances first, as they were opened last to first: a proxy goes after those that use it.
    for (const close of closers.splice(0).reverse()) await close();
  });
  afterAll(() => redis.stop());
  return {
    get redis() {
      return redis;
    },
    get client() {
      return client;
    },
    get keys() {
      return new Keys(prefixes.keyPrefix, prefixes.streamKeyPrefix);
    },
    async open(given = {}, deps = {}) {
      const place = given.redis === undefined ? { redis: redis.url, failFast: true } : {};
      const instance = await TestInstance.open({ ...place, ...prefixes, ...given }, deps);
      closers.push(() => instance.close());
      return instance;
    },
    async proxy() {
      const proxy = await startProxy(redis.port);
      closers.push(() => proxy.stop());
      return proxy;
    },
  };
}

/** The list grows with every event of that name from now on. */
export function record<E extends MqEventName>({ runtime }: TestInstance, event: E): MqEventMap[E][] {
  const seen: MqEventMap[E][] = [];
  runtime.events.on(event, (payload) => void seen.push(payload));
  return seen;
}
