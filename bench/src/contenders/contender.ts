import type { Message, Payload } from '../payloads.js';
import type { Durability, Urls } from '../environment.js';

export type ContenderName = 'ours' | 'engine' | 'raw' | 'bullmq' | 'nats' | 'rabbitmq' | 'redis-streams-broker';

/** One thing of a kind: topic, stream, queue, subject. */
export interface Topic {
  readonly name: string;
  readonly partitions: number;
  /** Groups that each get every message; contenders without groups have one. */
  readonly groups: number;
}

/** Gets each message; throwing fails it. What it returns is waited for by ours alone. */
export type Handle = (payload: Payload, attempt: number) => unknown;

export interface ConsumeOptions {
  /** The pause before a failed message comes again, in ms. */
  readonly retryDelayMs?: number;
  /** How often a message is tried, the first time included; 1 makes each failure a dead letter. */
  readonly maxAttempts?: number;
  /** One pipe and one interceptor around the handler, where the contender has such. */
  readonly enhanced?: boolean;
}

export interface Producer {
  /** Resolves when the server has accepted the message. */
  send(message: Message): Promise<unknown>;
  /** The same for several at once, in the best way the contender has. */
  sendBatch(messages: readonly Message[]): Promise<unknown>;
  /** To be handled so many ms later at the earliest. */
  sendLater?(message: Message, delayMs: number): Promise<unknown>;
  close(): Promise<void>;
}

export interface Consumption {
  close(): Promise<void>;
}

/** What the bench asks of a queue; one object in one process. */
export interface Contender {
  /** Makes what must be there before the first message. */
  create(topic: Topic): Promise<void>;
  producer(topic: Topic): Promise<Producer>;
  /** Resolves when it is under way, for all groups of the topic. */
  consume(topic: Topic, handle: Handle, options: ConsumeOptions): Promise<Consumption>;
  /** Takes away what is not in Redis; Redis is emptied after each round. */
  remove(topic: Topic): Promise<void>;
}

export interface ContenderContext {
  readonly urls: Urls;
  readonly durability: Durability;
  readonly settings: Readonly<Record<string, unknown>>;
}

export type ContenderFactory = (context: ContenderContext) => Contender;

/** Where the contenders find their Redis. */
export function redisUrl({ urls }: ContenderContext): string {
  if (urls.redis === undefined) throw new Error('this contender needs the standalone Redis');
  return urls.redis;
}

/** The address for a `host` and `port` form of options. */
export function redisAddress(context: ContenderContext): { host: string; port: number } {
  const { hostname, port } = new URL(redisUrl(context));
  return { host: hostname, port: Number(port) };
}
