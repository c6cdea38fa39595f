import {
  Global,
  Inject,
  Injectable,
  Module,
  type DynamicModule,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
  type Type,
} from '@nestjs/common';
import { Test, type TestingModule, type TestingModuleBuilder } from '@nestjs/testing';
import { fakeRuntime, type FakeRuntime } from '../../../../test/support/nest-fakes.js';
import { MqAdmin } from '../admin/admin.js';
import type { ResolvedMqOptions } from '../core/options.js';
import { DeadLetterQueue } from '../dlq/dead-letter-queue.js';
import { MqHealth } from '../health/health.js';
import { MqMetrics } from '../metrics/metrics.js';
import { MqProducer } from '../producer/producer.js';
import { InjectDeadLetterQueue, InjectMqAdmin, InjectMqProducer } from './inject.decorators.js';
import type { MqOptionsFactory, MqQueueOptions } from './module-options.js';
import { MQ_COMPOSE, RedisStreamsMqModule } from './redis-streams-mq.module.js';
import type { MqRuntime } from './runtime.js';
import { StreamHandler } from './stream-handler.decorator.js';
import { getMqHealthToken, getMqMetricsToken, getMqProducerToken } from './tokens.js';

let calls: string[] = [];
let fakes: Map<string, FakeRuntime>;
let testing: TestingModule | undefined;
const written: string[] = [];
const write = (line: unknown): void => void written.push(String(line));

beforeEach(() => {
  calls = [];
  fakes = new Map();
  written.length = 0;
});
afterEach(async () => {
  await testing?.close();
  testing = undefined;
});

function build(
  graph: NonNullable<Parameters<typeof Module>[0]>,
  override: Partial<MqRuntime> = {},
): TestingModuleBuilder {
  @Module(graph)
  class AppModule {}
  const compose = (options: ResolvedMqOptions, { name }: { name: string }): MqRuntime => {
    const fake = fakeRuntime(name, options, override, calls);
    fakes.set(name, fake);
    return fake.runtime;
  };
  return Test.createTestingModule({ imports: [AppModule] })
    .setLogger({ log: write, warn: write, error: write, debug: write })
    .overrideProvider(MQ_COMPOSE)
    .useValue(compose);
}

/** Compiled and with its bootstrap hooks run. */
async function boot(
  graph: NonNullable<Parameters<typeof Module>[0]>,
  override?: Partial<MqRuntime>,
): Promise<TestingModule> {
  testing = await build(graph, override).compile();
  return testing.init();
}

const endpoints = false;

@Injectable()
class Orders {
  @StreamHandler('orders', 'billing')
  onOrder(): void {}
}

@Injectable()
class Hooks implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy, OnApplicationShutdown {
  async onModuleInit(): Promise<void> {
    await slowly('hook init');
  }
  async onApplicationBootstrap(): Promise<void> {
    await slowly('hook bootstrap');
  }
  async onModuleDestroy(): Promise<void> {
    await slowly('hook destroy');
  }
  async onApplicationShutdown(): Promise<void> {
    await slowly('hook shutdown');
  }
}
async function slowly(call: string): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 20));
  calls.push(call);
}

describe('RedisStreamsMqModule provides', () => {
  it('every part by its class, everywhere', async () => {
    @Module({ providers: [] })
    class Feature {}
    await boot({ imports: [RedisStreamsMqModule.forRoot({ endpoints }), Feature] });
    const runtime = fakes.get('default')?.runtime;
    const parts = [MqProducer, MqAdmin, DeadLetterQueue, MqHealth, MqMetrics].map((type) => testing?.get(type));
    expect(parts).toEqual([runtime?.producer, runtime?.admin, runtime?.deadLetters, runtime?.health, runtime?.metrics]);
  });

  it('a second instance by its name, beside the one without', async () => {
    @Injectable()
    class User {
      constructor(
        @Inject(MqProducer) readonly producer: MqProducer,
        @InjectMqProducer('second') readonly secondProducer: MqProducer,
        @InjectMqAdmin('second') readonly secondAdmin: MqAdmin,
        @InjectDeadLetterQueue('second') readonly secondDeadLetters: DeadLetterQueue,
      ) {}
    }
    @Module({ providers: [User] })
    class Feature {}
    await boot({
      imports: [RedisStreamsMqModule.forRoot({ endpoints }), RedisStreamsMqModule.forRoot({ name: 'second' }), Feature],
    });
    const [first, second] = ['default', 'second'].map((name) => fakes.get(name)?.runtime);
    expect(testing?.get(User)).toEqual({
      producer: first?.producer,
      secondProducer: second?.producer,
      secondAdmin: second?.admin,
      secondDeadLetters: second?.deadLetters,
    });
    expect(testing?.get(getMqHealthToken('second'))).toBe(second?.health);
    expect(testing?.get(getMqMetricsToken('second'))).toBe(second?.metrics);
    expect(getMqProducerToken()).toBe(MqProducer);
  });

  it('nothing to modules that do not import it when it is not global', async () => {
    @Injectable()
    class User {
      constructor(@Inject(MqProducer) readonly producer: MqProducer) {}
    }
    @Module({ providers: [User] })
    class Feature {}
    const mq = RedisStreamsMqModule.forRoot({ endpoints, isGlobal: false });
    await expect(build({ imports: [mq, Feature] }).compile()).rejects.toThrow(/MqProducer/);
    @Module({ imports: [mq], providers: [User] })
    class Importing {}
    await boot({ imports: [Importing] });
    expect(testing?.get(User).producer).toBe(fakes.get('default')?.runtime.producer);
  });
});

