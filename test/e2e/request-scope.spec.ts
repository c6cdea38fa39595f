import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  Catch,
  Controller,
  Inject,
  Injectable,
  Scope,
  UseFilters,
  UseGuards,
  UseInterceptors,
  UsePipes,
  type CanActivate,
  type DynamicModule,
  type ExceptionFilter,
  type NestInterceptor,
  type PipeTransform,
} from '@nestjs/common';
import {
  APP_FILTER,
  APP_GUARD,
  APP_INTERCEPTOR,
  APP_PIPE,
  ContextIdFactory,
  ModuleRef,
  REQUEST,
  type ContextId,
  type ContextIdStrategy,
} from '@nestjs/core';
import {
  DeadLetterQueue,
  MqProducer,
  RedisStreamsMqModule,
  StreamHandler,
  type RedisStreamsMqModuleOptions,
  type StreamContext,
} from 'nestjs-redis-streams-mq';
import { queueOptions, useApps, type AppGraph } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();
let topic: string;
beforeEach(() => {
  topic = uniqueName('topic');
});

const mq = (more: RedisStreamsMqModuleOptions = {}): DynamicModule =>
  RedisStreamsMqModule.forRoot(queueOptions(redis, more));
const COUNT = 20;
const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** What was made for a message, as the message's handler found it. */
interface Sighting {
  readonly n: number;
  readonly ctx: StreamContext;
  /** What `REQUEST` was for each thing that was made. */
  readonly requests: readonly unknown[];
  readonly number: number;
}
let sightings: Sighting[];
let made: number;
beforeEach(() => {
  sightings = [];
  made = 0;
});

/** Made anew for each message, and knows which. */
@Injectable({ scope: Scope.REQUEST })
class PerMessage {
  readonly number = ++made;
  constructor(@Inject(REQUEST) readonly request: StreamContext) {}
}

const scopes: [what: string, graph: () => AppGraph][] = [
  [
    'a request-scoped handler class',
    () => {
      @Injectable({ scope: Scope.REQUEST })
      class Orders {
        readonly number = ++made;
        constructor(@Inject(REQUEST) readonly request: unknown) {}
        @StreamHandler(topic, 'g')
        async handle(n: number, ctx: StreamContext): Promise<void> {
          await tick();
          sightings.push({ n, ctx, requests: [this.request], number: this.number });
        }
      }
      return { providers: [Orders] };
    },
  ],
  [
    'a controller with a request-scoped dependency',
    () => {
      @Controller()
      class Orders {
        constructor(@Inject(PerMessage) readonly perMessage: PerMessage) {}
        @StreamHandler(topic, 'g')
        async handle(n: number, ctx: StreamContext): Promise<void> {
          await tick();
          sightings.push({ n, ctx, requests: [this.perMessage.request], number: this.perMessage.number });
        }
      }
      return { controllers: [Orders], providers: [PerMessage] };
    },
  ],
  [
    'a provider with a dependency two steps away, under a token of its own',
    () => {
      @Injectable()
      class Between {
        constructor(@Inject(PerMessage) readonly perMessage: PerMessage) {}
      }
      @Injectable()
      class Orders {
        constructor(
          @Inject(Between) readonly between: Between,
          @Inject(PerMessage) readonly perMessage: PerMessage,
        ) {}
        @StreamHandler(topic, 'g')
        async handle(n: number, ctx: StreamContext): Promise<void> {
          await tick();
          // One of each in a message, however many ask for it.
          const { request, number } = this.between.perMessage;
          sightings.push({ n, ctx, requests: [request, this.perMessage.request], number });
        }
      }
      return { providers: [PerMessage, Between, { provide: 'orders', useClass: Orders }] };
    },
  ],
  [
    'a request-scoped factory whose token is the class',
    () => {
      class Orders {
        constructor(readonly perMessage: PerMessage) {}
        @StreamHandler(topic, 'g')
        async handle(n: number, ctx: StreamContext): Promise<void> {
          await tick();
          sightings.push({ n, ctx, requests: [this.perMessage.request], number: this.perMessage.number });
        }
      }
      const useFactory = (perMessage: PerMessage): Orders => new Orders(perMessage);
      return { providers: [PerMessage, { provide: Orders, useFactory, inject: [PerMessage] }] };
    },
  ],
];

