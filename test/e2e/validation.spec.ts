import { Controller, Injectable, UsePipes, ValidationPipe, type DynamicModule } from '@nestjs/common';
import { APP_PIPE } from '@nestjs/core';
import { IsInt, IsNotEmpty } from 'class-validator';
import {
  DeadLetterQueue,
  defineTopic,
  MqAdmin,
  MqProducer,
  Payload,
  RedisStreamsMqModule,
  RetryLater,
  StreamHandler,
  type DeadLetterRecord,
  type StandardSchema,
  type StreamContext,
} from 'nestjs-redis-streams-mq';
import type { INestApplicationContext } from '@nestjs/common';
import { z } from 'zod';
import { queueOptions, useApps } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();
let topic: string;
beforeEach(() => {
  topic = uniqueName('topic');
});

const mq = (): DynamicModule => RedisStreamsMqModule.forRoot(queueOptions(redis, { defaultPartitionCount: 1 }));

async function deadLetters(app: INestApplicationContext, count: number, of = topic): Promise<DeadLetterRecord[]> {
  const queue = app.get(DeadLetterQueue);
  await waitFor(async () => (await queue.size(of)) === count);
  return [...(await queue.list(of)).items];
}

class OrderDto {
  @IsInt()
  id!: number;
  @IsNotEmpty()
  customer!: string;
}

describe('a DTO class as the type of the payload', () => {
  it.each(['of the application', 'of the class', 'of the parameter'])(
    'is validated by a ValidationPipe %s; what is wrong is a dead letter at once, with the field errors',
    async (where) => {
      const handled: unknown[] = [];
      const pipe = new ValidationPipe({ transform: true });
      const nothing = (): void => {};
      @Controller()
      @(where === 'of the class' ? UsePipes(pipe) : nothing)
      class Orders {
        @StreamHandler(topic, 'g')
        handle(@(where === 'of the parameter' ? Payload(pipe) : Payload()) order: OrderDto): void {
          handled.push(order);
        }
      }
      const app = await apps.context({
        imports: [mq()],
        controllers: [Orders],
        providers: where === 'of the application' ? [{ provide: APP_PIPE, useValue: pipe }] : [],
      });
      const producer = app.get(MqProducer);
      await producer.send(topic, { id: 'seven', customer: '' });
      await producer.send(topic, { id: 7, customer: 'ann' });
      const [letter] = await deadLetters(app, 1);
      expect(letter).toMatchObject({
        reason: 'validation',
        attempts: 1,
        error: {
          name: 'MqValidationError',
          message: 'the payload is not valid: id must be an integer number; customer should not be empty',
          issues: [{ message: 'id must be an integer number' }, { message: 'customer should not be empty' }],
        },
      });
      await waitFor(() => handled.length === 1);
      expect(handled).toEqual([Object.assign(new OrderDto(), { id: 7, customer: 'ann' })]);
      expect(handled[0]).toBeInstanceOf(OrderDto);
    },
  );
});

const OrderSchema = z.object({
  id: z.number().int(),
  customer: z.string().min(1),
  at: z.iso.datetime().transform((text) => new Date(text)),
});

