import { Inject } from '@nestjs/common';
import { getDeadLetterQueueToken, getMqAdminToken, getMqHandlersToken, getMqProducerToken } from './tokens.js';

/** Stands before a parameter of a constructor or before a property. */
export type InjectDecorator = PropertyDecorator & ParameterDecorator;

/**
 * Injects the producer of a module instance.
 *
 * @example
 * ```ts
 * constructor(@InjectMqProducer('billing') private readonly billing: MqProducer) {}
 * ```
 * @publicApi
 */
export function InjectMqProducer(name?: string): InjectDecorator {
  return Inject(getMqProducerToken(name));
}

/**
 * Injects the admin of a module instance.
 *
 * @publicApi
 */
export function InjectMqAdmin(name?: string): InjectDecorator {
  return Inject(getMqAdminToken(name));
}

/**
 * Injects the dead-letter queue of a module instance.
 *
 * @publicApi
 */
export function InjectDeadLetterQueue(name?: string): InjectDecorator {
  return Inject(getDeadLetterQueueToken(name));
}

/**
 * Injects the handlers of a module instance, to start, stop and pause them.
 *
 * @publicApi
 */
export function InjectMqHandlers(name?: string): InjectDecorator {
  return Inject(getMqHandlersToken(name));
}
