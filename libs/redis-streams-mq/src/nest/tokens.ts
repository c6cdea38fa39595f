import type { InjectionToken } from '@nestjs/common';
import { MqAdmin } from '../admin/admin.js';
import { DeadLetterQueue } from '../dlq/dead-letter-queue.js';
import { MqHealth } from '../health/health.js';
import { MqMetrics } from '../metrics/metrics.js';
import { MqProducer } from '../producer/producer.js';
import { MqHandlers } from './mq-handlers.js';
import { DEFAULT_INSTANCE } from './instance-name.js';

/** Classes are the tokens of the default instance; others have the class's name and theirs, as it then stands in Nest's errors. */
function tokenOf(part: { readonly name: string } & InjectionToken, label: string, name: string): InjectionToken {
  return name === DEFAULT_INSTANCE ? part : `${label}(${name})`;
}

/**
 * Token of the producer of a module instance; `MqProducer` itself for the instance without a name.
 *
 * @publicApi
 */
export function getMqProducerToken(name: string = DEFAULT_INSTANCE): InjectionToken<MqProducer> {
  return tokenOf(MqProducer, 'MqProducer', name);
}

/**
 * Token of the admin of a module instance; `MqAdmin` itself for the instance without a name.
 *
 * @publicApi
 */
export function getMqAdminToken(name: string = DEFAULT_INSTANCE): InjectionToken<MqAdmin> {
  return tokenOf(MqAdmin, 'MqAdmin', name);
}

/**
 * Token of the dead-letter queue of a module instance; `DeadLetterQueue` itself for the instance without a name.
 *
 * @publicApi
 */
export function getDeadLetterQueueToken(name: string = DEFAULT_INSTANCE): InjectionToken<DeadLetterQueue> {
  return tokenOf(DeadLetterQueue, 'DeadLetterQueue', name);
}

/**
 * Token of the health of a module instance; `MqHealth` itself for the instance without a name.
 *
 * @publicApi
 */
export function getMqHealthToken(name: string = DEFAULT_INSTANCE): InjectionToken<MqHealth> {
  return tokenOf(MqHealth, 'MqHealth', name);
}

/**
 * Token of the metrics of a module instance, whose value is `null` with `metricsEnabled: false`; `MqMetrics` itself for
 * the instance without a name.
 *
 * @publicApi
 */
export function getMqMetricsToken(name: string = DEFAULT_INSTANCE): InjectionToken<MqMetrics | null> {
  return tokenOf(MqMetrics, 'MqMetrics', name);
}

/**
 * Token of the handlers of a module instance; `MqHandlers` itself for the instance without a name.
 *
 * @publicApi
 */
export function getMqHandlersToken(name: string = DEFAULT_INSTANCE): InjectionToken<MqHandlers> {
  return tokenOf(MqHandlers, 'MqHandlers', name);
}
