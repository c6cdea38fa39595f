import { MqInvalidOptionsError } from './errors.js';
import { nameProblem } from './names.js';
import { describeValue, integer, problemOf } from './option-rules.js';
import { MAX_PARTITION_COUNT } from './options.js';
import { isStandardSchema, type StandardSchema } from './standard-schema.js';

/**
 * A topic whose payload type is known to the compiler: `Output` is what handlers get, `Input` what is sent. Usually they
 * are the same; a schema that transforms tells them apart.
 */
export interface TypedTopic<Output, Input = Output> {
  readonly name: string;
  readonly schema?: StandardSchema<Output, Input> | undefined;
  readonly version?: string | undefined;
  readonly partitions?: number | undefined;
  // For the compiler alone; they are never there.
  readonly __payload?: Output;
  readonly __input?: Input;
}

/** What may be said about a topic where it is defined. */
export interface TopicDefinition<Output, Input = Output> {
  /**
   * Validates payloads: handlers get what it makes of them, and one that it refuses is a dead letter (`validation`) at once.
   * The producer refuses to send what it refuses (`MQ_INVALID_PAYLOAD`), and sends the payload as it was given; schemas that
   * validate asynchronously are asked by handlers alone, as a send would otherwise lose its place in the order.
   */
  readonly schema?: StandardSchema<Output, Input>;
  /** Travels in the header `x-schema-version` of what is sent with this definition, unless the send has that header. */
  readonly version?: string | number;
  /** Partitions of the topic when it is created; one that exists keeps its own. @defaultValue `defaultPartitionCount` */
  readonly partitions?: number;
}

/** What a producer may send to a topic. */
export type TopicInput<Topic> = Topic extends TypedTopic<infer _Output, infer Input> ? Input : never;

/** What a handler of a topic gets. */
export type TopicOutput<Topic> = Topic extends TypedTopic<infer Output, infer _Input> ? Output : never;

/** What `defineTopic` gave, of any payload: the type parameters stand in both positions. */
// eslint-disable-next-line typescript/no-explicit-any
export type AnyTypedTopic = TypedTopic<any, any>;

/** Header that carries the version of a topic's definition. */
export const SCHEMA_VERSION_HEADER = 'x-schema-version';

const partitionsRule = integer(1, 1, MAX_PARTITION_COUNT);

/**
 * Defines a topic once, for producers and handlers: a payload of another type does not compile.
 *
 * @example
 * ```ts
 * export const orders = defineTopic<Order>('orders', { partitions: 8, version: 2 });
 *
 * await producer.send(orders, { id: 7, total: 12 }, { key: 'ann' });
 *
 * @StreamHandler(orders, 'billing')
 * onOrder(order: Order): void {}
 * ```
 * @throws MqInvalidOptionsError when the name or an option cannot be used.
 * @publicApi
 */
export function defineTopic<Output, Input = Output>(
  name: string,
  definition: TopicDefinition<Output, Input> = {},
): TypedTopic<Output, Input> {
  const { schema, version, partitions } = definition;
  const problems: string[] = [];
  const badName = nameProblem('topic', name);
  if (badName !== undefined) problems.push(badName);
  if (schema !== undefined && !isStandardSchema(schema)) problems.push('schema must be a Standard Schema');
  if (version !== undefined && typeof version !== 'number' && typeof version !== 'string') {
    problems.push(`version must be a text or a number; got ${describeValue(version)}`);
  }
  const badCount = partitions === undefined ? null : problemOf(partitionsRule, 'partitions', partitions);
  if (badCount !== null) problems.push(badCount);
  if (problems.length > 0)
    throw new MqInvalidOptionsError(problems.map((problem) => `defineTopic(${describeValue(name)}): ${problem}`));
  return Object.freeze({ name, schema, version: version === undefined ? undefined : String(version), partitions });
}
