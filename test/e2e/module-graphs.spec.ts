import { existsSync } from 'node:fs';
import { join } from 'node:path';
import {
  Inject,
  Injectable,
  Module,
  Scope,
  type DynamicModule,
  type INestApplicationContext,
  type OnApplicationBootstrap,
  type OnModuleInit,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { MqProducer, RedisStreamsMqModule, StreamHandler } from 'nestjs-redis-streams-mq';
import { queueOptions, useApps, type AppGraph } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();
let topic: string;
beforeEach(() => {
  topic = uniqueName('topic');
});

const mq = (): DynamicModule => RedisStreamsMqModule.forRoot(queueOptions(redis));
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const COUNT = 20;

/** A class with a handler that counts how often it is called for which message, over all its instances. */
function countingService() {
  const calls = new Map<number, number>();
  @Injectable()
  class Svc {
    @StreamHandler(topic, 'g')
    handle(payload: number): void {
      calls.set(payload, (calls.get(payload) ?? 0) + 1);
    }
  }
  return { Svc, calls };
}

/** Each message is handled, and stays handled once. */
async function expectHandledOnce(app: INestApplicationContext, calls: ReadonlyMap<number, number>): Promise<void> {
  const messages = Array.from({ length: COUNT }, (_, n) => ({ payload: n, key: `key-${n}` }));
  expect(await app.get(MqProducer, { strict: false }).sendBatch(topic, messages)).toMatchObject({ sent: COUNT });
  await waitFor(() => calls.size === COUNT);
  await sleep(100);
  expect([...calls.values()]).toEqual(Array<number>(COUNT).fill(1));
}

describe('NEST-01 a handler is called once for each message', () => {
  type Graph = (svc: new () => object) => AppGraph;
  const graphs: [what: string, graph: Graph][] = [
    [
      'when two dynamic modules import the module that provides it',
      (Svc) => {
        @Module({ providers: [Svc], exports: [Svc] })
        class Feature {}
        @Module({})
        class Dynamic {
          static register(option: string): DynamicModule {
            return { module: Dynamic, imports: [Feature], providers: [{ provide: 'option', useValue: option }] };
          }
        }
        return { imports: [mq(), Dynamic.register('a'), Dynamic.register('b')] };
      },
    ],
    [
      'when it stands under two further tokens (useExisting, twice) and is exported again',
      (Svc) => {
        @Module({ providers: [Svc, { provide: 'one', useExisting: Svc }], exports: [Svc, 'one'] })
        class Feature {}
        @Module({ imports: [Feature], providers: [{ provide: 'two', useExisting: Svc }], exports: [Feature, 'two'] })
        class Again {}
        return { imports: [mq(), Feature, Again] };
      },
    ],
    [
      'when a factory hands it on',
      (Svc) => ({
        imports: [mq()],
        providers: [Svc, { provide: 'made', useFactory: (svc: object) => svc, inject: [Svc] }],
      }),
    ],
  ];

  it.each(graphs)('%s', async (_what, graph) => {
    const { Svc, calls } = countingService();
    await expectHandledOnce(await apps.context(graph(Svc)), calls);
  });

  it('when the application is initialised twice and listens', async () => {
    const { Svc, calls } = countingService();
    const app = await apps.create({ imports: [mq()], providers: [Svc] });
    await app.init();
    await app.init();
    await app.listen(0, '127.0.0.1');
    await expectHandledOnce(app, calls);
  });

  it('and a class that is provided twice is refused at the boot, with both places', async () => {
    const { Svc } = countingService();
    @Module({ providers: [Svc] })
    class A {}
    @Module({ providers: [Svc] })
    class B {}
    await expect(apps.context({ imports: [mq(), A, B] })).rejects.toThrow(
      /has two handlers: Svc\.handle \(provided in A\) and Svc\.handle \(provided in B\)/,
    );
  });

  it('as are two handlers of one topic and group, before any of them gets a message', async () => {
    const { Svc, calls } = countingService();
    @Injectable()
    class Second {
      @StreamHandler(topic, 'g')
      handle(): void {
        calls.set(-1, 1);
      }
    }
    const hooks: string[] = [];
    @Injectable()
    class Hooked implements OnModuleInit {
      onModuleInit(): void {
        hooks.push('init');
      }
    }
    await expect(apps.context({ imports: [mq()], providers: [Svc, Second, Hooked] })).rejects.toThrow(
      /has two handlers: Svc\.handle .* and Second\.handle /,
    );
    expect([...calls, ...hooks]).toEqual([]);
  });
});

/** The peer that hybrid applications need; the queue itself does not, and neither does the rest of its tests. */
const hasMicroservices = existsSync(join(process.cwd(), 'node_modules/@nestjs/microservices'));
const describeWithMicroservices = hasMicroservices ? describe : describe.skip;

describeWithMicroservices('with @nestjs/microservices (skipped where it is not installed)', () => {
  const strategy = {
    listen: (done: () => void) => done(),
    close: () => undefined,
    on: () => undefined,
    addHandler: () => undefined,
  };

  /** Messages that wait already, a bootstrap that takes its time, and what the handler saw of it. */
  async function slowGraph() {
    const sender = await apps.context({ imports: [mq()] });
    const messages = Array.from({ length: COUNT }, (_, n) => ({ payload: n, key: `key-${n}` }));
    expect(await sender.get(MqProducer).sendBatch(topic, messages)).toMatchObject({ sent: COUNT });
    let isReady = false;
    const seen: [payload: number, wasReady: boolean][] = [];
    @Injectable()
    class Slow implements OnModuleInit, OnApplicationBootstrap {
      async onModuleInit(): Promise<void> {
        await sleep(300);
      }
      async onApplicationBootstrap(): Promise<void> {
        await sleep(300);
        isReady = true;
      }
    }
    @Injectable()
    class Svc {
      @StreamHandler(topic, 'g')
      handle(payload: number): void {
        seen.push([payload, isReady]);
      }
    }
    return { graph: { imports: [mq()], providers: [Slow, Svc] }, seen };
  }

  async function expectOnceAndReady(seen: readonly [number, boolean][]): Promise<void> {
    await waitFor(() => seen.length >= COUNT);
    await sleep(100);
    expect(seen.map(([payload]) => payload).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: COUNT }, (_, n) => n),
    );
    expect(seen.every(([, wasReady]) => wasReady)).toBe(true);
  }

  it('NEST-01 NEST-09 a hybrid application handles each message once, after its bootstrap', async () => {
    const { graph, seen } = await slowGraph();
    const app = await apps.create(graph);
    app.connectMicroservice({ strategy }, { inheritAppConfig: true });
    await app.startAllMicroservices();
    await app.listen(0, '127.0.0.1');
    await expectOnceAndReady(seen);
  });

  it('NEST-01 NEST-09 a microservice handles each message once, after its bootstrap', async () => {
    const { graph, seen } = await slowGraph();
    @Module(graph)
    class AppModule {}
    const app = await NestFactory.createMicroservice(AppModule, { strategy, logger: false });
    try {
      await app.listen();
      await expectOnceAndReady(seen);
    } finally {
      await app.close();
    }
  });
});

