import {
  Catch,
  Controller,
  Get,
  Module,
  UseFilters,
  UseGuards,
  UseInterceptors,
  UsePipes,
  type CanActivate,
  type ExceptionFilter,
  type INestApplication,
  type NestInterceptor,
  type PipeTransform,
} from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR, APP_PIPE, type AbstractHttpAdapter } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import {
  DeadLetterQueue,
  isStreamContext,
  MqProducer,
  RedisStreamsMqModule,
  StreamHandler,
} from 'nestjs-redis-streams-mq';
import { tap } from 'rxjs';
import request from 'supertest';
import { queueOptions, useApps, type AppGraph } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();
let topic: string;
let seen: string[];
beforeEach(() => {
  topic = uniqueName('topic');
  seen = [];
});

type Kind = 'guard' | 'interceptor' | 'pipe' | 'filter';

/** One of each kind, which says that it was there for a message; `name` tells levels apart. */
function enhancers(name: string) {
  const guard: CanActivate = {
    canActivate(host) {
      if (!isStreamContext(host)) return true;
      seen.push(`${name} guard`);
      return host.switchToRpc().getData<string>() !== `denied by ${name}`;
    },
  };
  const interceptor: NestInterceptor = {
    intercept(host, next) {
      if (!isStreamContext(host)) return next.handle();
      seen.push(`${name} interceptor`);
      return next.handle().pipe(tap(() => seen.push(`${name} interceptor after`)));
    },
  };
  const pipe: PipeTransform = {
    transform(value: unknown) {
      if (value === `invalid for ${name}`) throw new Error(`${name} pipe refuses`);
      if (typeof value === 'string') seen.push(`${name} pipe`);
      return value;
    },
  };
  @Catch()
  class Filter implements ExceptionFilter {
    catch(error: Error): string {
      seen.push(`${name} filter saw ${error.message}`);
      return 'swallowed';
    }
  }
  return { guard, interceptor, pipe, filter: new Filter() };
}

type Enhancers = ReturnType<typeof enhancers>;
type Level = 'method' | 'class' | 'module' | 'global';
const levels: readonly Level[] = ['method', 'class', 'module', 'global'];
const kinds: readonly Kind[] = ['guard', 'interceptor', 'pipe', 'filter'];
const adapters: readonly (readonly [string, () => AbstractHttpAdapter])[] = [
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
];

const decorate = { guard: UseGuards, interceptor: UseInterceptors, pipe: UsePipes, filter: UseFilters } as Record<
  Kind,
  (enhancer: never) => ClassDecorator & MethodDecorator
>;
const tokens = { guard: APP_GUARD, interceptor: APP_INTERCEPTOR, pipe: APP_PIPE, filter: APP_FILTER };

function useGlobally(app: INestApplication, kind: Kind, made: Enhancers): void {
  if (kind === 'guard') app.useGlobalGuards(made.guard);
  if (kind === 'interceptor') app.useGlobalInterceptors(made.interceptor);
  if (kind === 'pipe') app.useGlobalPipes(made.pipe);
  if (kind === 'filter') app.useGlobalFilters(made.filter);
}

/** An application that serves HTTP and handles messages, with these enhancers at these levels. */
async function open(
  used: readonly (readonly [Kind, Level])[],
  makeAdapter: () => AbstractHttpAdapter = () => new ExpressAdapter(),
  {
    globalEnhancers = true,
    prepare = async () => {},
  }: { globalEnhancers?: boolean; prepare?: (app: INestApplication) => Promise<void> } = {},
): Promise<INestApplication> {
  const made = Object.fromEntries(levels.map((level) => [level, enhancers(level)])) as Record<Level, Enhancers>;
  @Controller('http')
  class Orders {
    @Get()
    get(): string {
      return 'served';
    }
    @StreamHandler(topic, 'g', { retryMaxAttempts: 1 })
    handle(payload: string): void {
      seen.push('handler');
      if (payload === 'fails') throw new Error('no');
    }
  }
  const descriptor = Object.getOwnPropertyDescriptor(Orders.prototype, 'handle')!;
  for (const [kind, level] of used) {
    const apply = decorate[kind](made[level][kind] as never);
    if (level === 'class') apply(Orders);
    if (level === 'method') apply(Orders.prototype, 'handle', descriptor);
  }
  const providers = used
    .filter(([, level]) => level === 'module')
    .map(([kind]) => ({ provide: tokens[kind], useValue: made.module[kind] }));
  // In another module than the handler: `APP_*` is for the whole application.
  @Module({ providers })
  class Enhancing {}
  const graph: AppGraph = {
    imports: [
      Enhancing,
      RedisStreamsMqModule.forRoot({ ...queueOptions(redis, { defaultPartitionCount: 1 }), globalEnhancers }),
    ],
    controllers: [Orders],
  };
  const app = await apps.create(graph, makeAdapter());
  for (const [kind, level] of used) if (level === 'global') useGlobally(app, kind, made.global);
  await prepare(app);
  await app.listen(0, '127.0.0.1');
  return app;
}