describe('a Standard Schema', () => {
  it('of zod validates and transforms; what it refuses is a dead letter at once, with the issues', async () => {
    const handled: unknown[] = [];
    @Injectable()
    class Orders {
      @StreamHandler(topic, 'g', { schema: OrderSchema })
      handle(order: z.infer<typeof OrderSchema>): void {
        handled.push([order.at.getUTCFullYear(), order.customer]);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Orders] });
    const producer = app.get(MqProducer);
    await producer.send(topic, { id: 1.5, customer: '', at: '2026-01-02T03:04:05Z' });
    await producer.send(topic, { id: 2, customer: 'ann', at: '2026-01-02T03:04:05Z' });
    const [letter] = await deadLetters(app, 1);
    expect(letter).toMatchObject({ reason: 'validation', attempts: 1, error: { name: 'MqValidationError' } });
    expect(letter?.error?.issues?.map(({ path }) => path)).toEqual(['id', 'customer']);
    expect(letter?.error?.message).toMatch(/^the payload is not valid: id: .*; customer: /);
    await waitFor(() => handled.length === 1);
    expect(handled).toEqual([[2026, 'ann']]);
  });

  it('that is async is waited for; one that throws has not judged, so the message is retried', async () => {
    const handled: unknown[] = [];
    let asked = 0;
    const known: StandardSchema<number> = {
      '~standard': {
        version: 1,
        vendor: 'ours',
        validate: async (value) => {
          asked++;
          if (asked === 1) throw new Error('the database is away');
          if (asked === 2) throw new RetryLater(1);
          return z
            .number()
            .refine(async (id) => Promise.resolve(id < 10), 'is not known')
            ['~standard'].validate(value);
        },
      },
    };
    @Injectable()
    class Orders {
      @StreamHandler({ topic, group: 'g', schema: known })
      handle(id: number): void {
        handled.push(id);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Orders] });
    await app.get(MqProducer).send(topic, 7);
    await waitFor(() => handled.length === 1);
    expect(asked).toBe(3);
    await app.get(MqProducer).send(topic, 70);
    expect(await deadLetters(app, 1)).toMatchObject([
      { reason: 'validation', error: { issues: [{ path: '', message: 'is not known' }] } },
    ]);
  });

  it('may come from anywhere, be a function, and name places by objects', async () => {
    const own: StandardSchema<string> = Object.assign(() => undefined, {
      '~standard': {
        version: 1 as const,
        vendor: 'ours',
        validate: (value: unknown) =>
          typeof value === 'string' ? { value } : { issues: [{ message: 'no text', path: [{ key: 'a' }, 1] }] },
      },
    });
    const handled: unknown[] = [];
    @Injectable()
    class Texts {
      @StreamHandler([topic], 'g', { schema: own })
      handle(@Payload('length') length: number): void {
        handled.push(length);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Texts] });
    await app.get(MqProducer).send(topic, 5);
    await app.get(MqProducer).send(topic, 'five');
    expect(await deadLetters(app, 1)).toMatchObject([{ error: { issues: [{ path: 'a.1', message: 'no text' }] } }]);
    await waitFor(() => handled.length === 1);
    expect(handled).toEqual([4]);
  });

  it('that is none is refused at the boot', async () => {
    @Injectable()
    class Orders {
      @StreamHandler(topic, 'g', { schema: { parse: () => 1 } as unknown as StandardSchema })
      handle(): void {}
    }
    await expect(apps.context({ imports: [mq()], providers: [Orders] })).rejects.toThrow(
      /Orders\.handle: schema must be a Standard Schema/,
    );
  });
});

describe('a typed topic', () => {
  it('has its partitions, version and schema on both sides', async () => {
    const orders = defineTopic(topic, { schema: OrderSchema, version: 3, partitions: 5 });
    const numbers = defineTopic<number>(`${topic}-numbers`);
    const handled: string[] = [];
    @Injectable()
    class Orders {
      @StreamHandler(orders, 'g')
      handle(order: { at: Date }, ctx: StreamContext): void {
        handled.push(`${order.at.getUTCFullYear()} version ${ctx.headers['x-schema-version']}`);
      }
      @StreamHandler(numbers, 'g')
      onNumber(n: number): void {
        handled.push(`number ${n}`);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Orders] });
    const producer = app.get(MqProducer);
    const order = { id: 1, customer: 'ann', at: '2026-01-02T03:04:05Z' };
    await producer.send(orders, order);
    await producer.send(orders, order, { headers: { 'x-schema-version': 'mine' } });
    expect(await producer.sendBatch(orders, [{ payload: order }])).toMatchObject({ sent: 1 });
    await producer.send(numbers, 7);
    await waitFor(() => handled.length === 4);
    expect(handled.toSorted()).toEqual(['2026 version 3', '2026 version 3', '2026 version mine', 'number 7']);
    const { partitionCount } = await app.get(MqAdmin).describeTopic(topic);
    expect(partitionCount).toBe(5);
    expect((await app.get(MqAdmin).describeTopic(numbers.name)).partitionCount).toBe(1);

    const wrong = { ...order, customer: '' };
    const refused = { code: 'MQ_INVALID_PAYLOAD', message: expect.stringMatching(/not valid: customer: /) };
    await expect(producer.send(orders, wrong)).rejects.toMatchObject(refused);
    const report = await producer.sendBatch(orders, [{ payload: wrong }, { payload: order }]);
    expect(report).toMatchObject({ sent: 1, failed: 1, results: [{ error: refused }, { status: 'sent' }] });
    // One that does not use the definition gets past it, and not past the handler.
    await producer.send(topic, wrong);
    expect(await deadLetters(app, 1)).toMatchObject([{ reason: 'validation' }]);
  });

  it('with an async schema is checked by its handlers, and keeps the order of sends', async () => {
    const numbers = defineTopic(topic, {
      schema: z.number().refine(async (n) => Promise.resolve(n < 20), 'too large'),
    });
    const handled: number[] = [];
    @Injectable()
    class Numbers {
      @StreamHandler(numbers, 'g')
      handle(n: number): void {
        handled.push(n);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Numbers] });
    await Promise.all(Array.from({ length: 21 }, (_, n) => app.get(MqProducer).send(numbers, n)));
    expect(await deadLetters(app, 1)).toMatchObject([{ reason: 'validation' }]);
    expect(handled).toEqual(Array.from({ length: 20 }, (_, n) => n));
  });
});
