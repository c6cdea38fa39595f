import type { DeadLetter, DeadLetterEdit } from './dead-letter.js';
import type { DeadReason } from './events.js';

/** What a handler is told about the message it gets. A copy by `{ ...ctx }` is without `rawFields`, `signal` and `heartbeat`. */
export interface StreamContext {
  readonly topic: string;
  readonly partition: number;
  readonly group: string;
  /** Id of the original entry on the partition stream; the same through retries, dead letters and replays. */
  readonly id: string;
  /** The partition key, or `null` when the message was sent without one. */
  readonly key: string | null;
  /** Headers as sent; an object without a prototype. */
  readonly headers: Readonly<Record<string, string>>;
  /** Global and stable: deduplicate by it. UUID text. */
  readonly eventId: string;
  /** Which handler call this is for this message and group; the first is 1. */
  readonly attempt: number;
  /** Fencing number of this ownership of the partition; it only grows. Write it beside your data and refuse smaller ones. */
  readonly epoch: number;
  /** When the event happened, in milliseconds: the sender's, else the time Redis stored the entry. */
  readonly timestamp: number;
  /** When Redis stored the original entry, in milliseconds by the server's clock. */
  readonly publishedAt: number;
  /**
   * All fields of the stream entry as bytes, also those that this library knows nothing of; an object without a prototype.
   */
  readonly rawFields: Readonly<Record<string, Buffer>>;
  /** Fires when the lease is lost, the handler's time is over or the process stops and will not wait longer. */
  readonly signal: AbortSignal;
  /**
   * Says that the handler is alive: restarts its timeout and proves the lease.
   * @throws MqLeaseLostError when the partition is no longer ours.
   */
  heartbeat(): Promise<void>;
}

/**
 * What a dead-letter handler is told. `group` and `attempt` are its own; the group that gave the message up, its reason and
 * its error are in `deadLetter`.
 */
export interface DeadLetterContext extends StreamContext {
  readonly deadLetter: DeadLetter;
  /**
   * Puts the message back before the group that gave it up, and takes it out of the DLQ in the same step. False when it is
   * not there any more.
   * @throws MqAdminError `MQ_REPLAY_LIMIT` when it was replayed `maxReplays` times already, `MQ_GROUP_PAUSED`,
   * `MQ_GROUP_NOT_FOUND`, `MQ_RETRY_PENDING`, `MQ_DEAD_LETTER_UNREADABLE`
   */
  replay(edit?: DeadLetterEdit): Promise<boolean>;
}

/** A message as it came out of Redis, decoded. `payload` is what the serializer made of the bytes. */
export interface ReceivedMessage {
  readonly payload: unknown;
  readonly payloadBytes: Buffer;
  readonly context: StreamContext;
}

export type HandlerOutcome =
  | { readonly type: 'success' }
  | { readonly type: 'retry'; readonly delayMs?: number; readonly error?: unknown }
  | { readonly type: 'dead'; readonly reason: DeadReason; readonly error?: unknown };

/** Runs the user's method, with whatever pipeline is around it. It should not reject; a rejection counts as a retry. */
export type HandlerInvoker = (message: ReceivedMessage) => Promise<HandlerOutcome>;

/**
 * Runs the user's method for a batch. One outcome for each message, in their order; a rejection, or another number of
 * outcomes, counts as a retry of all.
 */
export type BatchInvoker = (messages: readonly ReceivedMessage[]) => Promise<readonly HandlerOutcome[]>;

/** How long to wait after the handler call number `attempt` failed with `error`, in milliseconds. */
export type RetryBackoff = (attempt: number, error: unknown) => number;

/** Whether the handler is to be called again after call number `attempt` failed with `error`. */
export type RetryIf = (error: unknown, attempt: number) => boolean;

/** When a batch is handed over: with `size` messages, or `waitMs` after the first. */
export interface BatchOptions {
  /** From 1 to 10000. */
  readonly size: number;
  /** How long a batch that is not full waits for more, in ms. Shutdown and hand-over do not wait. */
  readonly waitMs: number;
  /**
   * Class of one payload, for pipes: the compiler does not tell of which class an array's items are. Needed where a
   * `ValidationPipe` is in force and there is no `schema`; `Object` leaves the payloads as they are.
   * @defaultValue unknown
   */
  readonly type?: PayloadClass;
}

/** A class, or `Object`. */
export type PayloadClass = abstract new (...args: never[]) => unknown;

/** At most `count` messages in any `perMs` milliseconds, in one process. */
export interface RateLimit {
  readonly count: number;
  readonly perMs: number;
}

/** Which partitions of a topic this subscription may take: those with `index % modulo === remainder`. */
export interface PartitionShare {
  readonly modulo: number;
  readonly remainder: number;
}

/** What keeps its order among messages of one partition that are handled at once. */
export type Ordering = 'key' | 'partition' | 'none';

/** What waits while a failed message is tried again: nothing, its key, or its partition. */
export type RetryOrdering = 'relaxed' | 'key' | 'partition';

/** Handler options with every field set; each defaults to the module's option. */
export interface ResolvedHandlerOptions {
  readonly batchCount: number;
  readonly pollTimeoutMs: number;
  readonly retryMaxAttempts: number;
  readonly retryBaseBackoffMs: number;
  readonly retryMaxBackoffMs: number;
  /** In place of the exponential back-off. */
  readonly retryBackoff: RetryBackoff | undefined;
  readonly retryIf: RetryIf | undefined;
  /** 0 means no timeout. */
  readonly handlerTimeoutMs: number;
  /** Age by publishing at which a message is not handled any more; 0 means none. */
  readonly ttlMs: number;
  readonly rateLimit: RateLimit | undefined;
  /** The handler gets several messages of a partition at once; `undefined`: one. */
  readonly batch: BatchOptions | undefined;
  readonly startFrom: 'earliest' | 'latest';
  readonly share: PartitionShare;
  /** How many messages of one partition may be handled at once. */
  readonly concurrency: number;
  /** What is handled one after the other when `concurrency` is more than 1. */
  readonly ordering: Ordering;
  /** What waits behind a message that failed, until it is settled or dead. */
  readonly retryOrdering: RetryOrdering;
  /** Messages of one partition that may wait so. */
  readonly maxHeldPerPartition: number;
}

/** What a subscription to dead letters wants. */
export interface DeadLetterSubscription {
  /** The group whose letters it handles; `null`: those of all groups. */
  readonly ofGroup: string | null;
  readonly deleteOnSuccess: boolean;
  readonly maxReplays: number;
}

/** One subscription: a topic, a group and the code that handles it. */
export interface HandlerDefinition {
  readonly topic: string;
  readonly group: string;
  /** `Class.method`, for logs and errors. */
  readonly name: string;
  /** `false`: it does not run until it is started; absent: the module's `autoStart` decides. */
  readonly autoStart?: boolean | undefined;
  /** Partitions of the topic, should it have to be created; absent: the module's default. */
  readonly partitionCount?: number | undefined;
  readonly options: ResolvedHandlerOptions;
  readonly invoke: HandlerInvoker;
  /** In place of `invoke` where `options.batch` is set. */
  readonly invokeBatch?: BatchInvoker | undefined;
  /** Absent for a handler of the topic's messages. */
  readonly deadLetters?: DeadLetterSubscription;
}