async function reasons(app: INestApplication, count: number): Promise<string[]> {
  const queue = app.get(DeadLetterQueue);
  await waitFor(async () => (await queue.size(topic)) === count);
  return (await queue.list(topic)).items.map(({ reason, error }) => `${reason}: ${error?.message}`);
}

/** What one enhancer does for a message that passes, or fails for the filter. */
const expected: Record<Kind, (level: Level) => string[]> = {
  guard: (level) => [`${level} guard`, 'handler'],
  interceptor: (level) => [`${level} interceptor`, 'handler', `${level} interceptor after`],
  pipe: (level) => [`${level} pipe`, 'handler'],
  filter: (level) => ['handler', `${level} filter saw no`],
};

describe.each(adapters)('with %s', (_name, adapter) => {
  describe.each(levels)('at the level of the %s', (level) => {
    it.each(kinds)('a %s applies to messages, and requests are served as before', async (kind) => {
      const app = await open([[kind, level]], adapter);
      await app.get(MqProducer).send(topic, kind === 'filter' ? 'fails' : 'passes');
      await waitFor(() => seen.length === expected[kind](level).length);
      expect(seen).toEqual(expected[kind](level));
      await request(app.getHttpServer()).get('/http').expect(200, 'served');
      // A filter swallows nothing.
      expect(kind === 'filter' ? await reasons(app, 1) : []).toEqual(kind === 'filter' ? ['exhausted: no'] : []);
    });
  });

  it('all levels apply in the order of Nest', async () => {
    const used = levels.flatMap((level) => kinds.map((kind) => [kind, level] as const));
    const app = await open(used, adapter);
    await app.get(MqProducer).send(topic, 'passes');
    await waitFor(() => seen.length === 17);
    // What modules provide is there before the application adds its own, as for requests.
    const order: Level[] = ['module', 'global', 'class', 'method'];
    expect(seen).toEqual([
      ...order.map((level) => `${level} guard`),
      ...order.map((level) => `${level} interceptor`),
      ...order.map((level) => `${level} pipe`),
      'handler',
      ...order.toReversed().map((level) => `${level} interceptor after`),
    ]);
  });
});

describe('what refuses a message leaves a dead letter that says so', () => {
  it.each(levels)('a guard of the %s', async (level) => {
    const app = await open([['guard', level]]);
    await app.get(MqProducer).send(topic, `denied by ${level}`);
    expect(await reasons(app, 1)).toEqual(['rejected: a guard of Orders.handle denied the message']);
    expect(seen).toEqual([`${level} guard`]);
  });

  it.each(levels)('a pipe of the %s', async (level) => {
    const app = await open([['pipe', level]]);
    await app.get(MqProducer).send(topic, `invalid for ${level}`);
    expect(await reasons(app, 1)).toEqual([`validation: ${level} pipe refuses`]);
    expect(seen).toEqual([]);
  });

  it('and it can be replayed when the guard is mended', async () => {
    const app = await open([['guard', 'global']]);
    await app.get(MqProducer).send(topic, 'denied by global');
    await reasons(app, 1);
    await apps.close(app);
    const mended = await open([]);
    await mended.get(DeadLetterQueue).replayAll(topic);
    await waitFor(() => seen.includes('handler'));
    expect(await reasons(mended, 0)).toEqual([]);
  });
});

describe('globalEnhancers: false', () => {
  it('leaves out those of the application and of its modules, and no others', async () => {
    const used = levels.flatMap((level) => kinds.map((kind) => [kind, level] as const));
    const app = await open(used, undefined, { globalEnhancers: false });
    await app.get(MqProducer).send(topic, 'denied by global');
    await waitFor(() => seen.includes('class interceptor after'));
    expect(seen.filter((text) => /^(global|module)/.test(text))).toEqual([]);
    expect(seen.slice(0, 2)).toEqual(['class guard', 'method guard']);
  });
});

describe('a hybrid application', () => {
  it.each([true, false])(
    'handles each message once, with its global enhancers (inheritAppConfig: %s)',
    async (inheritAppConfig) => {
      const strategy = {
        listen: (done: () => void) => done(),
        close: () => undefined,
        on: () => undefined,
        addHandler: () => undefined,
      };
      const app = await open([['guard', 'global']], undefined, {
        prepare: async (hybrid) => {
          hybrid.connectMicroservice({ strategy }, { inheritAppConfig });
          await hybrid.startAllMicroservices();
        },
      });
      await app.get(MqProducer).send(topic, 'passes');
      await app.get(MqProducer).send(topic, 'denied by global');
      await reasons(app, 1);
      await waitFor(() => seen.includes('handler'));
      expect(seen).toEqual(['global guard', 'handler', 'global guard']);
    },
  );
});
