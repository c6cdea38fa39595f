// A program that closes its application in the way that its argument names, says so, and must then end by itself.
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { RedisStreamsMqModule, StreamHandler } from 'nestjs-redis-streams-mq';

const [redis = '', way] = process.argv.slice(2);
/** The application's own, used by others as well. */
const shared = way === 'a shared client' ? new Redis(redis) : undefined;

class Svc {
  @StreamHandler('exit', 'g')
  handle(): void {}
}

@Module({
  imports: [RedisStreamsMqModule.forRoot({ redis: shared ?? redis })],
  providers: [
    Svc,
    {
      provide: 'failing',
      useFactory: () => {
        if (way === 'failing provider') throw new Error('this provider fails');
      },
    },
  ],
})
class AppModule {}

const options = { logger: false, abortOnError: false } as const;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function run(): Promise<void> {
  if (way === 'failing provider') {
    await NestFactory.createApplicationContext(AppModule, options).catch(() => undefined);
    return;
  }
  const app = await NestFactory.create(AppModule, options);
  const initialised = way === 'never initialised' ? Promise.resolve() : app.init();
  if (way !== 'while it connects') await initialised;
  if (way === 'after a while') await pause(500);
  await app.close();
  if (way === 'twice') await app.close();
  await initialised;
  // It belongs to the application, which has to end it.
  if (shared && (await shared.ping()) === 'PONG') await shared.quit();
}

await run();
console.log('closed');
