// A program that consumes until a signal ends it, with or without Nest's shutdown hooks, and says what it does line by line.
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { RedisStreamsMqModule, StreamHandler, type RedisStreamsMqModuleOptions } from 'nestjs-redis-streams-mq';

const [options, topic, way] = process.argv.slice(2);

class Svc {
  @StreamHandler(topic ?? '', 'g')
  handle(payload: number): void {
    console.log(`handled ${payload}`);
  }
}

@Module({
  imports: [RedisStreamsMqModule.forRoot(JSON.parse(options ?? '') as RedisStreamsMqModuleOptions)],
  providers: [Svc],
})
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'] });
if (way === 'hooks') app.enableShutdownHooks();
console.log(`listeners ${process.listenerCount('SIGTERM')}`);