describe('NEST-02 what is request-scoped is made for each message', () => {
  it.each(scopes)('%s', async (_what, graph) => {
    const app = await apps.context({ ...graph(), imports: [mq({ defaultPartitionCount: 8 })] });
    const producer = app.get(MqProducer);
    await Promise.all(Array.from({ length: COUNT }, (_, n) => producer.send(topic, n)));
    await waitFor(() => sightings.length === COUNT);
    expect(new Set(sightings.map(({ n }) => n)).size).toBe(COUNT);
    for (const { ctx, requests } of sightings) for (const request of requests) expect(request).toBe(ctx);
    expect(new Set(sightings.map(({ number }) => number)).size).toBe(COUNT);
    expect(made).toBe(COUNT);
  });

  it('and for each attempt at it, and what the handler resolves by its context is the same', async () => {
    const seen: boolean[] = [];
    @Injectable()
    class Orders {
      constructor(
        @Inject(PerMessage) readonly perMessage: PerMessage,
        @Inject(ModuleRef) readonly moduleRef: ModuleRef,
      ) {}
      @StreamHandler(topic, 'g')
      async handle(_n: number, ctx: StreamContext): Promise<void> {
        const resolved = await this.moduleRef.resolve(PerMessage, ContextIdFactory.getByRequest(ctx));
        seen.push(resolved === this.perMessage && resolved.request === ctx);
        if (ctx.attempt < 3) throw new Error('again');
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [PerMessage, Orders] });
    await app.get(MqProducer).send(topic, 1);
    await waitFor(() => seen.length === 3);
    expect(seen).toEqual([true, true, true]);
    expect(made).toBe(3);
  });

  it('and of a transient dependency every message has its own', async () => {
    @Injectable({ scope: Scope.TRANSIENT })
    class Part {
      readonly number = ++made;
    }
    const numbers: number[] = [];
    @Injectable({ scope: Scope.REQUEST })
    class Orders {
      constructor(@Inject(Part) readonly part: Part) {}
      @StreamHandler(topic, 'g')
      handle(): void {
        numbers.push(this.part.number);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Part, Orders] });
    for (let n = 0; n < 5; n++) await app.get(MqProducer).send(topic, n);
    await waitFor(() => numbers.length === 5);
    expect(new Set(numbers).size).toBe(5);
  });

  it('and what cannot be made is retried and ends as a dead letter; filters see it', async () => {
    const shown: string[] = [];
    @Catch()
    class Looking implements ExceptionFilter {
      catch(error: Error): void {
        shown.push(error.message);
      }
    }
    @Injectable({ scope: Scope.REQUEST })
    class Broken {
      constructor() {
        throw new Error(`no connection, ${++made}`);
      }
    }
    @Injectable()
    @UseFilters(new Looking())
    class Orders {
      constructor(@Inject(Broken) readonly broken: Broken) {}
      @StreamHandler(topic, 'g', { retryMaxAttempts: 2 })
      handle(): void {}
    }
    const app = await apps.context({ imports: [mq()], providers: [Broken, Orders] });
    await app.get(MqProducer).send(topic, 1);
    const deadLetters = app.get(DeadLetterQueue);
    await waitFor(async () => (await deadLetters.size(topic)) === 1);
    const { items } = await deadLetters.list(topic);
    expect(items).toMatchObject([{ reason: 'exhausted', attempts: 2, error: { message: 'no connection, 2' } }]);
    expect(shown).toEqual(['no connection, 1', 'no connection, 2']);
  });
});

