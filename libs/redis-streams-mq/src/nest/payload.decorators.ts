import { Body, createParamDecorator, type PipeTransform, type Type } from '@nestjs/common';
import type { StreamContext } from '../core/handler.js';
import { streamContextOf } from './stream-host.js';

/** A pipe, or its class. */
export type Pipe = Type<PipeTransform> | PipeTransform;

/**
 * The message's payload, or one property of it. `Body` underneath: a `ValidationPipe` skips what `createParamDecorator`
 * makes, so a decorator of that kind would leave payloads unchecked.
 *
 * @publicApi
 */
export function Payload(...pipes: Pipe[]): ParameterDecorator;
export function Payload(property: string, ...pipes: Pipe[]): ParameterDecorator;
export function Payload(first?: string | Pipe, ...pipes: Pipe[]): ParameterDecorator {
  if (typeof first === 'string') return Body(first, ...pipes);
  return first === undefined ? Body(...pipes) : Body(first, ...pipes);
}

/**
 * The `StreamContext` of the message.
 *
 * @publicApi
 */
export function StreamCtx(...pipes: Pipe[]): ParameterDecorator {
  return contextParam(undefined, ...pipes);
}

/**
 * The partition key, or `null` when the message was sent without one.
 *
 * @publicApi
 */
export function MessageKey(...pipes: Pipe[]): ParameterDecorator {
  return keyParam(undefined, ...pipes);
}

/**
 * The headers, or the one of that name (`undefined` when it is absent).
 *
 * @publicApi
 */
export function MessageHeaders(...pipes: Pipe[]): ParameterDecorator;
export function MessageHeaders(name: string, ...pipes: Pipe[]): ParameterDecorator;
export function MessageHeaders(first?: string | Pipe, ...pipes: Pipe[]): ParameterDecorator {
  if (typeof first === 'string') return headersParam(first, ...pipes);
  return headersParam(undefined, ...(first === undefined ? pipes : [first, ...pipes]));
}

/**
 * The event id: the same through retries, dead letters and replays. Deduplicate by it.
 *
 * @publicApi
 */
export function EventId(...pipes: Pipe[]): ParameterDecorator {
  return eventIdParam(undefined, ...pipes);
}

/** What one of these decorators reads. */
type StreamParam = 'context' | 'key' | 'eventId' | 'headers';
type ReadContext = (ctx: StreamContext, data: string | undefined) => unknown;
type ParamFactory = Parameters<typeof createParamDecorator<string | undefined, unknown>>[0];

/** Registered, so that it is the same in two copies of the library. */
const STREAM_PARAM: unique symbol = Symbol.for('redis-streams-mq.stream-param');

function streamParam(
  kind: StreamParam,
  read: ReadContext,
): (...dataOrPipes: (string | undefined | Pipe)[]) => ParameterDecorator {
  const factory: ParamFactory = (data, host) => read(streamContextOf(host), data);
  return createParamDecorator<string | undefined, unknown>(Object.assign(factory, { [STREAM_PARAM]: kind }));
}

/** Whether a parameter's factory is one of these, which the pipes of the handler, class and app leave alone. */
export function isStreamParam(factory: object): boolean {
  return STREAM_PARAM in factory;
}

/** Whether it is the factory of `@StreamCtx`. */
export function isContextParam(factory: object): boolean {
  return Reflect.get(factory, STREAM_PARAM) === 'context';
}

const contextParam = streamParam('context', (ctx) => ctx);
const keyParam = streamParam('key', (ctx) => ctx.key);
const eventIdParam = streamParam('eventId', (ctx) => ctx.eventId);
const headersParam = streamParam('headers', (ctx, name) => (name === undefined ? ctx.headers : ctx.headers[name]));
