import {
  Controller,
  Get,
  Inject,
  Injectable,
  Module,
  type BeforeApplicationShutdown,
  type INestApplicationContext,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { MqProducer, RedisStreamsMqModule, StreamHandler } from 'nestjs-redis-streams-mq';
import request from 'supertest';
import { queueOptions, useApps, type AppGraph } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { deferred, waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();

const mq = () => RedisStreamsMqModule.forRoot(queueOptions(redis));
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Puts messages there before the application under test starts. */
async function backlog(topic: string, count: number): Promise<void> {
  const app = await apps.context({ imports: [mq()] });
  const messages = Array.from({ length: count }, (_, n) => ({ payload: n, key: `key-${n}` }));
  expect(await app.get(MqProducer).sendBatch(topic, messages)).toMatchObject({ sent: count });
  await apps.close(app);
}

describe('start-up', () => {
  const modes: [string, (graph: AppGraph) => Promise<INestApplicationContext>][] = [
    ['createApplicationContext', (graph) => apps.context(graph)],
    ['create and listen', (graph) => apps.listen(graph)],
    ['create and init, twice', async (graph) => (await (await apps.create(graph)).init()).init()],
  ];

  it.each(modes)('NEST-09 handlers run only after every bootstrap hook, with %s', async (_mode, start) => {
    const topic = uniqueName('topic');
    await backlog(topic, 20);
    const log: string[] = [];
    @Injectable()
    class Slow implements OnModuleInit, OnApplicationBootstrap {
      async onModuleInit(): Promise<void> {
        await sleep(300);
        log.push('init');
      }
      async onApplicationBootstrap(): Promise<void> {
        await sleep(300);
        log.push('bootstrap');
      }
    }
    @Module({ providers: [Slow] })
    class Later {}
    @Injectable()
    class Svc {
      @StreamHandler(topic, 'g')
      handle(payload: number): void {
        log.push(`handled ${payload}`);
      }
    }
    await start({ imports: [mq(), Later], providers: [Svc, Slow] });
    await waitFor(() => log.length >= 24);
    expect(log.slice(0, 4)).toEqual(['init', 'init', 'bootstrap', 'bootstrap']);
    // NEST-01: each once, whatever the way of starting.
    const handled = log.slice(4).toSorted();
    expect(handled).toEqual(Array.from({ length: 20 }, (_, n) => `handled ${n}`).toSorted());
  });
});

describe('shutdown', () => {
  it('DEL-27 running handlers finish and are acknowledged before the first destroy hook, and nothing starts after it', async () => {
    const topic = uniqueName('topic');
    await backlog(topic, 10);
    const log: string[] = [];
    const started = deferred();
    @Injectable()
    class Svc implements OnModuleDestroy, BeforeApplicationShutdown {
      @StreamHandler(topic, 'g')
      async handle(payload: number): Promise<void> {
        log.push(`start ${payload}`);
        started.resolve();
        await sleep(200);
        log.push(`end ${payload}`);
      }
      onModuleDestroy(): void {
        log.push('destroy');
      }
      beforeApplicationShutdown(): void {
        log.push('before shutdown');
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Svc] });
    await started.promise;
    await apps.close(app);
    expect(log.slice(-2)).toEqual(['destroy', 'before shutdown']);
    const handled = log.filter((line) => line.startsWith('start')).map((line) => line.slice('start '.length));
    expect(handled.length).toBeLessThan(10);
    expect(log.filter((line) => line.startsWith('end'))).toHaveLength(handled.length);

    // What was handled is settled: the next instance gets exactly the others, and at once.
    const rest: string[] = [];
    @Injectable()
    class Next {
      @StreamHandler(topic, 'g')
      handle(payload: number): void {
        rest.push(String(payload));
      }
    }
    await apps.context({ imports: [mq()], providers: [Next] });
    await waitFor(() => rest.length === 10 - handled.length, { timeoutMs: 3_000 });
    await sleep(100);
    expect([...handled, ...rest].toSorted()).toEqual(Array.from({ length: 10 }, (_, n) => String(n)));
  });

  it('NEST-05 a request that still publishes during the shutdown succeeds', async () => {
    const topic = uniqueName('topic');
    const requested = deferred();
    @Controller()
    class Api implements OnApplicationShutdown {
      constructor(@Inject(MqProducer) private readonly producer: MqProducer) {}
      @Get('slow')
      async slow(): Promise<object> {
        requested.resolve();
        await sleep(400);
        return this.producer.send(topic, 'during the shutdown');
      }
      async onApplicationShutdown(): Promise<void> {
        await this.producer.send(topic, 'in the last hook');
      }
    }
    const app = await apps.listen({ imports: [mq()], controllers: [Api] });
    const answer = request(await app.getUrl())
      .get('/slow')
      .then((response) => response);
    await requested.promise;
    await apps.close(app);
    expect((await answer).status).toBe(200);

    const seen: string[] = [];
    @Injectable()
    class Svc {
      @StreamHandler(topic, 'g')
      handle(payload: string): void {
        seen.push(payload);
      }
    }
    await apps.context({ imports: [mq()], providers: [Svc] });
    await waitFor(() => seen.length === 2);
    expect(seen.toSorted()).toEqual(['during the shutdown', 'in the last hook']);
  });

  it('NEST-06 closes when it was never initialised, while it connects, and twice', async () => {
    const fresh = await apps.create({ imports: [mq()] });
    await fresh.close();
    const connecting = await apps.create({ imports: [mq()] });
    const ready = connecting.init();
    await connecting.close();
    await ready;
    const used = await apps.context({ imports: [mq()] });
    await used.close();
    await used.close();
    await waitFor(async () => !(await clientNames()).some((name) => name.startsWith('redis-streams-mq:')));
  });

  async function clientNames(): Promise<string[]> {
    const list = (await redis.client().client('LIST')) as string;
    return [...list.matchAll(/ name=(\S*)/g)].map(([, name]) => name ?? '');
  }
});

describe('NEST-04 two applications in one process', () => {
  it('share the partitions, and one goes on when the other closes', async () => {
    const topic = uniqueName('topic');
    const seen: string[] = [];
    const appOf = async (who: string): Promise<INestApplicationContext> => {
      @Injectable()
      class Svc {
        @StreamHandler(topic, 'g')
        handle(payload: number): void {
          seen.push(`${who} ${payload}`);
        }
      }
      return apps.context({ imports: [mq()], providers: [Svc] });
    };
    const [first, second] = [await appOf('first'), await appOf('second')];
    const producer = second.get(MqProducer);
    const byWhom = (): Set<string | undefined> => new Set(seen.map((line) => line.split(' ')[0]));
    // Sent anew until both take part: which of them has what partition is not up to the test.
    await waitFor(async () => {
      await producer.sendBatch(
        topic,
        Array.from({ length: 8 }, (_, n) => ({ payload: n, key: `key-${n}` })),
      );
      return byWhom().size === 2;
    });
    await apps.close(first);
    seen.length = 0;
    await producer.sendBatch(
      topic,
      Array.from({ length: 8 }, (_, n) => ({ payload: 100 + n, key: `key-${n}` })),
    );
    await waitFor(() => seen.filter((line) => /^second 10\d$/.test(line)).length === 8);
    expect(byWhom()).toEqual(new Set(['second']));
  });
});
