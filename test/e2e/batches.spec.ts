import {
  Injectable,
  UseGuards,
  UseInterceptors,
  UsePipes,
  ValidationPipe,
  type CanActivate,
  type ExecutionContext,
  type INestApplicationContext,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import { IsInt } from 'class-validator';
import { mergeMap, throwError } from 'rxjs';
import {
  BatchFailure,
  DeadLetterHandler,
  DeadLetterQueue,
  defineTopic,
  EventId,
  MqInvalidHandlerError,
  MqProducer,
  Payload,
  RedisStreamsMqModule,
  StreamCtx,
  StreamExecutionContext,
  StreamHandler,
  streamContextOf,
  type DeadLetterRecord,
  type StreamContext,
} from 'nestjs-redis-streams-mq';
import { z } from 'zod';
import { queueOptions, useApps } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();
let topic: string;
let handled: unknown[];
beforeEach(() => {
  topic = uniqueName('topic');
  handled = [];
});

const batch = { size: 3, waitMs: 200 };
const start = (...providers: (Type | { provide: unknown; useValue: unknown })[]): Promise<INestApplicationContext> =>
  apps.context({
    imports: [RedisStreamsMqModule.forRoot(queueOptions(redis, { defaultPartitionCount: 1, retryMaxAttempts: 2 }))],
    providers: providers as Type[],
  });
const send = (app: INestApplicationContext, ...payloads: unknown[]): Promise<unknown> =>
  app.get(MqProducer).sendBatch(
    topic,
    payloads.map((payload) => ({ payload })),
  );

async function deadLetters(app: INestApplicationContext, count: number): Promise<DeadLetterRecord[]> {
  const queue = app.get(DeadLetterQueue);
  await waitFor(async () => (await queue.size(topic)) === count);
  return [...(await queue.list(topic)).items];
}

class OrderDto {
  @IsInt()
  id!: number;
}

describe('a handler of batches', () => {
  it('gets payloads and contexts as arrays, by position and by decorator; what it throws decides', async () => {
    @Injectable()
    class Orders {
      @StreamHandler(topic, 'position', { batch })
      position(orders: { id: number }[], contexts: StreamContext[]): void {
        handled.push(['position', orders.map(({ id }) => id), contexts.map(({ attempt }) => attempt)]);
        const index = orders.findIndex(({ id }) => id === 2);
        if (index !== -1) throw new BatchFailure([{ index, error: new Error('two') }]);
      }

      @StreamHandler(topic, 'decorators', { batch })
      decorators(@StreamCtx() contexts: StreamContext[], @Payload() orders: { id: number }[]): void {
        handled.push(['decorators', orders.map(({ id }) => id), contexts.map(({ attempt }) => attempt)]);
      }
    }
    const app = await start(Orders);
    await send(app, { id: 1 }, { id: 2 }, { id: 3 });
    const [letter] = await deadLetters(app, 1);
    expect(letter).toMatchObject({ group: 'position', reason: 'exhausted', attempts: 2, error: { message: 'two' } });
    await waitFor(() => handled.length === 3);
    expect(handled).toContainEqual(['position', [1, 2, 3], [1, 1, 1]]);
    expect(handled).toContainEqual(['position', [2], [2]]);
    expect(handled).toContainEqual(['decorators', [1, 2, 3], [1, 1, 1]]);
  });

  it.each(['ValidationPipe', 'schema'])(
    'gets what its %s lets through; what is not valid is a dead letter alone, and places are those of the array it got',
    async (by) => {
      const isPipe = by === 'ValidationPipe';
      const schema = isPipe ? undefined : z.object({ id: z.number().int() });
      @Injectable()
      @UsePipes(...(isPipe ? [new ValidationPipe({ transform: true })] : []))
      class Orders {
        @StreamHandler(topic, 'g', {
          batch: { ...batch, ...(isPipe && { type: OrderDto }) },
          ...(schema && { schema }),
        })
        handle(orders: OrderDto[], contexts: StreamContext[]): void {
          handled.push([orders, contexts.map(({ attempt }) => attempt)]);
          if (contexts[1]?.attempt === 1) throw new BatchFailure([{ index: 1 }]);
        }
      }
      const app = await start(Orders);
      await send(app, { id: 1 }, { id: 'two' }, { id: 3 });
      const [letter] = await deadLetters(app, 1);
      expect(letter).toMatchObject({
        reason: 'validation',
        attempts: 1,
        payload: Buffer.from('{"id":"two"}'),
        error: { issues: [expect.anything()] },
      });
      await waitFor(() => handled.length === 2);
      const order = (id: number): object => Object.assign(isPipe ? new OrderDto() : {}, { id });
      expect(handled).toStrictEqual([
        [
          [order(1), order(3)],
          [1, 1],
        ],
        [[order(3)], [2]],
      ]);
    },
  );

  it('is not called when nothing of a batch is valid', async () => {
    @Injectable()
    class Orders {
      @StreamHandler(topic, 'g', { batch, schema: z.object({ id: z.number() }) })
      handle(orders: unknown[]): void {
        handled.push(orders);
      }
    }
    const app = await start(Orders);
    await send(app, {}, {}, {});
    await deadLetters(app, 3);
    expect(handled).toEqual([]);
  });

  it('has guards and interceptors run once, which see all messages', async () => {
    const seen: unknown[] = [];
    const see = (host: ExecutionContext): void => {
      const stream = StreamExecutionContext.create(host);
      seen.push([stream.isBatch, stream.getPayload(), stream.getContexts().length]);
    };
    const guard: CanActivate = { canActivate: (host) => (see(host), true) };
    const interceptor: NestInterceptor = { intercept: (host, next) => (see(host), next.handle()) };
    @Injectable()
    class Orders {
      @UseGuards(guard)
      @UseInterceptors(interceptor)
      @StreamHandler(topic, 'g', { batch })
      handle(orders: unknown[]): void {
        handled.push(orders);
      }
    }
    const app = await start(Orders);
    await send(app, 1, 2, 3);
    await waitFor(() => handled.length === 1);
    expect(seen).toEqual([
      [true, [1, 2, 3], 3],
      [true, [1, 2, 3], 3],
    ]);
    expect(handled).toEqual([[1, 2, 3]]);
  });

  it('has all of a batch retried when an interceptor fails after it', async () => {
    const failing: NestInterceptor = {
      intercept: (_host, next) => next.handle().pipe(mergeMap(() => throwError(() => new Error('no commit')))),
    };
    @Injectable()
    class Orders {
      @UseInterceptors(failing)
      @StreamHandler(topic, 'g', { batch })
      handle(orders: unknown[]): void {
        handled.push(orders);
      }
    }
    const app = await start(Orders);
    await send(app, 1, 2, 3);
    const letters = await deadLetters(app, 3);
    expect(letters.map(({ reason, error }) => [reason, error?.message])).toEqual(
      Array(3).fill(['exhausted', 'no commit']),
    );
  });

  it('whose guard denies, or asks for the one message there is not, has the whole batch set aside', async () => {
    const guard: CanActivate = { canActivate: (host) => streamContextOf(host).headers['x-tenant'] === undefined };
    @Injectable()
    class Orders {
      @StreamHandler(topic, 'g', { batch })
      handle(orders: unknown[]): void {
        handled.push(orders);
      }
    }
    const app = await start(Orders, { provide: APP_GUARD, useValue: guard });
    await send(app, 1, 2, 3);
    const letters = await deadLetters(app, 3);
    expect(letters.map(({ reason }) => reason)).toEqual(['rejected', 'rejected', 'rejected']);
    expect(letters[0]!.error?.message).toContain('a batch of 3 messages');
    expect(handled).toEqual([]);
  });

  it('of a typed topic gets an array of its type', async () => {
    const orders = defineTopic<{ readonly id: number }>(topic);
    class Orders {
      @StreamHandler(orders, 'g', { batch })
      handle(payloads: { readonly id: number }[]): void {
        handled.push(payloads);
      }

      // @ts-expect-error one payload
      @StreamHandler(orders, 'other', { batch })
      wrong(payload: { readonly id: number }): void {
        handled.push(payload.id);
      }
    }
    const method = Object.getOwnPropertyDescriptor(Orders.prototype, 'handle');
    expect(method).toBeDefined();
  });

  it('is refused at the boot where it could not do what it says', async () => {
    @Injectable()
    class Orders {
      @StreamHandler(topic, 'parameters', { batch })
      parameters(@Payload('id') ids: number[], @EventId() eventId: string): void {
        handled.push(ids, eventId);
      }

      @UsePipes(new ValidationPipe())
      @StreamHandler(topic, 'type', { batch })
      type(orders: OrderDto[]): void {
        handled.push(orders);
      }

      @StreamHandler(topic, 'order', { batch, concurrency: 2 })
      order(orders: OrderDto[]): void {
        handled.push(orders);
      }

      @DeadLetterHandler(topic, 'order', { batch } as object)
      letters(): void {}
    }
    const refused = await start(Orders).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(MqInvalidHandlerError);
    const { problems } = refused as MqInvalidHandlerError;
    expect(problems).toEqual([
      expect.stringContaining('Orders.parameters: parameter 1 has a decorator that cannot be used with batch'),
      expect.stringContaining('Orders.parameters: parameter 0 has a decorator that cannot be used with batch'),
      expect.stringContaining('Orders.type: a ValidationPipe is in force'),
      expect.stringContaining('Orders.order: batches of one partition that run at once keep no order'),
      expect.stringContaining('Orders.letters: @DeadLetterHandler handles one letter after the other'),
    ]);
  });
});
