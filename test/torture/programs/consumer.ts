// One instance of an application whose handlers write down all they do, and fail, reject, hang or are slow now and then.
import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DeadLetter, MqHandlerTimeoutError, RedisStreamsMqModule } from 'nestjs-redis-streams-mq';
import { type StreamContext, StreamHandler } from 'nestjs-redis-streams-mq';
import { MqInstances } from '../../../libs/redis-streams-mq/src/nest/mq-instances.js';
import { type MessageName, type Outcome, RecordFile } from './record.js';
import { awaitSetup, fateOf, GROUPS, moduleOptions, tell, TOPIC } from './setup.js';
import { watchPartitions, witness } from './witness.js';

const setup = await awaitSetup();
const record = new RecordFile(setup.file);
let calls = 0;

async function work(message: MessageName, ctx: StreamContext): Promise<Outcome> {
  const { outcome, takesMs, heedsSignal } = fateOf(setup.seed, ctx.group, message.key, message.seq, ctx.attempt);
  if (takesMs === 0) return outcome;
  const { signal } = ctx;
  const isCut = await sleep(takesMs, false, heedsSignal ? { signal } : {}).catch(() => true);
  if (signal.reason instanceof MqHandlerTimeoutError) return 'timed out';
  return isCut ? 'aborted' : outcome;
}

async function handle({ key, seq }: MessageName, ctx: StreamContext): Promise<void> {
  const call = calls++;
  const { topic, group, partition, id, eventId, attempt, epoch } = ctx;
  record.write({ type: 'started', call, topic, group, partition, id, eventId, attempt, epoch, key, seq });
  const outcome = await work({ key, seq }, ctx);
  record.write({ type: 'ended', call, outcome });
  if (outcome === 'rejected') throw new DeadLetter('it is so fated');
  if (outcome !== 'success') throw new Error(outcome);
}

class Handlers {
  @StreamHandler(TOPIC, GROUPS[0])
  left(message: MessageName, ctx: StreamContext): Promise<void> {
    return handle(message, ctx);
  }

  @StreamHandler(TOPIC, GROUPS[1])
  right(message: MessageName, ctx: StreamContext): Promise<void> {
    return handle(message, ctx);
  }
}

@Module({ imports: [RedisStreamsMqModule.forRoot(moduleOptions(setup))], providers: [Handlers] })
class AppModule {}

const writeState = watchPartitions(record);
process.on('message', writeState);
const app = await NestFactory.create(AppModule, { logger: false });
witness(app.get(MqInstances, { strict: false }).all()[0]!.runtime.events, record);
app.enableShutdownHooks();
await app.init();
tell('up');
