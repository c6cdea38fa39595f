import type { ArgumentsHost, ExecutionContext, Type } from '@nestjs/common';
import { MqError } from '../core/errors.js';
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

/**
 * The context of the message that `host` stands for.
 * @throws MqError `MQ_IS_A_BATCH` when it stands for a batch: use `StreamExecutionContext.getContexts()`.
 */
export function streamContextOf(host: ArgumentsHost): StreamContext {
  const ctx = host.getArgByIndex<StreamContext | readonly StreamContext[]>(1);
  if (!isArray(ctx)) return ctx;
  throw new MqError(
    'MQ_IS_A_BATCH',
    `this runs for a batch of ${ctx.length} messages, which have no context in common; ask isBatch, and use getContexts()`,
  );
}

const isArray: (value: unknown) => value is readonly unknown[] = Array.isArray;

/**
 * What an enhancer can ask about the message that it runs for, as `GqlExecutionContext` is for GraphQL.
 *
 * @example
 * ```ts
 * canActivate(host: ExecutionContext): boolean {
 *   if (!isStreamContext(host)) return true;
 *   const { headers } = StreamExecutionContext.create(host).getContext();
 *   return this.tenants.has(headers['x-tenant']);
 * }
 * ```
 * @publicApi
 */
export class StreamExecutionContext {
  private constructor(private readonly host: ArgumentsHost) {}

  /**
   * The message that an enhancer runs for.
   * @throws MqError `MQ_NOT_A_MESSAGE` when `host` is of a request: ask `isStreamContext(host)` first.
   */
  static create(host: ArgumentsHost): StreamExecutionContext {
    if (isStreamContext(host)) return new StreamExecutionContext(host);
    throw new MqError(
      'MQ_NOT_A_MESSAGE',
      `StreamExecutionContext.create was given a host of type "${host.getType<string>()}"; ask isStreamContext(host) first`,
    );
  }

  /** As it was decoded; what a pipe makes of it is the handler's argument alone. */
  getPayload<T = unknown>(): T {
    return this.host.getArgByIndex<T>(0);
  }

  /** Whether it runs once for the messages of a batch. `getPayload()` is then the array of their payloads. */
  get isBatch(): boolean {
    return isArray(this.host.getArgByIndex<unknown>(1));
  }

  /** The contexts of all messages that it runs for: one, or those of a batch. */
  getContexts(): readonly StreamContext[] {
    const ctx = this.host.getArgByIndex<StreamContext | readonly StreamContext[]>(1);
    return isArray(ctx) ? ctx : [ctx];
  }

  /**
   * Topic, partition, key, headers, attempt and so on.
   * @throws MqError `MQ_IS_A_BATCH` when it runs for a batch: use `getContexts()`.
   */
  getContext(): StreamContext {
    return streamContextOf(this.host);
  }

  /** The class of the handler. */
  getClass<T = unknown>(): Type<T> {
    return (this.host as ExecutionContext).getClass<T>();
  }

  /** The method that handles the message: for `Reflector`. */
  // Nest's own type for it.
  // eslint-disable-next-line typescript/no-unsafe-function-type
  getHandler(): Function {
    return (this.host as ExecutionContext).getHandler();
  }
}
