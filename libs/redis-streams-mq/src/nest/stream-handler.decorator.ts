import 'reflect-metadata';
import { MqInvalidHandlerError } from '../core/errors.js';
import type { BatchOptions, DeadLetterSubscription } from '../core/handler.js';
import type { StreamHandlerOptions } from '../core/handler-options.js';
import type { StandardSchema } from '../core/standard-schema.js';
import type { AnyTypedTopic, TopicOutput } from '../core/topic.js';
import { DEFAULT_INSTANCE } from './instance-name.js';

/** Where the subscriptions of a method are kept: on (prototype, method name), so that wrapping the method loses none. */
export const STREAM_HANDLER_METADATA = 'redis-streams-mq:subscriptions';

/** Handler options, and the module instance that the handler belongs to. */
export interface StreamHandlerExtras extends StreamHandlerOptions {
  /**
   * Name of the module instance, as given to `forRoot({ name })`.
   *
   * @defaultValue the instance without a name
   */
  readonly instance?: string;

  /**
   * `false`: the handler takes no messages until `MqHandlers.start()` is called for it.
   *
   * @defaultValue the module's `autoStart`
   */
  readonly autoStart?: boolean;

  /**
   * Standard Schema (zod, valibot, arktype, ...) of the payload. The handler gets what the schema makes of it. What it
   * refuses is a dead letter (`validation`) at once, with the issues; when the schema itself throws, the message is retried.
   * It is asked after the guards, before the pipes, and goes before the schema of a topic's definition.
   *
   * @defaultValue the schema of the topic's definition, if it has one
   */
  readonly schema?: StandardSchema;
}

/** All that `@StreamHandler` can be told, in one object. */
export interface StreamHandlerConfig<Topic = string> extends StreamHandlerExtras {
  readonly topic: Topic | readonly Topic[];
  /** Absent: the module's `defaultConsumerGroup`, which then must be set. */
  readonly group?: string;
}

/** A subscription as it was written; nothing of it is checked yet. */
export interface StreamSubscription {
  readonly topics: readonly SubscribedTopic[];
  readonly group: string | undefined;
  readonly instance: string;
  readonly schema: StandardSchema | undefined;
  readonly autoStart: boolean | undefined;
  readonly options: StreamHandlerOptions;
  /** Of `@DeadLetterHandler`; `group` is then the one whose letters are meant. */
  readonly deadLetters?: Omit<DeadLetterSubscription, 'ofGroup'>;
}

/** A topic as it was named or defined. */
export interface SubscribedTopic {
  readonly name: string;
  readonly schema: StandardSchema | undefined;
  readonly partitions: number | undefined;
}

/** The payload comes first: the compiler does not see what parameter decorators ask for. */
export type HandlerOf<T> = (payload: T, ...rest: never[]) => unknown;
/** The method gets an array of payloads. */
export interface Batched {
  readonly batch: BatchOptions;
}
/** The method gets one payload. */
export interface Unbatched {
  readonly batch?: undefined;
}
/** Stands before a method whose first parameter takes a `T`. */
export type TypedMethodDecorator<T> = <M extends HandlerOf<T>>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<M>,
) => void;

/**
 * Makes a method the handler of a topic's messages for a consumer group. It is called with `(payload, ctx)`; what it
 * returns or throws decides about the message.
 *
 * With the option `batch` it is called with arrays: `(payloads, contexts)`.
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
export function StreamHandler<Topic extends AnyTypedTopic>(
  topic: Topic | readonly Topic[],
  group: string | undefined,
  options: StreamHandlerExtras & Batched,
): TypedMethodDecorator<TopicOutput<Topic>[]>;
export function StreamHandler<Topic extends AnyTypedTopic>(
  topic: Topic | readonly Topic[],
  group?: string,
  options?: StreamHandlerExtras & Unbatched,
): TypedMethodDecorator<TopicOutput<Topic>>;
export function StreamHandler(
  topic: string | readonly string[],
  group?: string,
  options?: StreamHandlerExtras,
): MethodDecorator;
export function StreamHandler<Topic extends AnyTypedTopic>(
  config: StreamHandlerConfig<Topic> & Batched,
): TypedMethodDecorator<TopicOutput<Topic>[]>;
export function StreamHandler<Topic extends AnyTypedTopic>(
  config: StreamHandlerConfig<Topic> & Unbatched,
): TypedMethodDecorator<TopicOutput<Topic>>;
export function StreamHandler(config: StreamHandlerConfig): MethodDecorator;
export function StreamHandler(
  first: AnyTopic | readonly AnyTopic[] | StreamHandlerConfig<AnyTopic>,
  group?: string,
  options: StreamHandlerExtras = {},
): MethodDecorator {
  const config = isConfig(first) ? first : { ...options, topic: first, group };
  const subscription = toSubscription(config);
  return subscribe(subscription, '@StreamHandler');
}

/** Writes a subscription beside those that the method has; `decorator` is for refusals. */
export function subscribe(subscription: StreamSubscription, decorator: string): MethodDecorator {
  return (target, method, descriptor) => {
    const problem = misuse(target, method, descriptor, decorator);
    if (problem !== null) throw new MqInvalidHandlerError([problem]);
    const others = (Reflect.getOwnMetadata(STREAM_HANDLER_METADATA, target, method) ?? []) as StreamSubscription[];
    // Decorators run from the bottom up; the list is in the order of the source.
    Reflect.defineMetadata(STREAM_HANDLER_METADATA, [subscription, ...others], target, method);
  };
}

/** A topic's name, or what `defineTopic` gave. */
export type AnyTopic = string | AnyTypedTopic;

function isConfig(first: unknown): first is StreamHandlerConfig<AnyTopic> {
  return typeof first === 'object' && first !== null && 'topic' in first;
}

function toSubscription(config: StreamHandlerConfig<AnyTopic>): StreamSubscription {
  const { topic, group, instance = DEFAULT_INSTANCE, schema, autoStart, ...options } = config;
  const topics = Array.isArray(topic) ? (topic as readonly AnyTopic[]) : [topic as AnyTopic];
  return { topics: topics.map(toTopic), group, instance, schema, autoStart, options };
}

/** What is no topic stays as it is, for the explorer to report. */
export function toTopic(topic: AnyTopic): SubscribedTopic {
  if (typeof topic !== 'object' || topic === null) return { name: topic, schema: undefined, partitions: undefined };
  const { name, schema, partitions } = topic;
  return { name, schema, partitions };
}

/** A handler that could never be found would be a consumer that silently does not consume. */
function misuse(
  target: object,
  method: string | symbol,
  descriptor: PropertyDescriptor | undefined,
  decorator: string,
): string | null {
  const isStatic = typeof target === 'function';
  const owner = isStatic ? (target as { name: string }).name : target.constructor.name;
  const who = `${owner}.${String(method)}`;
  if (isStatic) return `${who}: ${decorator} needs a method of instances; this one is static`;
  if (typeof method === 'symbol') return `${who}: ${decorator} needs a method with a name; this one has a symbol`;
  if (typeof descriptor?.value !== 'function') {
    return `${who}: ${decorator} needs a method; this is ${descriptor === undefined ? 'a property' : 'an accessor'}`;
  }
  return null;
}
