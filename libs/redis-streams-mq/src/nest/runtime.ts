import type { MqAdmin } from '../admin/admin.js';
import type { HandlerState } from '../consumer/group-consumer.js';
import type { HandlerDefinition } from '../core/handler.js';
import type { MqEvents } from '../core/events.js';
import type { ResolvedMqOptions } from '../core/options.js';
import type { DeadLetterQueue } from '../dlq/dead-letter-queue.js';
import type { MqHealth } from '../health/health.js';
import type { MqMetrics } from '../metrics/metrics.js';
import type { MqProducer } from '../producer/producer.js';
import type { Statistics } from '../redis/statistics.js';
import type { Use } from '../redis/needed-commands.js';

/** A subscription among those of an instance. */
export interface HandlerRef {
  readonly topic: string;
  readonly group: string;
}

/** Starts and stops single handlers of a runtime that has been started. */
export interface HandlerControl {
  readonly handlers: readonly (HandlerRef & { readonly state: HandlerState; readonly partitions: number })[];
  start(handler: HandlerRef): void;
  stop(handler: HandlerRef): Promise<void>;
  pause(handler: HandlerRef): Promise<void>;
}

/** All objects of one module instance. */
export interface MqRuntime {
  readonly name: string;
  readonly options: ResolvedMqOptions;
  readonly events: MqEvents;
  /** What admin, metrics and health count. */
  readonly statistics: Statistics;
  readonly producer: MqProducer;
  readonly deadLetters: DeadLetterQueue;
  readonly admin: MqAdmin;
  readonly health: MqHealth;
  readonly metrics: MqMetrics | null;
  /** @param use - decides which rights the user of Redis must have: `consume` (default) or `produce`. */
  connect(use?: Use): Promise<void>;
  /** @param isStopped - handlers that are not to run until they are started by `control`. */
  start(handlers: readonly HandlerDefinition[], isStopped?: (handler: HandlerDefinition) => boolean): Promise<void>;
  readonly control: HandlerControl;
  stop(): Promise<void>;
  close(): Promise<void>;
}
