import { Injectable, Module, type INestApplicationContext } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { DeadLetter, RetryLater } from '../core/results.js';
import type { StreamContext } from '../core/handler.js';
import { DeadLetterQueue } from '../dlq/dead-letter-queue.js';
import { RedisStreamsMqModule } from '../nest/redis-streams-mq.module.js';
import { StreamHandler } from '../nest/stream-handler.decorator.js';
import { MqProducer } from '../producer/producer.js';
import { MqTesting, MqTestingModule, type MqTestingOptions } from './index.js';

interface Order {
  readonly n: number;
}

type Behaviour = (order: Order, ctx: StreamContext) => unknown;

@Injectable()
class Billing {
  readonly calls: { n: number; attempt: number }[] = [];
  behave: Behaviour = () => undefined;

  @StreamHandler('orders', 'billing')
  async onOrder(order: Order, ctx: StreamContext): Promise<unknown> {
    this.calls.push({ n: order.n, attempt: ctx.attempt });
    return this.behave(order, ctx);
  }
}

describe('MqTesting', () => {
  const open: INestApplicationContext[] = [];
  afterEach(async () => {
    for (const app of open.splice(0)) await app.close();
  });

  async function start(
    testing?: MqTestingOptions,
  ): Promise<{ mq: MqTesting; billing: Billing; app: INestApplicationContext }> {
    const app = await Test.createTestingModule({
      imports: [MqTestingModule.forRoot({ defaultPartitionCount: 2 }, testing)],
      providers: [Billing],
    }).compile();
    app.useLogger(false);
    await app.init();
    open.push(app);
    return { mq: app.get(MqTesting), billing: app.get(Billing), app };
  }

  it('hands a message to its handler, and says that it was acknowledged', async () => {
    const { mq, billing } = await start();
    const sent = await mq.publish('orders', { n: 1 }, { key: 'ann' });
    expect(billing.calls).toEqual([{ n: 1, attempt: 1 }]);
    expect(await mq.stateOf(sent)).toEqual({ status: 'acked' });
    await mq.assertAcked(sent);
    await expect(mq.assertDead(sent)).rejects.toThrow(/should be dead, and is \{ status: 'acked' \}/);
  });

  it('retries with the whole back-off when time passes, and gives up after the last attempt', async () => {
    const { mq, billing } = await start();
    billing.behave = () => {
      throw new Error('no');
    };
    const sent = await mq.publish('orders', { n: 1 }, { key: 'ann' });
    const pauses = [1_000, 2_000, 4_000, 8_000];
    for (const [i, inMs] of pauses.entries()) {
      await mq.assertRetried(sent, { attempt: i + 1, inMs });
      expect(mq.retries('orders')).toMatchObject([{ payload: { n: 1 }, key: 'ann', attemptsMade: i + 1 }]);
      await mq.advance(inMs - 60);
      expect(billing.calls).toHaveLength(i + 1);
      await mq.advance(60);
      expect(billing.calls).toHaveLength(i + 2);
    }
    await mq.assertDead(sent, { reason: 'exhausted', attempts: 5 });
    expect(await mq.deadLetters('orders')).toMatchObject([{ eventId: sent.eventId, reason: 'exhausted' }]);
  });

  it('replays a dead letter through the DeadLetterQueue of the application', async () => {
    const { mq, billing, app } = await start();
    billing.behave = () => {
      throw new DeadLetter('never');
    };
    const sent = await mq.publish('orders', { n: 1 });
    await mq.assertDead(sent, { reason: 'rejected' });
    billing.behave = () => undefined;
    expect(await app.get(DeadLetterQueue).replayAll('orders')).toMatchObject({ replayed: 1 });
    await mq.settle();
    await mq.assertAcked(sent);
  });

  it('handles again what a crash found unsettled, and nothing else', async () => {
    const { mq, billing, app } = await start();
    await mq.publish('orders', { n: 0 }, { key: 'ann' });
    billing.behave = () => new Promise(() => undefined);
    const sent = await app.get(MqProducer).send('orders', { n: 1 }, { key: 'ann' });
    await mq.deliver();
    expect(mq.pending('orders')).toMatchObject([{ eventId: sent.eventId, attemptsMade: 0, payload: { n: 1 } }]);
    billing.behave = () => undefined;
    await mq.crash();
    await mq.settle();
    expect(billing.calls).toEqual([
      { n: 0, attempt: 1 },
      { n: 1, attempt: 1 },
      { n: 1, attempt: 1 },
    ]);
    await mq.assertAcked(sent);
  });

  it('delays, retries later, expires and times out by its own clock', async () => {
    const { mq, billing, app } = await start();
    const delayed = await mq.publish('orders', { n: 1 }, { delayMs: 60_000 });
    expect(await mq.stateOf(delayed)).toMatchObject({ status: 'delayed' });
    await mq.advance(60_000);
    await mq.assertAcked(delayed);

    billing.behave = (_order, { attempt }) => {
      if (attempt === 1) throw new RetryLater(3_600_000);
    };
    const later = await mq.publish('orders', { n: 2 });
    await mq.assertRetried(later, { attempt: 1, inMs: 3_600_000 });
    await mq.advance(3_600_000);
    await mq.assertAcked(later);

    let signal: AbortSignal | undefined;
    billing.behave = (_order, ctx) => {
      ({ signal } = ctx);
      return new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
    };
    const slow = await app.get(MqProducer).send('orders', { n: 3 });
    await mq.deliver();
    expect(signal?.aborted).toBe(false);
    await mq.advance(300_000);
    expect(signal?.aborted).toBe(true);
    await mq.assertRetried(slow, { attempt: 1 });
  });

  it('says which handlers do not end', async () => {
    const { mq, billing } = await start({ patienceMs: 20 });
    billing.behave = () => new Promise(() => undefined);
    await expect(mq.publish('orders', { n: 1 })).rejects.toThrow(/these handlers still run: Billing.onOrder/);
  });

  it('takes the place of Redis in a whole application', async () => {
    @Module({
      imports: [RedisStreamsMqModule.forRoot({ redis: 'redis://nowhere.invalid:6379' })],
      providers: [Billing],
    })
    class AppModule {}
    const mq = new MqTesting();
    const app = await mq.override(Test.createTestingModule({ imports: [AppModule] })).compile();
    app.useLogger(false);
    await app.init();
    open.push(app);
    await mq.assertAcked(await mq.publish('orders', { n: 1 }));
    expect(app.get(Billing).calls).toHaveLength(1);
  });
});