describe('RedisStreamsMqModule.forRootAsync', () => {
  @Injectable()
  class Config {
    readonly workerThreads = 7;
  }
  @Module({ providers: [Config], exports: [Config] })
  class ConfigModule {}
  @Injectable()
  class Factory implements MqOptionsFactory {
    constructor(@Inject(Config) private readonly config: Config) {}
    createMqOptions(): MqQueueOptions {
      return { workerThreads: this.config.workerThreads };
    }
  }
  @Module({ imports: [ConfigModule], providers: [Factory], exports: [Factory] })
  class FactoryModule {}

  const forms: [string, () => DynamicModule][] = [
    ['a factory', () => RedisStreamsMqModule.forRootAsync({ endpoints, useFactory: () => ({ workerThreads: 7 }) })],
    [
      'an async factory with dependencies',
      () =>
        RedisStreamsMqModule.forRootAsync({
          endpoints,
          imports: [ConfigModule],
          inject: [Config],
          useFactory: async ({ workerThreads }: Config) => ({ workerThreads }),
        }),
    ],
    ['a class', () => RedisStreamsMqModule.forRootAsync({ endpoints, imports: [ConfigModule], useClass: Factory })],
    [
      'a provider',
      () => RedisStreamsMqModule.forRootAsync({ endpoints, imports: [FactoryModule], useExisting: Factory }),
    ],
  ];
  it.each(forms)('takes options of %s', async (_what, form) => {
    await boot({ imports: [form()] });
    expect(fakes.get('default')?.runtime.options.workerThreads).toBe(7);
  });

  it.each([[{}], [{ useClass: Factory, useFactory: () => ({}) }]])('refuses %j', async (options) => {
    await expect(build({ imports: [RedisStreamsMqModule.forRootAsync(options)] }).compile()).rejects.toThrow(
      /exactly one of useFactory, useClass and useExisting/,
    );
  });

  it('refuses options that are invalid, all at once, before anything connects', async () => {
    const module = RedisStreamsMqModule.forRootAsync({ useFactory: () => ({ workerThreads: 0, sendTimeoutMs: -1 }) });
    await expect(build({ imports: [module] }).compile()).rejects.toMatchObject({
      problems: [expect.anything(), expect.anything()],
    });
    expect(calls).toEqual([]);
  });
});

