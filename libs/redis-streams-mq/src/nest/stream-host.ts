import type { ArgumentsHost } from '@nestjs/common';
import type { StreamContext } from '../core/handler.js';

/** What `host.getType()` says in guards, pipes, interceptors and filters that run for a message. */
export const STREAM_CONTEXT_TYPE = 'redis-streams-mq';

/**
 * Whether an enhancer runs for a message of the queue and not for a request. Its arguments are `(payload, ctx)`, so
 * `host.switchToRpc().getData()` is the payload and `getContext()` the `StreamContext`.
 *
 * @example
 * ```ts
 * canActivate(host: ExecutionContext): boolean {
 *   return isStreamContext(host) || this.checkToken(host.switchToHttp().getRequest());
 * }
 * ```
 * @publicApi
 */
export function isStreamContext(host: ArgumentsHost): boolean {
  return host.getType<string>() === STREAM_CONTEXT_TYPE;
}

/** The context of the message that `host` stands for. */
export function streamContextOf(host: ArgumentsHost): StreamContext {
  return host.getArgByIndex<StreamContext>(1);
}
