import { setTimeout as sleep } from 'node:timers/promises';
import type { INestApplicationContext } from '@nestjs/common';
import { DeadLetterQueue, MqAdmin, MqProducer, RedisStreamsMqModule } from 'nestjs-redis-streams-mq';
import { Keys } from '../../../libs/redis-streams-mq/src/core/keys.js';
import type { TestRedis } from '../redis-server.js';
import { startProxy, type TcpProxy } from '../tcp-proxy.js';
import { uniqueName } from '../unique-name.js';
import { waitFor } from '../wait-for.js';
import { quickOptions, startApplication } from './application.js';
import type { Call, EngineUnderTest, HandlerUnderTest } from './engine-under-test.js';

/** The real engine on a real Redis. A crash cuts its connections for good: its leases end by themselves. */
export async function onRedis(redis: TestRedis): Promise<EngineUnderTest> {
  const topic = uniqueName('topic');
  const prefixes = { keyPrefix: `${redis.keyPrefix}:mq`, streamKeyPrefix: `${redis.keyPrefix}:topic` };
  const keys = new Keys(prefixes.keyPrefix, prefixes.streamKeyPrefix);
  const client = redis.client();
  const calls: Call[] = [];
  const closers: (() => Promise<unknown>)[] = [];
  let app: INestApplicationContext;
  let proxy: TcpProxy;
  let begin: () => Promise<void>;

  const engine: EngineUnderTest = {
    topic,
    calls,
    get producer() {
      return app.get(MqProducer);
    },
    get deadLetters() {
      return app.get(DeadLetterQueue);
    },
    get admin() {
      return app.get(MqAdmin);
    },
    async start(handlers: readonly HandlerUnderTest[], options = {}) {
      begin = async () => {
        const through = await startProxy(redis.port);
        const queue = RedisStreamsMqModule.forRoot({
          endpoints: false,
          redis: through.url,
          failFast: true,
          ...prefixes,
          ...quickOptions,
          ...options,
        });
        proxy = through;
        const started = await startApplication(queue, handlers, topic, (call) =>
          calls.push({ ...call, at: Date.now() }),
        );
        app = started;
        closers.push(
          () => started.close(),
          () => through.stop(),
        );
      };
      await begin();
    },
    until: async (condition) => void (await waitFor(condition, { timeoutMs: 20_000 })),
    passes: (ms) => sleep(ms),
    idle: () => sleep(150),
    async crash() {
      await proxy.refuse(true);
      proxy.cutAll();
      await begin();
    },
    async inject(partition, fields) {
      await client.xadd(keys.stream(topic, partition), '*', ...fields);
    },
    letters: async (group) => (await engine.deadLetters.list(topic, { ...(group && { group }), limit: 1_000 })).items,
    async close() {
      await Promise.all(closers.splice(0).map((close) => close()));
    },
  };
  return engine;
}
