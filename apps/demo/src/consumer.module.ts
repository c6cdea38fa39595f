import { Module, type DynamicModule } from '@nestjs/common';
import { RedisStreamsMqModule } from 'nestjs-redis-streams-mq';
import { AlertsHandler } from './flights/alerts.handler.js';
import { DelayStatsHandler } from './flights/delay-stats.handler.js';
import { CoordinatorLink } from './ipc/coordinator-link.js';
import type { ConsumerSettings } from './ipc/ipc-messages.js';
import { CallJournal } from './ipc/call-journal.js';
import { ResultStore } from './ipc/result-store.js';
import { keyCountsHandler } from './json-lines/key-counts.handler.js';
import { queueOptions } from './queue-options.js';

/** The consuming side: handlers are ordinary providers; the module finds their @StreamHandler methods. */
@Module({})
export class ConsumerModule {
  static forRun({ runId, workload }: ConsumerSettings): DynamicModule {
    const handlers =
      workload.kind === 'flights' ? [DelayStatsHandler, AlertsHandler] : [keyCountsHandler(workload.topic)];
    return {
      module: ConsumerModule,
      imports: [RedisStreamsMqModule.forRootAsync({ useFactory: () => queueOptions(runId) })],
      providers: [...handlers, CoordinatorLink, CallJournal, ResultStore],
    };
  }
}