describe('RedisStreamsMqModule', () => {
  it.each([true, false])(
    'starts last and stops first, and closes when all else has shut down (isGlobal: %s)',
    async (isGlobal) => {
      @Global()
      @Module({ providers: [Hooks] })
      class EarlierGlobal {}
      await boot({
        imports: [EarlierGlobal, RedisStreamsMqModule.forRoot({ endpoints, isGlobal })],
        providers: [Orders],
      });
      expect(calls).toEqual(['default.connect', 'hook init', 'hook bootstrap', 'default.start']);
      expect(fakes.get('default')?.started).toMatchObject([{ topic: 'orders', group: 'billing' }]);
      calls.length = 0;
      await testing?.close();
      expect(calls).toEqual(['default.stop', 'hook destroy', 'hook shutdown', 'default.close']);
    },
  );

  it('starts and stops every instance, each with its own handlers', async () => {
    @Injectable()
    class Second {
      @StreamHandler('orders', 'billing', { instance: 'second' })
      onOrder(): void {}
    }
    await boot({
      imports: [RedisStreamsMqModule.forRoot({ endpoints }), RedisStreamsMqModule.forRoot({ name: 'second' })],
      providers: [Orders, Second],
    });
    expect(calls).toEqual(['default.connect', 'second.connect', 'default.start', 'second.start']);
    expect(fakes.get('default')?.started.map(({ name }) => name)).toEqual(['Orders.onOrder']);
    expect(fakes.get('second')?.started.map(({ name }) => name)).toEqual(['Second.onOrder']);
    expect(written.filter((line) => line.startsWith('handler found'))).toEqual([
      'handler found handler=Orders.onOrder topic=orders group=billing',
      'handler found handler=Second.onOrder topic=orders group=billing',
    ]);
  });

  it.each([
    [{ autoStart: false }, ['default.connect'], 'autoStart is false'],
    [{ enabled: false }, [], 'enabled is false'],
  ])('starts no handlers with %j', async (options, expected, reason) => {
    await boot({ imports: [RedisStreamsMqModule.forRoot({ endpoints, ...options })], providers: [Orders] });
    expect(calls).toEqual(expected);
    expect(written).toContain(`handlers are not started reason=${JSON.stringify(reason)} handlers=1`);
  });

  it('refuses bad handlers before anything connects and before a hook of the application runs', async () => {
    @Injectable()
    class Bad {
      @StreamHandler('orders', 'g', { instance: 'nowhere' })
      onOrder(): void {}
    }
    testing = await build({
      imports: [RedisStreamsMqModule.forRoot({ endpoints })],
      providers: [Bad, Hooks],
    }).compile();
    await expect(testing.init()).rejects.toThrow(/no instance of the module is named "nowhere"; there is "default"/);
    expect(calls.filter((call) => call !== 'default.close')).toEqual([]);
  });

  it('refuses two instances of one name', async () => {
    const twice = [RedisStreamsMqModule.forRoot({ endpoints }), RedisStreamsMqModule.forRoot({ endpoints })];
    await expect(build({ imports: twice }).compile()).rejects.toThrow(
      /two instances of RedisStreamsMqModule have no name/,
    );
    const named = [RedisStreamsMqModule.forRoot({ name: 'a' }), RedisStreamsMqModule.forRoot({ name: 'a' })];
    await expect(build({ imports: named }).compile()).rejects.toThrow(
      /two instances of RedisStreamsMqModule are named "a"/,
    );
  });

  it('NEST-04 shares nothing between two applications in one process', async () => {
    const mq = RedisStreamsMqModule.forRoot({ endpoints });
    const other = await build({ imports: [mq] }).compile();
    await boot({ imports: [mq] });
    await other.close();
    expect(calls).toEqual(['default.connect', 'default.start', 'default.stop', 'default.close']);
  });

  it('closes without having been started, and twice', async () => {
    testing = await build({ imports: [RedisStreamsMqModule.forRoot({ endpoints })], providers: [Orders] }).compile();
    await testing.close();
    expect(calls).toEqual(['default.stop', 'default.close']);
    await testing.close();
    expect(calls.filter((call) => call === 'default.stop')).toHaveLength(1);
  });

  it('closes every instance when one cannot connect', async () => {
    const connect = async (): Promise<void> => {
      throw new Error('no Redis');
    };
    const imports = [RedisStreamsMqModule.forRoot({ endpoints }), RedisStreamsMqModule.forRoot({ name: 'second' })];
    testing = await build({ imports }, { connect }).compile();
    await expect(testing.init()).rejects.toThrow('no Redis');
    expect(calls).toEqual(['default.close', 'second.close']);
  });

  it('lets the shutdown of the application go on when its own fails', async () => {
    const fail = async (): Promise<void> => {
      throw new Error('stuck');
    };
    await boot(
      { imports: [RedisStreamsMqModule.forRoot({ endpoints })], providers: [Hooks] },
      { stop: fail, close: fail },
    );
    await testing?.close();
    expect(calls).toEqual(expect.arrayContaining(['hook destroy', 'hook shutdown']));
    expect(written).toContain('consumption could not be stopped in order error=stuck');
    expect(written).toContain('connections could not be closed in order error=stuck');
  });

  it('says what to do when the class is imported without options', async () => {
    await expect(build({ imports: [RedisStreamsMqModule as Type] }).compile()).rejects.toThrow(
      /forRoot\(\) or forRootAsync\(\)/,
    );
  });
});

describe('the hint about SIGTERM', () => {
  const hints = (): string[] => written.filter((line) => line.startsWith('nothing listens to SIGTERM'));
  let listeners: NodeJS.SignalsListener[];
  beforeEach(() => {
    listeners = process.listeners('SIGTERM') as NodeJS.SignalsListener[];
    process.removeAllListeners('SIGTERM');
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask'] });
  });
  afterEach(() => {
    jest.useRealTimers();
    process.removeAllListeners('SIGTERM');
    for (const listener of listeners) process.on('SIGTERM', listener);
  });

  it('NEST-08 is given once, some seconds after the start, when nothing listens', async () => {
    const imports = [RedisStreamsMqModule.forRoot({ endpoints }), RedisStreamsMqModule.forRoot({ name: 'second' })];
    await boot({ imports, providers: [Orders] });
    jest.advanceTimersByTime(4_000);
    expect(hints()).toHaveLength(0);
    jest.advanceTimersByTime(60_000);
    expect(hints()).toHaveLength(1);
  });

  it('is not given when something listens by then, or when nothing is consumed', async () => {
    await boot({ imports: [RedisStreamsMqModule.forRoot({ endpoints })], providers: [Orders] });
    testing?.enableShutdownHooks();
    jest.advanceTimersByTime(60_000);
    await testing?.close();
    await boot({ imports: [RedisStreamsMqModule.forRoot({ endpoints })] });
    jest.advanceTimersByTime(60_000);
    expect(hints()).toHaveLength(0);
  });
});
