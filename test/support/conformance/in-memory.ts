import type { INestApplicationContext } from '@nestjs/common';
import { DeadLetterQueue, MqAdmin, MqProducer, RedisStreamsMqModule } from 'nestjs-redis-streams-mq';
import { MqTesting } from 'nestjs-redis-streams-mq/testing';
import { uniqueName } from '../unique-name.js';
import { quickOptions, startApplication } from './application.js';
import type { Call, EngineUnderTest } from './engine-under-test.js';

const STEP_MS = 10;
const LONGEST_MS = 60_000;

/** The engine of the tests without Redis. */
export async function inMemory(): Promise<EngineUnderTest> {
  const topic = uniqueName('topic');
  const mq = new MqTesting();
  const calls: Call[] = [];
  const apps: INestApplicationContext[] = [];
  const app = (): INestApplicationContext => apps.at(-1)!;

  const engine: EngineUnderTest = {
    topic,
    calls,
    get producer() {
      return app().get(MqProducer);
    },
    get deadLetters() {
      return app().get(DeadLetterQueue);
    },
    get admin() {
      return app().get(MqAdmin);
    },
    async start(handlers, options = {}) {
      const queue = RedisStreamsMqModule.forRoot({ endpoints: false, ...quickOptions, ...options });
      const note = (call: Omit<Call, 'at'>): void => void calls.push({ ...call, at: mq.now });
      apps.push(await startApplication(queue, handlers, topic, note, (builder) => mq.override(builder)));
    },
    async until(condition) {
      const end = mq.now + LONGEST_MS;
      for (;;) {
        await mq.deliver();
        if (await condition()) return;
        if (mq.now > end)
          throw new Error(`waited ${LONGEST_MS} ms of the engine's time in vain for ${String(condition)}`);
        await mq.advance(STEP_MS);
      }
    },
    passes: (ms) => mq.advance(ms),
    idle: () => mq.deliver(),
    crash: () => mq.crash(),
    async inject(partition, fields) {
      await mq.publishRaw(topic, partition, fields);
    },
    letters: async (group) => (await engine.deadLetters.list(topic, { ...(group && { group }), limit: 1_000 })).items,
    async close() {
      for (const each of apps.splice(0)) await each.close();
    },
  };
  return engine;
}
