// Sends numbered messages of thousands of keys at a steady rate, and writes down what became of each.
import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { MqError, MqProducer, RedisStreamsMqModule } from 'nestjs-redis-streams-mq';
import { MqInstances } from '../../../libs/redis-streams-mq/src/nest/mq-instances.js';
import { pick, randomOf } from '../random.js';
import { RecordFile } from './record.js';
import { awaitSetup, KEYS, moduleOptions, tell, type ToChild, TOPIC } from './setup.js';
import { witness } from './witness.js';

const TICK_MS = 10;
/** After a stop of the process it does not send everything that it has missed. */
const MOST_PER_TICK = 100;
const HOT_KEYS = 5;

const setup = await awaitSetup();
const record = new RecordFile(setup.file);
const random = randomOf(`${setup.seed}/${setup.process}`);
// Of this life alone: what a killed one has under way may be stored after what the next one sends.
const keys = Array.from({ length: KEYS }, (_, i) => `${setup.process}-${i}`);
const numbers = new Map<string, number>();
const sends = new Set<Promise<void>>();
let stopped = false;

@Module({ imports: [RedisStreamsMqModule.forRoot({ ...moduleOptions(setup), autoStart: false })] })
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: false });
witness(app.get(MqInstances, { strict: false }).all()[0]!.runtime.events, record);
await app.init();
const producer = app.get(MqProducer, { strict: false });

async function send(): Promise<void> {
  // A tenth of the messages goes to a few keys, which then have several on their way at once.
  const key = pick(random, random() < 0.1 ? keys.slice(0, HOT_KEYS) : keys);
  const seq = (numbers.get(key) ?? 0) + 1;
  numbers.set(key, seq);
  const message = { key, seq };
  const eventId = randomUUID();
  const padding = 'x'.repeat(Math.floor(random() * 300));
  record.write({ type: 'sending', ...message, eventId });
  try {
    const { partition, id } = await producer.send(TOPIC, { ...message, padding }, { key, eventId });
    record.write({ type: 'accepted', ...message, eventId, partition, id });
  } catch (error) {
    const code = error instanceof MqError ? error.code : 'no code';
    record.write({ type: 'refused', ...message, eventId, code, why: String(error) });
  }
}

async function run(): Promise<void> {
  let sentUntil = performance.now();
  while (!stopped) {
    await sleep(TICK_MS);
    const owed = Math.floor(((performance.now() - sentUntil) * setup.rate) / 1_000);
    sentUntil += (owed * 1_000) / setup.rate;
    for (let i = 0; i < Math.min(owed, MOST_PER_TICK) && !stopped; i++) {
      const sending = send().finally(() => sends.delete(sending));
      sends.add(sending);
    }
  }
  await Promise.all(sends);
  tell('done');
}

async function end(): Promise<void> {
  stopped = true;
  await app.close();
  await Promise.all(sends);
  process.exit(0);
}

process.on('message', (message: ToChild) => {
  if (message === 'go') void run();
  else stopped = true;
});
process.on('SIGTERM', () => void end());
tell('up');