describe('NEST-02 request-scoped enhancers', () => {
  /** One of each kind; what they say is written down in order. */
  let seen: string[];
  beforeEach(() => void (seen = []));
  const say = (what: string, request: unknown): void => {
    seen.push(`${what} ${(request as StreamContext).headers['n']}`);
  };
  @Injectable({ scope: Scope.REQUEST })
  class Guard implements CanActivate {
    constructor(@Inject(REQUEST) readonly request: unknown) {}
    canActivate(): boolean {
      say('guard', this.request);
      return true;
    }
  }
  @Injectable({ scope: Scope.REQUEST })
  class Interceptor implements NestInterceptor {
    constructor(@Inject(REQUEST) readonly request: unknown) {}
    intercept(...[, next]: Parameters<NestInterceptor['intercept']>): ReturnType<NestInterceptor['intercept']> {
      say('interceptor', this.request);
      return next.handle();
    }
  }
  @Injectable({ scope: Scope.REQUEST })
  class Pipe implements PipeTransform {
    constructor(@Inject(REQUEST) readonly request: unknown) {}
    transform(value: unknown): unknown {
      say('pipe', this.request);
      return value;
    }
  }
  @Catch()
  @Injectable({ scope: Scope.REQUEST })
  class Filter implements ExceptionFilter {
    constructor(@Inject(REQUEST) readonly request: unknown) {}
    catch(): void {
      say('filter', this.request);
    }
  }
  const ofOne = (n: number): string[] =>
    ['guard', 'interceptor', 'pipe', 'handler', 'filter'].map((what) => `${what} ${n}`);

  async function expectEach(graph: AppGraph): Promise<void> {
    const app = await apps.context({ ...graph, imports: [mq({ defaultPartitionCount: 1 })] });
    for (const n of [1, 2, 3]) await app.get(MqProducer).send(topic, n, { headers: { n: String(n) } });
    await waitFor(() => seen.length === 15);
    expect(seen).toEqual([1, 2, 3].flatMap(ofOne));
  }

  function orders(): new () => { handle(payload: number, ctx: StreamContext): void } {
    @Injectable()
    class Orders {
      @StreamHandler(topic, 'g', { retryMaxAttempts: 1 })
      handle(_payload: number, ctx: StreamContext): void {
        say('handler', ctx);
        throw new Error('for the filter');
      }
    }
    return Orders;
  }

  it('on the class apply, each with its message', async () => {
    const Orders = orders();
    UseGuards(Guard)(Orders);
    UseInterceptors(Interceptor)(Orders);
    UsePipes(Pipe)(Orders);
    UseFilters(Filter)(Orders);
    await expectEach({ providers: [Orders] });
  });

  it.each(['providers', 'controllers'] as const)(
    'of the application apply to singletons among the %s, each with its message',
    async (kind) => {
      const Orders = orders();
      const global = [
        { provide: APP_GUARD, useClass: Guard },
        { provide: APP_INTERCEPTOR, useClass: Interceptor },
        { provide: APP_PIPE, useClass: Pipe },
        { provide: APP_FILTER, useClass: Filter },
      ];
      const classes = kind === 'providers' ? [Orders] : [];
      await expectEach({ providers: [...global, ...classes], controllers: kind === 'controllers' ? [Orders] : [] });
    },
  );

  it('and transient ones are made with their dependencies', async () => {
    @Injectable()
    class Dependency {}
    @Injectable({ scope: Scope.TRANSIENT })
    class Transient implements CanActivate {
      constructor(@Inject(Dependency) readonly dependency: Dependency) {}
      canActivate(): boolean {
        seen.push(`guard with ${this.dependency instanceof Dependency}`);
        return true;
      }
    }
    @Injectable()
    @UseGuards(Transient)
    class Orders {
      @StreamHandler(topic, 'g')
      handle(): void {
        seen.push('handler');
      }
    }
    const app = await apps.context({
      imports: [mq()],
      providers: [Dependency, Orders, { provide: APP_GUARD, useClass: Transient }],
    });
    await app.get(MqProducer).send(topic, 1);
    await waitFor(() => seen.includes('handler'));
    expect(seen).toEqual(['guard with true', 'guard with true', 'handler']);
  });
});

