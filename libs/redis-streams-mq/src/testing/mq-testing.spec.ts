import { Injectable, Module, type INestApplicationContext, type Type } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Registry } from 'prom-client';
import { MqAdmin } from '../admin/admin.js';
import { DeadLetter, RetryLater } from '../core/results.js';
import type { DeadLetterContext, StreamContext } from '../core/handler.js';
import { DeadLetterQueue } from '../dlq/dead-letter-queue.js';
import { DeadLetterHandler } from '../nest/dead-letter-handler.decorator.js';
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

@Injectable()
class Undertaker {
  readonly calls: { n: number; attempt: number }[] = [];
  behave: (ctx: DeadLetterContext) => unknown = () => undefined;

  @DeadLetterHandler('orders', 'billing')
  async onLetter(order: Order, ctx: DeadLetterContext): Promise<unknown> {
    this.calls.push({ n: order.n, attempt: ctx.attempt });
    return this.behave(ctx);
  }
}

@Injectable()
class InOrder {
  readonly calls: { n: number; attempt: number }[] = [];
  behave: Behaviour = () => undefined;

  @StreamHandler('orders', 'billing', { retryOrdering: 'key' })
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

  async function startWith(...providers: Type[]): Promise<{ mq: MqTesting; app: INestApplicationContext }> {
    const imports = [MqTestingModule.forRoot({ defaultPartitionCount: 1 })];
    const app = await Test.createTestingModule({ imports, providers }).compile();
    app.useLogger(false);
    await app.init();
    open.push(app);
    return { mq: app.get(MqTesting), app };
  }

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

  it('says what an operator asks of all topics and groups', async () => {
    const { mq, billing, app } = await start();
    billing.behave = () => {
      throw new DeadLetter('never');
    };
    await mq.publish('orders', { n: 1 });
    const admin = app.get(MqAdmin);
    expect((await admin.listTopics()).items).toMatchObject([{ topic: 'orders', partitionCount: 2 }]);
    expect((await admin.listTopics({ prefix: 'no' })).items).toEqual([]);
    expect(await admin.listGroups()).toMatchObject({ items: [{ group: 'billing', topic: 'orders' }] });
    expect(await admin.describeGroup('billing')).toMatchObject({ group: 'billing' });
    await expect(admin.deleteGroup('billing')).rejects.toMatchObject({ code: 'MQ_GROUP_RUNNING' });
    expect(await app.get(DeadLetterQueue).topics()).toMatchObject({ items: [{ topic: 'orders', size: 1 }] });
  });

  it('samples the metrics of the whole queue, also after a crash, and warns of nothing', async () => {
    const logged: string[] = [];
    const note = (...args: unknown[]): void => void logged.push(args.map(String).join(' '));
    const registry = new Registry();
    const app = await Test.createTestingModule({
      imports: [MqTestingModule.forRoot({ registry })],
      providers: [Billing],
    }).compile();
    app.useLogger({ log: () => undefined, warn: note, error: note, fatal: note });
    await app.init();
    open.push(app);
    const mq = app.get(MqTesting);
    await mq.publish('orders', { n: 1 });
    const sampled = async (): Promise<void> => {
      await mq.advance(3_600_000);
      const metrics = await registry.metrics();
      expect(metrics).toMatch(/^redis_streaming_mq_lag\{.*topic="orders".*\} 0$/m);
      expect(metrics).toMatch(/^redis_streaming_mq_redis_memory_used_bytes\{.*\} [1-9]\d*$/m);
    };
    await sampled();
    expect(logged).toEqual([]);
    await mq.crash();
    await sampled();
  });

  it('means the group of the messages where dead letters have handlers too', async () => {
    const { mq, app } = await startWith(Billing, Undertaker);
    await mq.assertAcked(await mq.publish('orders', { n: 1 }));
    app.get(Billing).behave = () => {
      throw new DeadLetter('never');
    };
    const sent = await mq.publish('orders', { n: 2 });
    await mq.assertDead(sent, { reason: 'rejected' });
    expect(app.get(Undertaker).calls).toEqual([{ n: 2, attempt: 1 }]);
    expect(await mq.deadLetters('orders')).toMatchObject([{ group: 'billing' }]);
    expect([mq.pending('orders'), mq.retries('orders')]).toEqual([[], []]);
  });

  it('goes on with dead letters after a crash, with the one that was being handled first', async () => {
    const { mq, app } = await startWith(Billing, Undertaker);
    const undertaker = app.get(Undertaker);
    app.get(Billing).behave = () => {
      throw new DeadLetter('never');
    };
    undertaker.behave = () => new Promise(() => undefined);
    await app.get(MqProducer).send('orders', { n: 1 });
    await mq.deliver();
    expect(undertaker.calls).toEqual([{ n: 1, attempt: 1 }]);
    undertaker.behave = () => undefined;
    await mq.crash();
    await mq.publish('orders', { n: 2 });
    expect(undertaker.calls).toEqual([
      { n: 1, attempt: 1 },
      { n: 1, attempt: 1 },
      { n: 2, attempt: 1 },
    ]);
  });

  it('shows a message that waits in its place for its retry as retried, and what is behind it as pending', async () => {
    const { mq, app } = await startWith(InOrder);
    const handler = app.get(InOrder);
    handler.behave = ({ n }) => {
      if (n === 1) throw new Error('no');
    };
    const first = await mq.publish('orders', { n: 1 }, { key: 'ann' });
    const second = await mq.publish('orders', { n: 2 }, { key: 'ann' });
    for (const [i, inMs] of [1_000, 2_000].entries()) {
      await mq.assertRetried(first, { attempt: i + 1, inMs });
      const retryAt = mq.now + inMs;
      expect(await mq.stateOf(first)).toMatchObject({ status: 'retry', attemptsMade: i + 1, error: 'Error: no' });
      expect(mq.retries('orders')).toMatchObject([{ eventId: first.eventId, attemptsMade: i + 1, payload: { n: 1 } }]);
      expect(Math.abs(mq.retries('orders')[0]!.retryAt - retryAt)).toBeLessThanOrEqual(50);
      expect(mq.pending('orders')).toMatchObject([{ eventId: second.eventId, attemptsMade: 0 }]);
      await mq.advance(inMs);
    }
    await mq.crash();
    expect(await mq.stateOf(first)).toMatchObject({ status: 'retry', attemptsMade: 3, error: 'Error: no' });
    handler.behave = () => new Promise(() => undefined);
    await mq.advance(4_000);
    expect(await mq.stateOf(first)).toEqual({ status: 'pending', attemptsMade: 3 });
    expect(mq.retries('orders')).toEqual([]);
    handler.behave = () => undefined;
    await mq.crash();
    await mq.settle();
    await mq.assertAcked(first);
    await mq.assertAcked(second);
    expect(handler.calls.slice(-2)).toEqual([
      { n: 1, attempt: 4 },
      { n: 2, attempt: 1 },
    ]);
  });

  it('counts as replicated, for those who wait for replicas', async () => {
    const imports = [MqTestingModule.forRoot({ waitReplicas: 2 })];
    const app = await Test.createTestingModule({ imports, providers: [Billing] }).compile();
    app.useLogger(false);
    await app.init();
    open.push(app);
    const sent = await app.get(MqTesting).publish('orders', { n: 1 });
    expect(await app.get(MqTesting).stateOf(sent)).toEqual({ status: 'acked' });
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
