import { Module, type INestApplication, type INestApplicationContext, type LoggerService } from '@nestjs/common';
import { NestFactory, type AbstractHttpAdapter } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import type { RedisStreamsMqModuleOptions } from 'nestjs-redis-streams-mq';
import type { TestRedis } from './redis-server.js';

export type AppGraph = NonNullable<Parameters<typeof Module>[0]>;

/** Options for an application of this test file: its own keys on this server, and no waiting. */
export function queueOptions(
  redis: Pick<TestRedis, 'url' | 'keyPrefix'>,
  more: RedisStreamsMqModuleOptions = {},
): RedisStreamsMqModuleOptions {
  return {
    redis: redis.url,
    keyPrefix: `${redis.keyPrefix}:control`,
    streamKeyPrefix: `${redis.keyPrefix}:data`,
    defaultPartitionCount: 2,
    retryBaseBackoffMs: 20,
    ...more,
  };
}

/** Applications that a test file has started, and closes again. */
export class TestApps {
  private readonly open = new Set<INestApplicationContext>();

  constructor(private readonly logger: LoggerService | false = false) {}

  /** An application that serves HTTP on a free port. */
  async listen(graph: AppGraph, adapter: AbstractHttpAdapter = new ExpressAdapter()): Promise<INestApplication> {
    const app = await this.create(graph, adapter);
    await app.listen(0, '127.0.0.1');
    return app;
  }

  /** An application whose hooks have not run yet. */
  async create(graph: AppGraph, adapter: AbstractHttpAdapter = new ExpressAdapter()): Promise<INestApplication> {
    // Without it a boot that fails ends the process of the test.
    const app = await NestFactory.create(moduleOf(graph), adapter, { abortOnError: false, logger: this.logger });
    this.open.add(app);
    return app;
  }

  async context(graph: AppGraph): Promise<INestApplicationContext> {
    const app = await NestFactory.createApplicationContext(moduleOf(graph), {
      abortOnError: false,
      logger: this.logger,
    });
    this.open.add(app);
    return app;
  }

  async close(app: INestApplicationContext): Promise<void> {
    this.open.delete(app);
    await app.close();
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.open].map((app) => this.close(app)));
  }
}

/** Applications that end with their test. */
export function useApps(): TestApps {
  const apps = new TestApps();
  afterEach(() => apps.closeAll());
  return apps;
}

function moduleOf(graph: AppGraph): new () => object {
  @Module(graph)
  class AppModule {}
  return AppModule;
}
