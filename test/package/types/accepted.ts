// What must compile: the public API as a user writes it. Nothing here runs.
import { Injectable, Module, type ExecutionContext } from '@nestjs/common';
import {
  bytesSerializer,
  DeadLetter,
  type DeadLetterPage,
  DeadLetterQueue,
  type DeadReason,
  defineTopic,
  EventId,
  getMqProducerToken,
  InjectDeadLetterQueue,
  InjectMqAdmin,
  InjectMqProducer,
  isStreamContext,
  type KebabOptions,
  MessageHandleResult,
  MessageHeaders,
  MessageKey,
  MqAdmin,
  MqError,
  type MqOptions,
  MqProducer,
  MqSendError,
  type Partitioner,
  Payload,
  type RedisOption,
  RedisStreamsMqModule,
  type RedisStreamsMqModuleOptions,
  RetryLater,
  type SendBatchResult,
  type SendOptions,
  type SendResult,
  type Serializer,
  type StreamContext,
  StreamCtx,
  StreamHandler,
  streamContextOf,
} from 'nestjs-redis-streams-mq';
import { Cluster, Redis } from 'ioredis';

export interface Order {
  readonly id: number;
}

export const url: RedisStreamsMqModuleOptions = { redis: 'redis://localhost', workerThreads: 4 };
export const parts: RedisOption = { host: 'localhost', port: 6379, tls: {} };
export const client: RedisOption = new Redis({ lazyConnect: true });
export const cluster: RedisOption = new Cluster([{ host: 'localhost', port: 7000 }], { lazyConnect: true });
export const clusterNodes: RedisOption = { cluster: { nodes: [{ host: 'localhost', port: 7000 }] } };
export const kebab: KebabOptions<MqOptions<RedisOption>> = { 'worker-threads': '4', 'lease-ttl-seconds': 10 };

export const serializer: Serializer = {
  serialize: (value) => Buffer.from(String(value)),
  deserialize: (bytes) => bytes.toString(),
};
export const partitioner: Partitioner = (key, count, topic) => (key === null ? 0 : (key.length + topic.length) % count);

export const orders = defineTopic<Order>('orders', { partitions: 8, version: 2 });

@Injectable()
export class TypedHandlers {
  constructor(readonly producer: MqProducer) {}

  @StreamHandler(orders, 'typed', { concurrency: 4, ordering: 'key' })
  async onOrder(order: Order): Promise<void> {
    await this.producer.send(orders, { id: order.id + 1 });
  }
}

@Injectable()
export class Handlers {
  constructor(
    readonly producer: MqProducer,
    @InjectMqProducer('audit') readonly audit: MqProducer,
    @InjectMqAdmin() readonly admin: MqAdmin,
    @InjectDeadLetterQueue() readonly letters: DeadLetterQueue,
  ) {}

  @StreamHandler('orders', 'plain')
  plain(order: Order, { attempt, signal }: StreamContext): Promise<void> | void {
    if (signal.aborted || attempt > order.id) throw new RetryLater(1_000);
  }

  @StreamHandler({ topic: ['orders', 'returns'], group: 'both', retryMaxAttempts: 3, handlerTimeoutMs: 1_000 })
  both(
    @Payload() order: Order,
    @MessageKey() key: string | null,
    @MessageHeaders('tenant') tenant: string | undefined,
    @EventId() eventId: string,
    @StreamCtx() ctx: StreamContext,
  ): MessageHandleResult {
    if (order.id < 0) throw new DeadLetter(`${key} ${tenant} ${eventId} ${ctx.topic}`);
    return MessageHandleResult.SUCCESS;
  }

  async send(order: Order): Promise<void> {
    const options: SendOptions = { key: order.id, headers: { tenant: 'a' }, delayMs: 5, eventId: 'an id' };
    const sent: SendResult = await this.producer.send('orders', order, options);
    const id: string | null = sent.id;
    const batch: SendBatchResult = await this.producer.sendBatch('orders', [{ payload: order, key: id }]);
    for (const result of batch.results) if (result.status === 'failed') throw result.error;
  }

  async look(): Promise<DeadReason[]> {
    const page: DeadLetterPage = await this.letters.list('orders', { group: 'plain', limit: 10 });
    await this.letters.replayAll('orders', { group: 'plain' });
    await this.admin.createTopic('orders', { partitionCount: 4 });
    return page.items.map(({ reason }) => reason);
  }
}

export function guard(host: ExecutionContext): string {
  return isStreamContext(host) ? streamContextOf(host).eventId : '';
}

export function codeOf(error: unknown): string {
  if (error instanceof MqSendError) return `${error.code} ${error.eventId}`;
  return error instanceof MqError ? error.code : '';
}

@Module({
  imports: [
    RedisStreamsMqModule.forRoot(url),
    RedisStreamsMqModule.forRootAsync({
      name: 'audit',
      endpoints: { health: 'audit/health', metrics: false },
      inject: [getMqProducerToken()],
      useFactory: async (_producer: MqProducer) => ({ redis: 'redis://localhost', serializer: bytesSerializer }),
    }),
  ],
  providers: [Handlers],
})
export class AppModule {}
