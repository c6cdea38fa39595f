// One instance of an application whose handlers write down all they do, fail now and then and are slow now and then.
import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DeadLetter, RedisStreamsMqModule, type StreamContext, StreamHandler } from 'nestjs-redis-streams-mq';
import { MqInstances } from '../../../libs/redis-streams-mq/src/nest/mq-instances.js';
import { type MessageName, type Outcome, RecordFile } from '../chaos/soak-record.js';
import { awaitSetup, fateOf, GROUPS, soakOptions, tell, TOPIC } from '../chaos/soak-setup.js';
import { watchPartitions, witness } from '../chaos/soak-witness.js';

const setup = await awaitSetup();
const record = new RecordFile(setup.file);
let calls = 0;

async function work(message: MessageName, ctx: StreamContext): Promise<Outcome> {
  const fate = fateOf(setup.seed, ctx.group, message.key, message.seq, ctx.attempt);
  if (fate.takesMs > 0) {
    const { heedsSignal, takesMs } = fate;
    const cut = await sleep(takesMs, false, heedsSignal ? { signal: ctx.signal } : {}).catch(() => true);
    if (cut) return 'aborted';
  }
  return fate.outcome;
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

@Module({ imports: [RedisStreamsMqModule.forRoot(soakOptions(setup))], providers: [Handlers] })
class AppModule {}

const writeState = watchPartitions(record);
process.on('message', writeState);
const app = await NestFactory.create(AppModule, { logger: false });
witness(app.get(MqInstances, { strict: false }).all()[0]!.runtime.events, record);
app.enableShutdownHooks();
await app.init();
tell('up');
