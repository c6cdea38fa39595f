import { Module, type DynamicModule, type Provider } from '@nestjs/common';
import type { RedisStreamsMqModuleOptions } from '../nest/module-options.js';
import { MQ_COMPOSE, RedisStreamsMqModule } from '../nest/redis-streams-mq.module.js';
import { MqTesting, type MqTestingOptions } from './mq-testing.js';

/**
 * `RedisStreamsMqModule` in memory, for tests of some handlers without the application around them. `MqTesting` is there to
 * be injected, or to be taken from the module. For a whole application there is `MqTesting.override`.
 *
 * @example
 * ```ts
 * const module = await Test.createTestingModule({
 *   imports: [MqTestingModule.forRoot({ defaultPartitionCount: 1 })],
 *   providers: [Billing],
 * }).compile();
 * await module.init();
 * const mq = module.get(MqTesting);
 * ```
 * @publicApi
 */
@Module({})
export class MqTestingModule {
  /** Takes the options of `RedisStreamsMqModule.forRoot`. There are no endpoints unless they are asked for. */
  static forRoot(options: RedisStreamsMqModuleOptions = {}, testing: MqTestingOptions = {}): DynamicModule {
    const mq = new MqTesting(testing);
    const queue = RedisStreamsMqModule.forRoot({ endpoints: false, ...options });
    const providers = (queue.providers ?? []).map((provider: Provider) =>
      typeof provider === 'object' && provider.provide === MQ_COMPOSE
        ? { provide: MQ_COMPOSE, useValue: mq.compose }
        : provider,
    );
    return {
      module: MqTestingModule,
      global: true,
      imports: [{ ...queue, providers }],
      providers: [{ provide: MqTesting, useValue: mq }],
      exports: [MqTesting],
    };
  }
}