describe('NEST-02 durable providers', () => {
  const tenants = new Map<string, ContextId>();
  const byTenant: ContextIdStrategy<StreamContext> = {
    attach(contextId, { headers }) {
      const tenant = headers['tenant'] ?? 'none';
      let subTree = tenants.get(tenant);
      if (subTree === undefined) tenants.set(tenant, (subTree = ContextIdFactory.create()));
      return { resolve: ({ isTreeDurable }) => (isTreeDurable ? subTree : contextId), payload: { tenant } };
    },
  };
  beforeAll(() => ContextIdFactory.apply(byTenant as ContextIdStrategy));
  beforeEach(() => tenants.clear());
  // Nest has no way back from `apply`.
  afterAll(() => Reflect.deleteProperty(ContextIdFactory, 'strategy'));

  @Injectable({ scope: Scope.REQUEST, durable: true })
  class TenantDb {
    readonly number = ++made;
    constructor(@Inject(REQUEST) readonly request: { tenant: string }) {}
  }

  it('are made once for each tenant, by the ContextIdStrategy of the application', async () => {
    const seen: string[] = [];
    @Injectable({ scope: Scope.REQUEST, durable: true })
    class Orders {
      constructor(@Inject(TenantDb) readonly db: TenantDb) {}
      @StreamHandler(topic, 'g')
      handle(_payload: number, { headers }: StreamContext): void {
        seen.push(`${headers['tenant']} in db of ${this.db.request.tenant}`);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [TenantDb, Orders] });
    for (let n = 0; n < COUNT; n++) await app.get(MqProducer).send(topic, n, { headers: { tenant: `t${n % 2}` } });
    await waitFor(() => seen.length === COUNT);
    expect(new Set(seen)).toEqual(new Set(['t0 in db of t0', 't1 in db of t1']));
    expect(made).toBe(2);
  });

  it('are shared by the messages of a tenant also where the handler is of one message', async () => {
    const seen: unknown[] = [];
    const databases = new Set<TenantDb>();
    @Injectable({ scope: Scope.REQUEST })
    class Orders {
      constructor(
        @Inject(TenantDb) readonly db: TenantDb,
        @Inject(REQUEST) readonly request: StreamContext,
      ) {}
      @StreamHandler(topic, 'g')
      handle(_payload: number, ctx: StreamContext): void {
        databases.add(this.db);
        seen.push(this.request === ctx);
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [TenantDb, Orders] });
    for (let n = 0; n < COUNT; n++) await app.get(MqProducer).send(topic, n, { headers: { tenant: `t${n % 2}` } });
    await waitFor(() => seen.length === COUNT);
    expect(seen).toEqual(Array<boolean>(COUNT).fill(true));
    expect(databases.size).toBe(2);
  });
});

describe('NEST-02 memory', () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;

  it('does not grow with 10,000 messages that each had their own instances', async () => {
    const alive: WeakRef<object>[] = [];
    let handled = 0;
    @Injectable({ scope: Scope.REQUEST })
    class Part {
      constructor(@Inject(REQUEST) readonly request: StreamContext) {
        alive.push(new WeakRef(this));
      }
    }
    @Injectable({ scope: Scope.TRANSIENT })
    class Transient {
      readonly bytes = new Uint8Array(100);
      constructor() {
        alive.push(new WeakRef(this));
      }
    }
    @Injectable({ scope: Scope.REQUEST })
    class Guard implements CanActivate {
      canActivate(): boolean {
        return true;
      }
    }
    @Injectable()
    @UseGuards(Guard)
    class Orders {
      constructor(
        @Inject(Part) readonly part: Part,
        @Inject(Transient) readonly transient: Transient,
      ) {
        alive.push(new WeakRef(this));
      }
      @StreamHandler(topic, 'g')
      handle(): void {
        handled++;
      }
    }
    const app = await apps.context({ imports: [mq()], providers: [Part, Transient, Guard, Orders] });
    const producer = app.get(MqProducer);
    const heaps: number[] = [];
    for (let round = 1; round <= 10; round++) {
      await producer.sendBatch(
        topic,
        Array.from({ length: 1_000 }, (_, n) => ({ payload: n })),
      );
      await waitFor(() => handled === round * 1_000, { timeoutMs: 30_000 });
      await tick();
      collect();
      heaps.push(process.memoryUsage().heapUsed / 1_048_576);
    }
    expect(alive.length).toBeGreaterThanOrEqual(30_000);
    // What was made last may still be on the stack or in a buffer.
    await waitFor(() => {
      collect();
      return alive.filter((reference) => reference.deref() !== undefined).length < 100;
    });
    // The list of weak references itself takes some of it.
    expect(heaps.at(-1)! - heaps[1]!).toBeLessThan(10);
  }, 120_000);
});
