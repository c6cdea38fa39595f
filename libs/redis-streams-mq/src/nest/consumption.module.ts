import { Inject, Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { DiscoveryModule, ModulesContainer } from '@nestjs/core';
import { HandlerExplorer } from './handler-explorer.js';
import { MqConsumption } from './mq-consumption.js';
import { MqInstances } from './mq-instances.js';
import { StreamContextCreator } from './stream-context-creator.js';
import { StreamHandlerAccessor } from './stream-handler.accessor.js';

/**
 * Begins after every bootstrap hook of the application and ends before every destroy hook. One for all instances.
 *
 * Nest runs hooks by descending distance from the root module and destroys in the reverse order; a distance below the
 * root's makes this module the last to bootstrap and the first to be destroyed.
 */
@Module({
  imports: [DiscoveryModule],
  providers: [MqInstances, MqConsumption, HandlerExplorer, StreamHandlerAccessor, StreamContextCreator],
  exports: [MqInstances, MqConsumption],
})
export class ConsumptionModule implements OnApplicationBootstrap, OnModuleDestroy {
  constructor(
    @Inject(ModulesContainer) modules: ModulesContainer,
    @Inject(MqConsumption) private readonly consumption: MqConsumption,
  ) {
    for (const module of modules.values()) {
      if (module.metatype === ConsumptionModule) module.distance = Number.MIN_SAFE_INTEGER;
    }
  }

  async onApplicationBootstrap(): Promise<void> {
    await this.consumption.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.consumption.stop();
  }
}
