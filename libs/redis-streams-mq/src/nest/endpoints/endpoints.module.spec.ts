import {
  Controller,
  Get,
  Injectable,
  Module,
  SetMetadata,
  VersioningType,
  type CanActivate,
  type ExecutionContext,
  type INestApplication,
} from '@nestjs/common';
import { APP_GUARD, APP_INTERCEPTOR, RouterModule, type AbstractHttpAdapter } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import { PrometheusModule } from '@willsoto/nestjs-prometheus';
import { Counter, register, Registry } from 'prom-client';
import { map } from 'rxjs';
import { fakeRuntime } from '../../../../../test/support/nest-fakes.js';
import type { ResolvedMqOptions } from '../../core/options.js';
import type { RedisStreamsMqModuleOptions } from '../module-options.js';
import { MQ_COMPOSE, RedisStreamsMqModule } from '../redis-streams-mq.module.js';
import type { MqRuntime } from '../runtime.js';

const written: string[] = [];
const write = (line: unknown): void => void written.push(String(line));
let app: INestApplication | undefined;

beforeEach(() => {
  written.length = 0;
});
afterEach(async () => {
  await app?.close();
  app = undefined;
  register.clear();
});

type Graph = NonNullable<Parameters<typeof Module>[0]>;
const mq = (options: RedisStreamsMqModuleOptions = {}) => RedisStreamsMqModule.forRoot(options);

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
] satisfies [string, () => AbstractHttpAdapter][])('on %s', (_platform, adapter) => {
  async function serve(
    graph: Graph,
    { override = {}, prepare }: { override?: Partial<MqRuntime>; prepare?: (app: INestApplication) => void } = {},
  ): Promise<void> {
    @Module(graph)
    class AppModule {}
    const compose = (options: ResolvedMqOptions, { name }: { name: string }): MqRuntime =>
      fakeRuntime(name, options, override).runtime;
    const testing = await Test.createTestingModule({ imports: [AppModule] })
      .setLogger({ log: write, warn: write, error: write })
      .overrideProvider(MQ_COMPOSE)
      .useValue(compose)
      .compile();
    app = testing.createNestApplication(adapter());
    prepare?.(app);
    await app.listen(0, '127.0.0.1');
  }

  async function get(path: string): Promise<{ status: number; type: string; body: string }> {
    const response = await fetch(`${await app?.getUrl()}${path}`);
    return { status: response.status, type: response.headers.get('content-type') ?? '', body: await response.text() };
  }
  const statuses = async (...paths: string[]): Promise<number[]> =>
    Promise.all(paths.map(async (path) => (await get(path)).status));

  it('readiness, liveness and metrics are served without a line of the application', async () => {
    new Counter({ name: 'of_the_app_total', help: 'h' }).inc();
    await serve({ imports: [mq()] });
    expect(JSON.parse((await get('/health')).body)).toMatchObject({
      status: 'ok',
      info: { default: { status: 'up' } },
    });
    expect(JSON.parse((await get('/health/live')).body)).toMatchObject({ details: { default: { alive: true } } });
    const metrics = await get('/metrics');
    expect(metrics).toMatchObject({ status: 200, type: register.contentType });
    expect(metrics.body).toContain('of_the_app_total 1');
  });

  it('readiness is 503 when an instance is down', async () => {
    const health = {
      readiness: async () => ({ redisStreamsMq: { status: 'down', reason: 'NOREPLICAS' } }),
      liveness: async () => ({ redisStreamsMq: { status: 'up' } }),
    } as unknown as MqRuntime['health'];
    await serve({ imports: [mq()] }, { override: { health } });
    const answer = await get('/health');
    expect(answer.status).toBe(503);
    expect(JSON.parse(answer.body)).toMatchObject({
      error: { redisStreamsMq: { status: 'down', reason: 'NOREPLICAS' } },
    });
    expect(await statuses('/health/live')).toEqual([200]);
  });

  it('all instances are in one answer, and one that is switched off is not', async () => {
    await serve({ imports: [mq(), mq({ name: 'second' }), mq({ name: 'off', enabled: false })] });
    const { details } = JSON.parse((await get('/health')).body) as { details: object };
    expect(Object.keys(details)).toEqual(['default', 'second']);
  });

  it('paths can be moved and switched off', async () => {
    await serve({ imports: [mq({ endpoints: { health: 'ops/ready', metrics: '/ops/metrics' } })] });
    expect(await statuses('/ops/ready', '/ops/ready/live', '/ops/metrics')).toEqual([200, 200, 200]);
    expect(await statuses('/health', '/health/live', '/metrics')).toEqual([404, 404, 404]);
    await app?.close();
    await serve({ imports: [mq({ endpoints: { metrics: false } })] });
    expect(await statuses('/health', '/metrics')).toEqual([200, 404]);
    await app?.close();
    await serve({ imports: [mq({ endpoints: false })] });
    expect(await statuses('/health', '/health/live', '/metrics')).toEqual([404, 404, 404]);
  });

  it('metrics are those of the registry given, and not found when they are switched off', async () => {
    const registry = new Registry();
    new Counter({ name: 'of_the_registry_total', help: 'h', registers: [registry] });
    await serve({ imports: [mq({ registry })] });
    expect((await get('/metrics')).body).toContain('of_the_registry_total');
    await app?.close();
    await serve({ imports: [mq()] }, { override: { metrics: null } });
    expect(await statuses('/metrics')).toEqual([404]);
  });

  it('global prefix and versions apply as to any controller of no version', async () => {
    await serve(
      { imports: [mq()] },
      {
        prepare: (nest) => {
          nest.setGlobalPrefix('api');
          nest.enableVersioning({ type: VersioningType.URI, defaultVersion: '1' });
        },
      },
    );
    expect(await statuses('/api/health', '/api/health/live', '/api/metrics', '/health')).toEqual([200, 200, 200, 404]);
  });

  it('a wrapping interceptor does not touch the metrics, and decorators open the way through a guard', async () => {
    @Injectable()
    class Guard implements CanActivate {
      canActivate(host: ExecutionContext): boolean {
        return Reflect.hasMetadata('public', host.getClass());
      }
    }
    const wrap = {
      intercept: (_host: ExecutionContext, next: { handle(): import('rxjs').Observable<unknown> }) =>
        next.handle().pipe(map((data) => ({ data }))),
    };
    const providers = [
      { provide: APP_GUARD, useClass: Guard },
      { provide: APP_INTERCEPTOR, useValue: wrap },
    ];
    new Counter({ name: 'of_the_app_total', help: 'h' });
    await serve({ imports: [mq({ endpoints: { decorators: [SetMetadata('public', true)] } })], providers });
    expect((await get('/metrics')).body).toMatch(/^# HELP of_the_app_total/);
    expect(await statuses('/health', '/health/live')).toEqual([200, 200]);
    await app?.close();
    await serve({ imports: [mq()], providers });
    expect(await statuses('/health', '/metrics')).toEqual([403, 403]);
  });

  describe("what is the application's own", () => {
    @Controller('health')
    class OwnHealth {
      @Get()
      health(): object {
        return { own: true };
      }
    }
    @Controller()
    class OwnPaths {
      @Get(['x', 'health/live', 'metrics'])
      all(): object {
        return { own: true };
      }
    }

    it.each(['root', 'earlier module', 'later module'])('stays its own when it stands in the %s', async (where) => {
      @Module({ controllers: [OwnHealth] })
      class Feature {}
      const imports = { root: [mq()], 'earlier module': [Feature, mq()], 'later module': [mq(), Feature] }[where] ?? [];
      await serve({ imports, controllers: where === 'root' ? [OwnHealth] : [] });
      expect(JSON.parse((await get('/health')).body)).toEqual({ own: true });
      expect(await statuses('/health/live', '/metrics')).toEqual([200, 200]);
      expect(written).toContainEqual(
        expect.stringMatching(/endpoint there is off path=\/health servedBy=OwnHealth\.health/),
      );
    });

    it('stays its own at each path of a list', async () => {
      await serve({ imports: [mq()], controllers: [OwnPaths] });
      expect(JSON.parse((await get('/health/live')).body)).toEqual({ own: true });
      expect(JSON.parse((await get('/metrics')).body)).toEqual({ own: true });
      expect(JSON.parse((await get('/health')).body)).toMatchObject({ status: 'ok' });
    });

    it('fails the boot where the path was given', async () => {
      const imports = [mq({ endpoints: { health: '/health', metrics: 'metrics' } })];
      await expect(serve({ imports, controllers: [OwnHealth, OwnPaths] })).rejects.toMatchObject({
        problems: [
          expect.stringMatching(/^endpoints\.health: GET \/health is served by OwnHealth\.health already/),
          expect.stringMatching(/^endpoints\.health: GET \/health\/live is served by OwnPaths\.all already/),
          expect.stringMatching(/^endpoints\.metrics: GET \/metrics is served by OwnPaths\.all already/),
        ],
      });
    });

    it('does not clash when RouterModule puts it elsewhere', async () => {
      @Module({ controllers: [OwnHealth] })
      class Feature {}
      const routes = RouterModule.register([{ path: 'admin', children: [{ path: 'deep', module: Feature }] }]);
      await serve({ imports: [mq({ endpoints: { health: '/health' } }), Feature, routes] });
      expect(JSON.parse((await get('/health')).body)).toMatchObject({ status: 'ok' });
      expect(JSON.parse((await get('/admin/deep/health')).body)).toEqual({ own: true });
    });

    it.each(['register', 'registerAsync'] as const)('OBS-01 is also PrometheusModule.%s', async (how) => {
      const prometheus =
        how === 'register'
          ? PrometheusModule.register({ defaultMetrics: { enabled: false } })
          : PrometheusModule.registerAsync({ useFactory: async () => ({ defaultMetrics: { enabled: false } }) });
      new Counter({ name: 'of_the_app_total', help: 'h' });
      await serve({ imports: [mq(), prometheus] });
      expect((await get('/metrics')).body).toContain('of_the_app_total');
      expect(written).toContainEqual(expect.stringMatching(/path=\/metrics servedBy=Prometheus/));
    });
  });

  it('the default path of one instance gives way to a path that was given to another', async () => {
    await serve({ imports: [mq(), mq({ name: 'second', endpoints: { health: '/health', metrics: false } })] });
    expect(await statuses('/health', '/health/live', '/metrics')).toEqual([200, 200, 200]);
  });
});
