import { Injectable, type DynamicModule, type INestApplicationContext, type Type } from '@nestjs/common';
import { Test, type TestingModuleBuilder } from '@nestjs/testing';
import { StreamHandler } from '../../../libs/redis-streams-mq/src/nest/stream-handler.decorator.js';
import type { StreamContext } from '../../../libs/redis-streams-mq/src/core/handler.js';
import type { Call, HandlerUnderTest } from './engine-under-test.js';

/** With intervals and pauses short enough to be waited for. */
export const quickOptions = {
  defaultPartitionCount: 2,
  retryBaseBackoffMs: 100,
  retryMaxBackoffMs: 400,
  retryMaxAttempts: 3,
  leaseTtlSeconds: 2,
  renewIntervalSec: 0.5,
  rebalanceIntervalSec: 0.5,
  consumerPollTimeoutMs: 200,
  drainTimeoutMs: 500,
} as const;

/** An application around these handlers that notes each call. */
export async function startApplication(
  queue: DynamicModule,
  handlers: readonly HandlerUnderTest[],
  topic: string,
  note: (call: Omit<Call, 'at'>) => void,
  prepare: (builder: TestingModuleBuilder) => TestingModuleBuilder = (builder) => builder,
): Promise<INestApplicationContext> {
  const providers = handlers.map((handler) => classOf(handler, topic, note));
  const app = await prepare(Test.createTestingModule({ imports: [queue], providers })).compile();
  app.useLogger(false);
  await app.init();
  return app;
}

function classOf(handler: HandlerUnderTest, topic: string, note: (call: Omit<Call, 'at'>) => void): Type {
  const { group = 'g', options = {}, enhancers = [], handle = () => undefined } = handler;
  class Handler {
    async on(payload: unknown, ctx: StreamContext): Promise<unknown> {
      note({ group, payload, ctx });
      return handle(payload, ctx);
    }
  }
  const method = Object.getOwnPropertyDescriptor(Handler.prototype, 'on')!;
  for (const decorate of [...enhancers, StreamHandler(handler.topic ?? topic, group, options) as MethodDecorator]) {
    decorate(Handler.prototype, 'on', method);
  }
  Reflect.defineMetadata('design:paramtypes', [Object, Object], Handler.prototype, 'on');
  Injectable()(Handler);
  return Handler;
}
