import { Injectable, type INestApplicationContext } from '@nestjs/common';
import { MqProducer, RedisStreamsMqModule, StreamHandler } from 'nestjs-redis-streams-mq';
import type { Redis } from 'ioredis';
import { register, Registry } from 'prom-client';
import { queueOptions, TestApps } from '../support/nest-app.js';
import { startRedis, uniqueName, type TestRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

let redis: TestRedis;
let raw: Redis;
const errors: string[] = [];
const say = (line: unknown): void => void errors.push(String(line));
const apps = new TestApps({ log: () => undefined, warn: say, error: say });
beforeAll(async () => {
  redis = await startRedis();
  raw = redis.client();
});
beforeEach(() => {
  errors.length = 0;
});
afterEach(async () => {
  await apps.closeAll();
  register.clear();
});
afterAll(() => redis.stop());

/** Everything of the process that an application could leave behind, counted. */
async function leftBehind(): Promise<Record<string, number>> {
  const counts: Record<string, number> = { series: (await register.metrics()).split('\n').length };
  for (const event of process.eventNames()) counts[`listeners ${String(event)}`] = process.listenerCount(event);
  for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
  const clients = (await raw.client('LIST')) as string;
  counts.connections = clients.split('\n').filter((line) => line.includes('name=redis-streams-mq')).length;
  return counts;
}

async function consumeOnce(registry?: Registry): Promise<INestApplicationContext> {
  const topic = uniqueName('topic');
  const seen: unknown[] = [];
  @Injectable()
  class Svc {
    @StreamHandler(topic, 'g')
    handle(payload: unknown): void {
      seen.push(payload);
    }
  }
  const module = RedisStreamsMqModule.forRoot(queueOptions(redis, registry === undefined ? {} : { registry }));
  const app = await apps.context({ imports: [module], providers: [Svc] });
  await app.get(MqProducer).send(topic, 1);
  await waitFor(() => seen.length === 1);
  return app;
}

const produced = async (registry: Pick<Registry, 'metrics'>): Promise<number> =>
  ((await registry.metrics()).match(/^redis_streaming_mq_produced_total\{.*\} 1$/gm) ?? []).length;

describe('one process in which applications come and go', () => {
  it('NEST-04 OBS-01 OBS-02 keeps no listener, timer, connection or series of any of 20', async () => {
    for (let i = 0; i < 2; i++) await apps.close(await consumeOnce());
    await waitFor(async () => (await leftBehind()).connections === 0);
    const before = await leftBehind();
    for (let i = 0; i < 20; i++) await apps.close(await consumeOnce());
    // What ioredis closes takes its time; and what was on its way at the first look may be gone at the last.
    const grown = async (): Promise<string[]> =>
      Object.entries(await leftBehind())
        .filter(([name, count]) => count > (before[name] ?? 0) + 2)
        .map(([name, count]) => `${name}: ${before[name] ?? 0} -> ${count}`);
    await waitFor(async () => (await grown()).length === 0).catch(() => undefined);
    expect(await grown()).toEqual([]);
    expect(errors).toEqual([]);
  });
});

describe('OBS-01 the registry', () => {
  it('OBS-01 takes two applications at once, without a clash of names', async () => {
    const [first, second] = [await consumeOnce(), await consumeOnce()];
    expect(await produced(register)).toBe(2);
    await apps.close(first);
    await consumeOnce();
    expect(await produced(register)).toBeGreaterThanOrEqual(2);
    await apps.close(second);
    expect(errors).toEqual([]);
  });

  it('OBS-01 may be one of the application’s own, and then the default one stays empty', async () => {
    const registry = new Registry();
    await consumeOnce(registry);
    expect(await produced(registry)).toBe(1);
    expect(register.getMetricsAsArray()).toEqual([]);
  });

  it('OBS-01 may be cleared between tests', async () => {
    const first = await consumeOnce();
    register.clear();
    await consumeOnce();
    await apps.close(first);
    expect(await produced(register)).toBe(1);
    expect(errors).toEqual([]);
  });
});
