import 'reflect-metadata';
import { MqInvalidHandlerError } from '../core/errors.js';
import type { StreamHandlerOptions } from '../core/handler-options.js';
import { DEFAULT_INSTANCE } from './instance-name.js';

/** Where the subscriptions of a method are kept: on (prototype, method name), so that wrapping the method loses none. */
export const STREAM_HANDLER_METADATA = 'redis-streams-mq:subscriptions';

/** A topic whose payload type is known to the compiler. */
export interface TypedTopic<T> {
  readonly name: string;
  readonly __payload?: T;
}

/** Handler options, and the module instance that the handler belongs to. */
export interface StreamHandlerExtras extends StreamHandlerOptions {
  /**
   * Name of the module instance, as given to `forRoot({ name })`.
   *
   * @defaultValue the instance without a name
   */
  readonly instance?: string;
}

/** All that `@StreamHandler` can be told, in one object. */
export interface StreamHandlerConfig<Topic = string> extends StreamHandlerExtras {
  readonly topic: Topic | readonly Topic[];
  /** Absent: the module's `defaultConsumerGroup`, which then must be set. */
  readonly group?: string;
}

/** A subscription as it was written; nothing of it is checked yet. */
export interface StreamSubscription {
  readonly topics: readonly string[];
  readonly group: string | undefined;
  readonly instance: string;
  readonly options: StreamHandlerOptions;
}

/** `(payload, ctx)`, or whatever its parameter decorators ask for. */
type HandlerOf<T> = (payload: T, ...rest: never[]) => unknown;
type TypedMethodDecorator<T> = <M extends HandlerOf<T>>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<M>,
) => void;

/**
 * Makes a method the handler of a topic's messages for a consumer group. It is called with `(payload, ctx)`; what it
 * returns or throws decides about the message.
 *
 * The method may stand on any provider or controller; a request-scoped class gets an instance per message. It may have several `@StreamHandler`s,
 * and is inherited: a subclass that overrides it stays a handler, and replaces the subscriptions when it is decorated
 * anew.
 *
 * @example
 * ```ts
 * @StreamHandler('orders', 'billing', { retryMaxAttempts: 3 })
 * async onOrder(order: Order, ctx: StreamContext): Promise<void> {
 *   await this.invoices.create(order, ctx.eventId);
 * }
 * ```
 * @publicApi
 */
export function StreamHandler<T>(
  topic: TypedTopic<T> | readonly TypedTopic<T>[],
  group?: string,
  options?: StreamHandlerExtras,
): TypedMethodDecorator<T>;
export function StreamHandler(
  topic: string | readonly string[],
  group?: string,
  options?: StreamHandlerExtras,
): MethodDecorator;
export function StreamHandler<T>(config: StreamHandlerConfig<TypedTopic<T>>): TypedMethodDecorator<T>;
export function StreamHandler(config: StreamHandlerConfig): MethodDecorator;
export function StreamHandler(
  first: AnyTopic | readonly AnyTopic[] | StreamHandlerConfig<AnyTopic>,
  group?: string,
  options: StreamHandlerExtras = {},
): MethodDecorator {
  const config = isConfig(first) ? first : { ...options, topic: first, group };
  const subscription = toSubscription(config);
  return (target, method, descriptor) => {
    const problem = misuse(target, method, descriptor);
    if (problem !== null) throw new MqInvalidHandlerError([problem]);
    const others = (Reflect.getOwnMetadata(STREAM_HANDLER_METADATA, target, method) ?? []) as StreamSubscription[];
    // Decorators run from the bottom up; the list is in the order of the source.
    Reflect.defineMetadata(STREAM_HANDLER_METADATA, [subscription, ...others], target, method);
  };
}

type AnyTopic = string | TypedTopic<unknown>;

function isConfig(first: unknown): first is StreamHandlerConfig<AnyTopic> {
  return typeof first === 'object' && first !== null && 'topic' in first;
}

function toSubscription(config: StreamHandlerConfig<AnyTopic>): StreamSubscription {
  const { topic, group, instance = DEFAULT_INSTANCE, ...options } = config;
  const topics = Array.isArray(topic) ? (topic as readonly AnyTopic[]) : [topic as AnyTopic];
  return { topics: topics.map(topicName), group, instance, options };
}

/** What is no topic stays as it is, for the explorer to report. */
function topicName(topic: AnyTopic): string {
  return typeof topic === 'object' && topic !== null ? topic.name : topic;
}

/** A handler that could never be found would be a consumer that silently does not consume. */
function misuse(target: object, method: string | symbol, descriptor: PropertyDescriptor | undefined): string | null {
  const isStatic = typeof target === 'function';
  const owner = isStatic ? (target as { name: string }).name : target.constructor.name;
  const who = `${owner}.${String(method)}`;
  if (isStatic) return `${who}: @StreamHandler needs a method of instances; this one is static`;
  if (typeof method === 'symbol') return `${who}: @StreamHandler needs a method with a name; this one has a symbol`;
  if (typeof descriptor?.value !== 'function') {
    return `${who}: @StreamHandler needs a method; this is ${descriptor === undefined ? 'a property' : 'an accessor'}`;
  }
  return null;
}
