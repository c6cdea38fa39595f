import { Injectable, type INestApplicationContext } from '@nestjs/common';
import {
  getMqHandlersToken,
  MqHandlers,
  MqProducer,
  RedisStreamsMqModule,
  StreamHandler,
  type RedisStreamsMqModuleOptions,
  type StreamHandlerExtras,
} from 'nestjs-redis-streams-mq';
import { queueOptions, useApps } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { deferred, waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();
let topic: string;
beforeEach(() => {
  topic = uniqueName('topic');
});

const PARTITIONS = 4;

/** An application with a handler, and one beside it that must not be touched. */
async function open(
  handle: (n: number) => unknown,
  options: StreamHandlerExtras = {},
  moduleOptions: RedisStreamsMqModuleOptions = {},
): Promise<{ app: INestApplicationContext; handlers: MqHandlers }> {
  @Injectable()
  class Orders {
    @StreamHandler(topic, 'g', options)
    onOrder(n: number): unknown {
      return handle(n);
    }
  }
  @Injectable()
  class Others {
    @StreamHandler(`${topic}-other`, 'other')
    onOther(): void {}
  }
  const mq = RedisStreamsMqModule.forRoot(
    queueOptions(redis, { defaultPartitionCount: PARTITIONS, rebalanceIntervalSec: 1, ...moduleOptions }),
  );
  const app = await apps.context({ imports: [mq], providers: [Orders, Others] });
  return { app, handlers: app.get(MqHandlers) };
}

const of = (handlers: MqHandlers, name = 'Orders.onOrder') => handlers.list(name)[0];
const owns = (handlers: MqHandlers, count: number) => () => of(handlers)?.partitions === count;

async function send(app: INestApplicationContext, from: number, count: number): Promise<void> {
  for (let n = from; n < from + count; n++) await app.get(MqProducer).send(topic, n, { key: `key-${n}` });
}

describe('a handler that is stopped', () => {
  it('finishes what runs, gives up its partitions to another process, and no other handler notices', async () => {
    const seen: string[] = [];
    const finish = deferred();
    const a = await open(async (n) => {
      seen.push(`a ${n}`);
      if (n === 0) await finish.promise;
      seen.push(`a ${n} done`);
    });
    await waitFor(owns(a.handlers, PARTITIONS));
    await send(a.app, 0, 1);
    await waitFor(() => seen.includes('a 0'));
    let hasStopped = false;
    const stopped = a.handlers.stop('Orders.onOrder').then(() => (hasStopped = true));
    await waitFor(() => of(a.handlers)?.partitions === 1);
    expect(hasStopped).toBe(false);
    finish.resolve();
    await stopped;
    expect(seen).toEqual(['a 0', 'a 0 done']);
    expect(of(a.handlers)).toEqual({ name: 'Orders.onOrder', topic, group: 'g', state: 'stopped', partitions: 0 });
    await waitFor(() => of(a.handlers, 'Others.onOther')?.partitions === PARTITIONS);

    // Nobody has it: what is sent waits.
    await send(a.app, 1, 5);
    const b = await open((n) => void seen.push(`b ${n}`));
    await waitFor(() => seen.length === 7);
    expect(seen.slice(2).toSorted()).toEqual([1, 2, 3, 4, 5].map((n) => `b ${n}`));
    expect(of(a.handlers)).toMatchObject({ state: 'stopped', partitions: 0 });

    // Back, it gets its share.
    await a.handlers.start({ topic, group: 'g' });
    await waitFor(() => of(a.handlers)?.partitions === PARTITIONS / 2 && of(b.handlers)?.partitions === PARTITIONS / 2);
    expect(of(a.handlers)?.state).toBe('running');
    await send(a.app, 10, 20);
    await waitFor(() => seen.filter((text) => / (1|2)\d/.test(text) && !text.endsWith('done')).length === 20);
    const calls = seen.map((text) => /^[ab] (\d\d)$/.exec(text)?.[1]).filter((n) => n !== undefined);
    expect(calls.toSorted()).toEqual(Array.from({ length: 20 }, (_, n) => String(n + 10)));
  });

  it('can be stopped while the application closes, and closes without it', async () => {
    const { app, handlers } = await open(() => undefined);
    await waitFor(owns(handlers, PARTITIONS));
    await Promise.all([handlers.stop('Orders.onOrder'), apps.close(app)]);
    expect(of(handlers)?.state).toBe('stopped');
  });
});

describe('a handler that is paused', () => {
  it('begins nothing more, keeps its partitions and their order, and goes on', async () => {
    const seen: number[] = [];
    const { app, handlers } = await open((n) => void seen.push(n), {}, { defaultPartitionCount: 1 });
    await waitFor(owns(handlers, 1));
    await send(app, 0, 1);
    await waitFor(() => seen.length === 1);
    await handlers.pause({ topic });
    expect(of(handlers)).toMatchObject({ state: 'paused', partitions: 1 });
    await send(app, 1, 50);
    await send(app, 51, 1);
    await waitFor(async () => (await redis.client().xlen(`${redis.keyPrefix}:data:{${topic}:p:0}`)) === 52);
    expect(seen).toEqual([0]);
    expect(of(handlers)?.partitions).toBe(1);
    await handlers.start({ topic });
    await waitFor(() => seen.length === 52);
    expect(seen).toEqual(Array.from({ length: 52 }, (_, n) => n));
  });

  it('hands its messages on when the application closes', async () => {
    const seen: number[] = [];
    const a = await open((n) => void seen.push(n));
    await waitFor(owns(a.handlers, PARTITIONS));
    await a.handlers.pause('Orders.onOrder');
    await send(a.app, 0, 3);
    await apps.close(a.app);
    await open((n) => void seen.push(n));
    await waitFor(() => seen.length === 3);
  });
});

describe('autoStart: false', () => {
  it.each([
    ['of the handler', { autoStart: false }, {}],
    ['of the module', {}, { autoStart: false }],
  ])('%s: nothing is handled until it is started', async (_what, options, moduleOptions) => {
    const seen: number[] = [];
    const { app, handlers } = await open((n) => void seen.push(n), options, moduleOptions);
    expect(of(handlers)).toMatchObject({ state: 'stopped', partitions: 0 });
    await send(app, 0, 2);
    const isOtherRunning = moduleOptions === undefined || !('autoStart' in moduleOptions);
    await waitFor(() => of(handlers, 'Others.onOther')?.partitions === (isOtherRunning ? PARTITIONS : 0));
    expect(seen).toEqual([]);
    await handlers.start('Orders.onOrder');
    await waitFor(() => seen.length === 2);
    expect(of(handlers, 'Others.onOther')?.state).toBe(isOtherRunning ? 'running' : 'stopped');
  });

  it('of a handler that does not exist is an error that lists those that do', async () => {
    const { app, handlers } = await open(() => undefined);
    await expect(handlers.stop('Order.onOrder')).rejects.toMatchObject({
      code: 'MQ_HANDLER_NOT_FOUND',
      message: expect.stringContaining(`Orders.onOrder (${topic}, g)`),
    });
    expect(app.get(getMqHandlersToken())).toBe(handlers);
  });
});
