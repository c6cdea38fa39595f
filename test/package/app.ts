import 'reflect-metadata';
import assert from 'node:assert/strict';
import { Controller, Injectable, Module, type INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { MqProducer, RedisStreamsMqModule, StreamHandler, type StreamContext } from 'nestjs-redis-streams-mq';

// An application as a user has it: it boots, sends and handles messages, serves its endpoints and ends by itself.

interface Order {
  readonly id: number;
}

const handled: string[] = [];

@Injectable()
class Billing {
  constructor(private readonly producer: MqProducer) {}

  @StreamHandler('orders', 'billing')
  async onOrder(order: Order, ctx: StreamContext): Promise<void> {
    handled.push(`billing ${order.id} ${ctx.key}`);
    if (ctx.attempt === 1) throw new Error('once more');
    await this.producer.send('billed', order);
  }
}

@Controller('orders')
class Audit {
  @StreamHandler({ topic: 'billed', group: 'audit' })
  onBilled(order: Order): void {
    handled.push(`audit ${order.id}`);
  }
}

const { REDIS_URL = '', KEYS = '', ADAPTER = 'express' } = process.env;

@Module({
  imports: [
    RedisStreamsMqModule.forRoot({
      redis: REDIS_URL,
      keyPrefix: `${KEYS}:control`,
      streamKeyPrefix: `${KEYS}:data`,
      retryBaseBackoffMs: 10,
    }),
  ],
  controllers: [Audit],
  providers: [Billing],
})
class AppModule {}

async function main(): Promise<void> {
  const adapter = ADAPTER === 'fastify' ? new FastifyAdapter() : new ExpressAdapter();
  const app: INestApplication = await NestFactory.create(AppModule, adapter, { logger: ['error'] });
  await app.listen(0, '127.0.0.1');
  const url = (await app.getUrl()).replace('[::1]', 'localhost');

  await app.get(MqProducer).send('orders', { id: 7 }, { key: 'ann' });
  const deadline = Date.now() + 20_000;
  while (!handled.includes('audit 7') && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(handled, ['billing 7 ann', 'billing 7 ann', 'audit 7']);

  for (const path of ['/health', '/health/live']) {
    const response = await fetch(url + path);
    assert.deepEqual(
      [path, response.status, ((await response.json()) as { status: string }).status],
      [path, 200, 'ok'],
    );
  }
  const metrics = await (await fetch(`${url}/metrics`)).text();
  assert.match(metrics, /^redis_streaming_mq_\w+.*mq="default".* [1-9]/m);
  await app.close();
  console.log(`ADAPTER ${ADAPTER} OK`);
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
