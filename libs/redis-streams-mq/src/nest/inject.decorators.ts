import { Inject } from '@nestjs/common';
import { getDeadLetterQueueToken, getMqAdminToken, getMqProducerToken } from './tokens.js';

type InjectDecorator = PropertyDecorator & ParameterDecorator;

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
