import { Inject, Injectable, Module, type DynamicModule } from '@nestjs/common';
import {
  DeadLetterQueue,
  getDeadLetterQueueToken,
  getMqProducerToken,
  InjectMqProducer,
  MqProducer,
  RedisStreamsMqModule,
  StreamHandler,
  type MqOptionsFactory,
  type MqQueueOptions,
} from 'nestjs-redis-streams-mq';
import { queueOptions, useApps } from '../support/nest-app.js';
import { uniqueName, useRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const redis = useRedis();
const apps = useApps();

describe('RedisStreamsMqModule.forRootAsync', () => {
  @Injectable()
  class Config {
    readonly queue: MqQueueOptions = queueOptions(redis);
  }
  @Module({ providers: [Config], exports: [Config] })
  class ConfigModule {}
  @Injectable()
  class QueueConfig implements MqOptionsFactory {
    constructor(@Inject(Config) private readonly config: Config) {}
    async createMqOptions(): Promise<MqQueueOptions> {
      return this.config.queue;
    }
  }
  @Module({ imports: [ConfigModule], providers: [QueueConfig], exports: [QueueConfig] })
  class QueueConfigModule {}

  const forms: [string, () => DynamicModule][] = [
    ['a factory', () => RedisStreamsMqModule.forRootAsync({ useFactory: () => queueOptions(redis) })],
    [
      'an async factory with dependencies',
      () =>
        RedisStreamsMqModule.forRootAsync({
          imports: [ConfigModule],
          inject: [Config],
          useFactory: async (config: Config) => config.queue,
        }),
    ],
    ['a class', () => RedisStreamsMqModule.forRootAsync({ imports: [ConfigModule], useClass: QueueConfig })],
    ['a provider', () => RedisStreamsMqModule.forRootAsync({ imports: [QueueConfigModule], useExisting: QueueConfig })],
  ];

  it.each(forms)('sends and handles with the options of %s', async (_what, form) => {
    const topic = uniqueName('topic');
    @Injectable()
    class Svc {
      readonly seen: unknown[] = [];
      @StreamHandler(topic, 'g')
      handle(payload: unknown): void {
        this.seen.push(payload);
      }
    }
    const app = await apps.context({ imports: [form()], providers: [Svc] });
    await app.get(MqProducer).send(topic, { n: 1 });
    await waitFor(() => app.get(Svc).seen.length === 1);
    expect(app.get(Svc).seen).toEqual([{ n: 1 }]);
  });
});

describe('a named second instance', () => {
  it('has its own keys, handlers, producer and dead letters', async () => {
    const topic = uniqueName('topic');
    @Injectable()
    class Svc {
      readonly seen: string[] = [];
      constructor(
        @Inject(MqProducer) readonly first: MqProducer,
        @InjectMqProducer('second') readonly second: MqProducer,
      ) {}
      @StreamHandler(topic, 'g')
      onFirst(payload: string): void {
        this.seen.push(`first ${payload}`);
      }
      @StreamHandler(topic, 'g', { instance: 'second', retryMaxAttempts: 1 })
      onSecond(payload: string): void {
        this.seen.push(`second ${payload}`);
        if (payload === 'bad') throw new Error('bad');
      }
    }
    const other = { url: redis.url, keyPrefix: uniqueName('second') };
    const app = await apps.context({
      imports: [
        RedisStreamsMqModule.forRoot(queueOptions(redis)),
        RedisStreamsMqModule.forRootAsync({ name: 'second', useFactory: () => queueOptions(other) }),
      ],
      providers: [Svc],
    });
    const svc = app.get(Svc);
    expect(app.get(getMqProducerToken('second'))).toBe(svc.second);
    await svc.first.send(topic, 'a', { key: 'k' });
    await svc.second.send(topic, 'b', { key: 'k' });
    await svc.second.send(topic, 'bad', { key: 'k' });
    await waitFor(() => svc.seen.length === 3);
    expect(svc.seen.toSorted()).toEqual(['first a', 'second b', 'second bad']);
    const secondDeadLetters = app.get<DeadLetterQueue>(getDeadLetterQueueToken('second'));
    await waitFor(async () => (await secondDeadLetters.size(topic)) === 1);
    expect(await app.get(DeadLetterQueue).size(topic)).toBe(0);
  });
});

describe('an application that does not consume', () => {
  it('sends with autoStart: false, and its handlers wait', async () => {
    const topic = uniqueName('topic');
    @Injectable()
    class Svc {
      calls = 0;
      @StreamHandler(topic, 'g')
      handle(): void {
        this.calls += 1;
      }
    }
    const app = await apps.context({
      imports: [RedisStreamsMqModule.forRoot(queueOptions(redis, { autoStart: false }))],
      providers: [Svc],
    });
    await app.get(MqProducer).send(topic, 1);
    const consumer = await apps.context({
      imports: [RedisStreamsMqModule.forRoot(queueOptions(redis))],
      providers: [Svc],
    });
    await waitFor(() => consumer.get(Svc).calls === 1);
    expect(app.get(Svc).calls).toBe(0);
  });

  it('neither connects nor sends with enabled: false', async () => {
    const options = queueOptions({ url: 'redis://127.0.0.1:1', keyPrefix: 'none' }, { enabled: false, failFast: true });
    const app = await apps.context({ imports: [RedisStreamsMqModule.forRoot(options)] });
    await expect(app.get(MqProducer).send('t', 1)).rejects.toMatchObject({ code: 'MQ_DISABLED' });
  });
});
