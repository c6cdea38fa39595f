import {
  Controller,
  Injectable,
  UseGuards,
  UseInterceptors,
  ValidationPipe,
  type CanActivate,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import { APP_PIPE } from '@nestjs/core';
import { IsInt } from 'class-validator';
import {
  DeadLetter,
  DeadLetterQueue,
  MessageHandleResult,
  MqProducer,
  RedisStreamsMqModule,
  StreamCtx,
  StreamHandler,
  type StreamContext,
} from 'nestjs-redis-streams-mq';
import { map } from 'rxjs';
import { queueOptions, useApps } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();

class OrderDto {
  @IsInt()
  id!: number;
}

@Injectable()
class TenantGuard implements CanActivate {
  canActivate(host: ExecutionContext): boolean {
    return host.switchToRpc().getContext<StreamContext>().headers['tenant'] !== 'unknown';
  }
}

const wrapping: NestInterceptor = {
  intercept: (_host, next) => next.handle().pipe(map((data: unknown) => ({ data }))),
};

describe('what decides about a message', () => {
  it('is the stage that failed, or what the handler returned or threw, whatever enhancers make of it', async () => {
    const topic = uniqueName('topic');
    @Controller()
    @UseGuards(TenantGuard)
    @UseInterceptors(wrapping)
    class Orders {
      readonly handled: string[] = [];
      @StreamHandler(topic, 'g', { retryMaxAttempts: 2 })
      handle(order: OrderDto, @StreamCtx() ctx: StreamContext): unknown {
        this.handled.push(`${order instanceof OrderDto} ${order.id} attempt ${ctx.attempt}`);
        if (order.id === 2) throw new DeadLetter('never');
        if (order.id === 3 && ctx.attempt === 1) return MessageHandleResult.RETRY;
        if (order.id === 4) throw new Error('always');
        return 'RETRY';
      }
    }
    const app = await apps.context({
      imports: [RedisStreamsMqModule.forRoot(queueOptions(redis, { defaultPartitionCount: 1 }))],
      controllers: [Orders],
      providers: [{ provide: APP_PIPE, useValue: new ValidationPipe({ transform: true }) }],
    });
    const producer = app.get(MqProducer);
    await producer.send(topic, { id: 1 });
    await producer.send(topic, { id: 'one' });
    await producer.send(topic, { id: 1 }, { headers: { tenant: 'unknown' } });
    for (const id of [2, 3, 4]) await producer.send(topic, { id });

    const deadLetters = app.get(DeadLetterQueue);
    await waitFor(async () => (await deadLetters.size(topic)) === 4);
    await waitFor(() => app.get(Orders).handled.length === 6);
    const { items } = await deadLetters.list(topic);
    expect(items.map(({ reason, error }) => `${reason}: ${error?.name}`).toSorted()).toEqual([
      'exhausted: Error',
      'rejected: DeadLetter',
      'rejected: ForbiddenException',
      'validation: MqValidationError',
    ]);
    expect(app.get(Orders).handled.toSorted()).toEqual([
      'true 1 attempt 1',
      'true 2 attempt 1',
      'true 3 attempt 1',
      'true 3 attempt 2',
      'true 4 attempt 1',
      'true 4 attempt 2',
    ]);
  });
});