describe('NEST-02 transient providers', () => {
  it('NEST-02 a transient class is refused at the boot, with the reason and what to do', async () => {
    @Injectable({ scope: Scope.TRANSIENT })
    class Transient {
      @StreamHandler(topic, 'g')
      handle(): void {}
    }
    const boot = apps.context({ imports: [mq()], providers: [Transient] });
    await expect(boot).rejects.toThrow(/Transient\.handle .*is transient.*make it a singleton/);
  });

  it('NEST-02 a transient dependency is the handler’s own, and 20 messages at once see the same', async () => {
    let made = 0;
    @Injectable({ scope: Scope.TRANSIENT })
    class Part {
      readonly number = ++made;
    }
    const seen: number[] = [];
    @Injectable()
    class Svc {
      constructor(@Inject(Part) private readonly part: Part) {}
      @StreamHandler(topic, 'g')
      handle(): void {
        seen.push(this.part.number);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Part, Svc] });
    await Promise.all(Array.from({ length: 20 }, (_, n) => app.get(MqProducer).send(topic, n)));
    await waitFor(() => seen.length === 20);
    expect(new Set(seen).size).toBe(1);
  });
});

describe('NEST-07 inheritance', () => {
  it('NEST-07 calls each concrete handler once, on its own instance, with its own topic, and no getter', async () => {
    const [first, second, own] = [uniqueName('first'), uniqueName('second'), uniqueName('own')];
    const calls: string[] = [];
    abstract class Base {
      protected readonly label: string = this.constructor.name;
      @StreamHandler(topic, 'base')
      handle(payload: number): void {
        calls.push(`${this.label}.handle ${payload}`);
      }
    }
    @Injectable()
    class First extends Base {
      get broken(): never {
        throw new Error('a getter must not be invoked');
      }
      @StreamHandler(first, 'g')
      override handle(payload: number): void {
        super.handle(payload);
      }
      @StreamHandler(own, 'g')
      more(payload: number): void {
        calls.push(`${this.label}.more ${payload}`);
      }
    }
    @Injectable()
    class Second extends Base {
      @StreamHandler(second, 'g')
      override handle(payload: number): void {
        super.handle(payload);
      }
    }
    @Injectable()
    class Third extends Base {
      override handle(payload: number): void {
        calls.push(`${this.label}.overridden ${payload}`);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [First, Second, Third] });
    const producer = app.get(MqProducer);
    for (const [i, name] of [topic, first, second, own].entries()) await producer.send(name, i);
    await waitFor(() => calls.length >= 4);
    await sleep(100);
    expect(calls.toSorted()).toEqual(['First.handle 1', 'First.more 3', 'Second.handle 2', 'Third.overridden 0']);
  });

  it('NEST-07 two subclasses that inherit one topic and group are refused at the boot', async () => {
    abstract class Base {
      @StreamHandler(topic, 'g')
      handle(): void {}
    }
    @Injectable()
    class First extends Base {}
    @Injectable()
    class Second extends Base {}
    await expect(apps.context({ imports: [mq()], providers: [First, Second] })).rejects.toThrow(
      /has two handlers: First\.handle .* and Second\.handle /,
    );
  });

  it('NEST-07 a property with a function is refused where it is written', () => {
    expect(() => {
      class WithProperty {
        @(StreamHandler(topic, 'g') as PropertyDecorator)
        handle = (): void => undefined;
      }
      return WithProperty;
    }).toThrow('WithProperty.handle: @StreamHandler needs a method; this is a property');
  });
});
