import { Injectable } from '@nestjs/common';
import { InjectMetric, makeCounterProvider, PrometheusModule } from '@willsoto/nestjs-prometheus';
import {
  MqProducer,
  RedisStreamsMqModule,
  StreamHandler,
  type RedisStreamsMqModuleOptions,
} from 'nestjs-redis-streams-mq';
import { register, Registry, type Counter } from 'prom-client';
import request from 'supertest';
import { queueOptions, TestApps } from '../support/nest-app.js';
import { startRedis, uniqueName, type TestRedis } from '../support/redis-server.js';
import { samplesOf, type Sample } from '../support/scrape.js';
import { waitFor } from '../support/wait-for.js';

let redis: TestRedis;
const apps = new TestApps();
beforeAll(async () => {
  redis = await startRedis();
});
afterEach(async () => {
  await apps.closeAll();
  register.clear();
});
afterAll(() => redis.stop());

const OWN = 'shop_orders_total';

/** An application that has metrics of its own through `@willsoto/nestjs-prometheus`, and a handler. */
async function serve(more: RedisStreamsMqModuleOptions = {}) {
  const topic = uniqueName('topic');
  @Injectable()
  class Shop {
    constructor(@InjectMetric(OWN) private readonly orders: Counter) {}

    @StreamHandler(topic, 'billing')
    onOrder(): void {
      this.orders.inc();
    }
  }
  const app = await apps.listen({
    imports: [
      PrometheusModule.register({ defaultMetrics: { enabled: false } }),
      RedisStreamsMqModule.forRoot(queueOptions(redis, { metricsIntervalSec: 0.1, ...more })),
    ],
    providers: [Shop, makeCounterProvider({ name: OWN, help: 'orders' })],
  });
  await app.get(MqProducer).send(topic, { n: 1 });
  const scrape = async (path: string): Promise<Sample[]> => {
    const { status, text } = await request(await app.getUrl()).get(path);
    return status === 200 ? samplesOf(text) : [];
  };
  return { topic, scrape };
}

const of = (samples: readonly Sample[], name: string, topic?: string): readonly Sample[] =>
  samples.filter((sample) => sample.name === name && (topic === undefined || sample.labels['topic'] === topic));

describe('beside @willsoto/nestjs-prometheus', () => {
  it('OBS-01 its endpoint serves the application’s metrics and those of the queue, for all instances as well, each once', async () => {
    const { topic, scrape } = await serve();
    const samples = await waitFor(async () => {
      const seen = await scrape('/metrics');
      const isThere = of(seen, 'redis_streaming_mq_lag', topic).length > 0 && of(seen, OWN)[0]?.value === 1;
      return isThere && seen;
    });
    expect(of(samples, 'redis_streaming_mq_messages_total', topic)).toEqual([
      { name: 'redis_streaming_mq_messages_total', labels: { mq: 'default', topic }, value: 1 },
    ]);
    expect(of(samples, 'redis_streaming_mq_produced_total', topic)).toHaveLength(1);
    const identities = samples.map(({ name, labels }) => name + JSON.stringify(labels));
    expect(new Set(identities).size).toBe(identities.length);
  });

  it('OBS-01 a registry given to the queue is served by its own endpoint, and the other one has none of it', async () => {
    const registry = new Registry();
    const { topic, scrape } = await serve({ registry, endpoints: { metrics: '/queue/metrics' } });
    const samples = await waitFor(async () => {
      const seen = await scrape('/queue/metrics');
      return of(seen, 'redis_streaming_mq_lag', topic).length > 0 && seen;
    });
    expect(of(samples, OWN)).toEqual([]);
    const others = await scrape('/metrics');
    expect(of(others, OWN)).toHaveLength(1);
    expect(others.filter(({ name }) => name.startsWith('redis_streaming'))).toEqual([]);
  });
});
