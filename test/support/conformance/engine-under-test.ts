import type { StreamContext } from '../../../libs/redis-streams-mq/src/core/handler.js';
import type { DeadLetter } from '../../../libs/redis-streams-mq/src/core/dead-letter.js';
import type { StreamHandlerExtras } from '../../../libs/redis-streams-mq/src/nest/stream-handler.decorator.js';
import type { DeadLetterQueue, MqAdmin, MqProducer, RedisStreamsMqModuleOptions } from 'nestjs-redis-streams-mq';

/** A call of a handler, as it saw it. */
export interface Call {
  readonly group: string;
  readonly payload: unknown;
  readonly ctx: StreamContext;
  /** By the engine's clock, in milliseconds. */
  readonly at: number;
}

export interface HandlerUnderTest {
  /** @defaultValue the topic of the case */
  readonly topic?: string;
  /** @defaultValue 'g' */
  readonly group?: string;
  readonly options?: StreamHandlerExtras;
  /** Decorators of the method, such as `UseGuards`. */
  readonly enhancers?: readonly MethodDecorator[];
  readonly handle?: (payload: unknown, ctx: StreamContext) => unknown;
}

/** What both engines can be asked for: the application's own objects, and time and faults. */
export interface EngineUnderTest {
  readonly topic: string;
  readonly producer: MqProducer;
  readonly deadLetters: DeadLetterQueue;
  readonly admin: MqAdmin;
  /** In the order in which they began, over all lives of the engine. */
  readonly calls: readonly Call[];
  /** Starts an application with these handlers; a second call adds one that takes the place of the first. */
  start(handlers: readonly HandlerUnderTest[], options?: RedisStreamsMqModuleOptions): Promise<void>;
  /** Resolves when the condition holds, letting time pass meanwhile; rejects when it takes too long. */
  until(condition: () => unknown): Promise<void>;
  passes(ms: number): Promise<void>;
  /** Everything that can be handled now has been begun. */
  idle(): Promise<void>;
  /** The process dies; another with the same handlers takes over. */
  crash(): Promise<void>;
  /** Puts a foreign entry on a partition's stream. */
  inject(partition: number, fields: readonly string[]): Promise<void>;
  letters(group?: string): Promise<readonly DeadLetter[]>;
  close(): Promise<void>;
}
