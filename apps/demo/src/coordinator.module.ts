import { Module, type DynamicModule } from '@nestjs/common';
import { RedisStreamsMqModule } from 'nestjs-redis-streams-mq';
import { queueOptions } from './queue-options.js';

/** The publishing side: importing the module is enough for MqProducer, DeadLetterQueue, MqAdmin, /health and /metrics. */
@Module({})
export class CoordinatorModule {
  static forRun(runId: string): DynamicModule {
    return {
      module: CoordinatorModule,
      imports: [RedisStreamsMqModule.forRootAsync({ useFactory: () => queueOptions(runId) })],
    };
  }
}
