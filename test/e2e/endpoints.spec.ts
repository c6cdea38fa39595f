import { Controller, Get, type INestApplication } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { MqProducer, RedisStreamsMqModule, type MqEndpointsOptions } from 'nestjs-redis-streams-mq';
import { register } from 'prom-client';
import request, { type Response } from 'supertest';
import { queueOptions, TestApps, type AppGraph } from '../support/nest-app.js';
import { describeWithServer, startRedis, uniqueName, type TestRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

let redis: TestRedis;
const apps = new TestApps();
beforeAll(async () => {
  redis = await startRedis({ aof: true });
});
afterEach(async () => {
  await apps.closeAll();
  register.clear();
});
afterAll(() => redis.stop());

const mq = (endpoints?: MqEndpointsOptions | false) =>
  RedisStreamsMqModule.forRoot(queueOptions(redis, endpoints === undefined ? {} : { endpoints }));

describe.each([
  ['Express', () => new ExpressAdapter()],
  ['Fastify', () => new FastifyAdapter()],
] satisfies [string, () => AbstractHttpAdapter][])('endpoints on %s', (_platform, adapter) => {
  const serve = (graph: AppGraph): Promise<INestApplication> => apps.listen(graph, adapter());
  const get = async (app: INestApplication, path: string): Promise<Response> => request(await app.getUrl()).get(path);
  const statuses = (app: INestApplication, ...paths: string[]): Promise<number[]> =>
    Promise.all(paths.map(async (path) => (await get(app, path)).status));

  it('are served without a line of the application', async () => {
    const app = await serve({ imports: [mq()] });
    const topic = uniqueName('topic');
    await waitFor(async () => (await get(app, '/health')).status === 200);
    await app.get(MqProducer).send(topic, { n: 1 });

    expect((await get(app, '/health')).body).toMatchObject({
      status: 'ok',
      details: { redisStreamsMq: { status: 'up' } },
    });
    expect((await get(app, '/health/live')).body).toMatchObject({ status: 'ok' });
    const metrics = await get(app, '/metrics');
    expect(metrics.headers['content-type']).toBe(register.contentType);
    expect(metrics.text).toMatch(
      new RegExp(`^redis_streaming_mq_produced_total\\{[^}]*topic="${topic}"[^}]*\\} 1$`, 'm'),
    );
    expect(metrics.text).toMatch(/mq="default"/);
  });

  it('can be moved and switched off', async () => {
    const moved = await serve({ imports: [mq({ health: '/ops/ready', metrics: '/ops/metrics' })] });
    await waitFor(async () => (await get(moved, '/ops/ready')).status === 200);
    expect(await statuses(moved, '/ops/ready/live', '/ops/metrics')).toEqual([200, 200]);
    expect(await statuses(moved, '/health', '/health/live', '/metrics')).toEqual([404, 404, 404]);

    const off = await serve({ imports: [mq(false)] });
    expect(await statuses(off, '/health', '/health/live', '/metrics')).toEqual([404, 404, 404]);
  });

  it('leave to the application what is its own, and refuse to boot when that was not meant', async () => {
    @Controller('health')
    class OwnHealth {
      @Get()
      health(): object {
        return { own: true };
      }
    }
    const app = await serve({ imports: [mq()], controllers: [OwnHealth] });
    expect((await get(app, '/health')).body).toEqual({ own: true });
    expect(await statuses(app, '/health/live', '/metrics')).toEqual([200, 200]);

    await expect(serve({ imports: [mq({ health: '/health' })], controllers: [OwnHealth] })).rejects.toThrow(
      /GET \/health is served by OwnHealth\.health already/,
    );
  });

  describeWithServer('and Redis away', () => {
    it('OBS-04 /health says down and why, /health/live stays up, and both recover with it', async () => {
      const app = await serve({ imports: [mq()] });
      await waitFor(async () => (await get(app, '/health')).status === 200);
      await redis.kill();
      const down = await waitFor(async () => {
        const answer = await get(app, '/health');
        return answer.status === 503 ? answer : null;
      });
      expect(down.body).toMatchObject({ status: 'error', error: { redisStreamsMq: { status: 'down' } } });
      expect(await statuses(app, '/health/live', '/metrics')).toEqual([200, 200]);
      await redis.restart();
      await waitFor(async () => (await get(app, '/health')).status === 200);
    });
  });
});
