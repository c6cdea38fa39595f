import 'reflect-metadata';
import {
  Module,
  UseInterceptors,
  UsePipes,
  type CallHandler,
  type DynamicModule,
  type ExecutionContext,
  type INestApplicationContext,
  type NestInterceptor,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  MqProducer,
  RedisStreamsMqModule,
  StreamHandler,
  type MqOptions,
  type RedisOption,
  type StreamContext,
} from 'nestjs-redis-streams-mq';
import type { Payload } from '../payloads.js';
import type { ConsumeOptions, Contender, ContenderContext, Handle, Topic } from './contender.js';
import { groupNames } from './group-names.js';

/** The queue as a user has it: the built package, its Nest module, a handler in a provider. */
export const makeOurs = (context: ContenderContext): Contender => ({
  create: async () => undefined, // Its first producer or handler makes it.
  async producer(topic) {
    const app = await start([moduleFor(context, topic, { autoStart: false })], []);
    const producer = app.get(MqProducer);
    return {
      send: ({ key, payload }) => producer.send(topic.name, payload, { key }),
      async sendBatch(messages) {
        const { failed } = await producer.sendBatch(topic.name, messages);
        if (failed > 0) throw new Error(`${failed} messages were not sent`);
      },
      sendLater: ({ key, payload }, delayMs) => producer.send(topic.name, payload, { key, delayMs }),
      close: () => app.close(),
    };
  },
  async consume(topic, handle, { retryDelayMs, maxAttempts, enhanced = false }: ConsumeOptions) {
    const options: MqOptions<RedisOption> = {
      ...(retryDelayMs !== undefined && { retryBaseBackoffMs: retryDelayMs, retryMaxBackoffMs: retryDelayMs }),
      ...(maxAttempts !== undefined && { retryMaxAttempts: maxAttempts }),
      ...(context.settings as MqOptions<RedisOption>),
    };
    const handlers = groupNames(topic).map((group) => handlerFor(topic.name, group, handle, enhanced));
    const app = await start([moduleFor(context, topic, options)], handlers);
    return { close: () => app.close() };
  },
  remove: async () => undefined,
});

export function moduleFor({ urls }: ContenderContext, topic: Topic, options: MqOptions<RedisOption>): DynamicModule {
  const redis: RedisOption | undefined =
    urls.cluster === undefined ? urls.redis : { cluster: { nodes: [...urls.cluster] } };
  return RedisStreamsMqModule.forRoot({ redis: redis!, defaultPartitionCount: topic.partitions, ...options });
}

export function start(imports: DynamicModule[], providers: Type[]): Promise<INestApplicationContext> {
  @Module({ imports, providers })
  class BenchModule {}
  return NestFactory.createApplicationContext(BenchModule, { logger: ['error', 'fatal'], abortOnError: false });
}

function handlerFor(topic: string, group: string, handle: Handle, enhanced: boolean): Type {
  class BenchHandler {
    @StreamHandler(topic, group)
    on(payload: Payload, ctx: StreamContext): unknown {
      return handle(payload, ctx.attempt);
    }
  }
  return enhanced ? withEnhancers(BenchHandler) : BenchHandler;
}

class PassingPipe implements PipeTransform {
  transform(value: unknown): unknown {
    return value;
  }
}

class PassingInterceptor implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): ReturnType<CallHandler['handle']> {
    return next.handle();
  }
}

function withEnhancers(handler: Type): Type {
  UsePipes(new PassingPipe())(handler);
  UseInterceptors(new PassingInterceptor())(handler);
  return handler;
}
