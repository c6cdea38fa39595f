import type { Clock } from '../core/clock.js';
import { MqError, MqSendError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Keys } from '../core/keys.js';
import { assertTopicName } from '../core/names.js';
import type { ResolvedMqOptions } from '../core/options.js';
import { createPartitioner } from '../core/partitioner.js';
import type { AnyTypedTopic, TopicInput } from '../core/topic.js';
import type { Connection } from '../redis/connection.js';
import type { TopicRegistry } from '../redis/topic-registry.js';
import type { StoredResult } from './lane-wire.js';
import type { LaneItem } from './lane.js';
import { prepareMessage, type OutgoingMessage, type PreparedMessage, type SendOptions } from './outgoing-message.js';
import { TopicSender } from './topic-sender.js';
import { TopicGate } from './topic-gate.js';

/** Where a message went. */
export interface SendResult {
  readonly topic: string;
  readonly partition: number;
  /** Id of the stream entry; `null` for a delayed message, which gets one when it is due. */
  readonly id: string | null;
  readonly eventId: string;
  /** True when a message with this `dedupId` (or, delayed, this `eventId`) was there already and nothing was stored. */
  readonly duplicate: boolean;
}

/** What became of one message of a batch. */
export type BatchItemResult =
  ({ readonly status: 'sent' } & SendResult) | { readonly status: 'failed'; readonly error: MqError };

/** What became of a batch. */
export interface SendBatchResult {
  /** In the order of the messages given. */
  readonly results: readonly BatchItemResult[];
  readonly sent: number;
  readonly failed: number;
}

export interface ProducerDeps {
  readonly connection: Connection;
  readonly keys: Keys;
  readonly topics: TopicRegistry;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly options: ResolvedMqOptions;
}

/** What a batch is made of: a list, or anything that yields its messages one after the other. */
export type Messages<T> = Iterable<T> | AsyncIterable<T>;

/** The most messages of a batch that wait for their answer at one time; the rest is not yet encoded. */
const BATCH_WINDOW = 2_000;

/**
 * Sends messages. A promise that resolves means that Redis has stored the message; one that rejects says in `code`
 * whether it was refused, not sent, or sent without an answer.
 *
 * @example
 * await producer.send('orders', { id: 7 }, { key: 'customer-1' });
 * await producer.send(orders, { id: 7 }); // const orders = defineTopic<Order>('orders')
 */
export class MqProducer {
  private readonly senders = new Map<string, TopicSender>();
  private readonly gate = new TopicGate();
  private readonly defaultPartitioner = createPartitioner();
  private pending = 0;
  private closed = false;

  constructor(private readonly deps: ProducerDeps) {}

  /**
   * Stores one message. Messages to one partition are stored in the order of the calls.
   * @throws MqInvalidNameError, MqInvalidMessageError (refused here, nothing sent), MqSendError (see its codes)
   */
  send<Topic extends AnyTypedTopic>(
    topic: Topic,
    payload: TopicInput<Topic>,
    options?: SendOptions,
  ): Promise<SendResult>;
  send(topic: string, payload: unknown, options?: SendOptions): Promise<SendResult>;
  async send(topic: string | AnyTypedTopic, payload: unknown, options: SendOptions = {}): Promise<SendResult> {
    try {
      return await this.take(topic, payload, options);
    } catch (error) {
      this.deps.events.emit('sendFailed', { topic: nameOf(topic), code: asMqError(error).code });
      throw error;
    }
  }

  /**
   * Stores many messages and reports on each; it rejects only if the topic's name is invalid. A message that is refused
   * does not keep the others from being sent. Takes any iterable; a bounded number is in memory at a time.
   */
  sendBatch<Topic extends AnyTypedTopic>(
    topic: Topic,
    messages: Messages<OutgoingMessage<TopicInput<Topic>>>,
  ): Promise<SendBatchResult>;
  sendBatch(topic: string, messages: Messages<OutgoingMessage>): Promise<SendBatchResult>;
  async sendBatch(
    topic: string | AnyTypedTopic,
    messages: Messages<OutgoingMessage<unknown>>,
  ): Promise<SendBatchResult> {
    assertTopicName(nameOf(topic));
    const results: BatchItemResult[] = [];
    const windowSize = Math.min(BATCH_WINDOW, this.deps.options.sendBufferLimit);
    let window: Promise<void>[] = [];
    let index = 0;
    for await (const message of messages) {
      const at = index++;
      window.push(this.sendOne(topic, message).then((result) => void (results[at] = result)));
      if (window.length === windowSize) {
        await Promise.all(window);
        window = [];
      }
    }
    await Promise.all(window);
    const sent = results.reduce((sum, result) => sum + (result.status === 'sent' ? 1 : 0), 0);
    return { results, sent, failed: results.length - sent };
  }

  /** What is known of the topic is out of date: looks at it now. */
  topicChanged(topic: string): void {
    const { topics } = this.deps;
    const sender = this.senders.get(topic);
    if (sender !== undefined) sender.refresh();
    // Or the first send would find the old one.
    else if (topics.cached(topic) !== undefined) topics.refresh(topic).catch(() => topics.forget(topic));
  }

  /** Messages that wait for Redis' answer. */
  get inFlight(): number {
    return this.pending;
  }

  /**
   * Takes no more. What is under way is waited for, at most `timeoutMs`; what is not sent by then rejects with
   * `MQ_CLOSED`, and what has no answer with `MQ_SEND_OUTCOME_UNKNOWN` once the connection is closed.
   */
  async close(timeoutMs: number): Promise<void> {
    this.closed = true;
    const until = this.deps.clock.monotonic() + timeoutMs;
    while (this.pending > 0 && this.deps.connection.isReady && this.deps.clock.monotonic() < until) {
      await new Promise<void>((resolve) => this.deps.clock.setTimer(resolve, 5));
    }
    for (const sender of this.senders.values()) sender.close();
  }

  private async sendOne(topic: string | AnyTypedTopic, message: OutgoingMessage): Promise<BatchItemResult> {
    try {
      const { payload, ...options } = message;
      return { status: 'sent', ...(await this.send(topic as string, payload, options)) };
    } catch (error) {
      return { status: 'failed', error: asMqError(error) };
    }
  }

  private take(topic: string | AnyTypedTopic, payload: unknown, options: SendOptions): Promise<SendResult> {
    if (!isTyped(topic)) return this.dispatch(topic, this.prepare(topic, payload, options));
    const { name, partitions } = topic;
    const passed = this.gate.pass(topic, payload, options);
    return this.dispatch(name, this.prepare(name, payload, passed), partitions);
  }

  private prepare(topic: string, payload: unknown, options: SendOptions): PreparedMessage {
    assertTopicName(topic);
    return prepareMessage(topic, payload, options, this.deps.options);
  }

  private dispatch(topic: string, message: PreparedMessage, partitions?: number): Promise<SendResult> {
    const { eventId } = message;
    const { options, clock } = this.deps;
    if (!options.enabled) throw new MqSendError('MQ_DISABLED', 'the queue is disabled by `enabled: false`', eventId);
    if (this.closed) throw new MqSendError('MQ_CLOSED', 'the producer is closed', eventId);
    if (this.pending >= options.sendBufferLimit) {
      throw new MqSendError(
        'MQ_SEND_BUFFER_FULL',
        `${this.pending} messages wait for Redis already (sendBufferLimit)`,
        eventId,
        { retryable: true },
      );
    }
    return new Promise((resolve, reject) => {
      let partition = -1;
      this.pending++;
      const item: LaneItem = {
        message,
        deadline: clock.monotonic() + message.timeoutMs,
        sent: false,
        doubtful: false,
        settled: false,
        placed: (chosen) => (partition = chosen),
        resolve: ({ id, duplicate }: StoredResult) => {
          this.pending--;
          resolve({ topic, partition, id, eventId, duplicate });
        },
        reject: (error) => {
          this.pending--;
          reject(error);
        },
      };
      this.sender(topic, partitions).push(item);
    });
  }

  /** `partitions`: of a topic that is defined so and does not exist; the first sender of a topic decides. */
  private sender(topic: string, partitions: number | undefined): TopicSender {
    let sender = this.senders.get(topic);
    if (sender === undefined) {
      const { connection, keys, topics, clock, events, options } = this.deps;
      sender = new TopicSender({
        topic,
        connection,
        keys,
        topics,
        clock,
        events,
        waitReplicas: options.waitReplicas,
        waitReplicasTimeoutMs: options.waitReplicasTimeoutMs,
        defaultPartitioner: this.defaultPartitioner,
        partitioner: options.partitioner,
        autoCreateTopics: options.autoCreateTopics,
        defaultPartitionCount: partitions ?? options.defaultPartitionCount,
        metaMaxAgeMs: options.rebalanceIntervalMs,
      });
      this.senders.set(topic, sender);
    }
    return sender;
  }
}

/** What is no topic at all is refused as a name. */
function isTyped(topic: string | AnyTypedTopic): topic is AnyTypedTopic {
  return typeof topic === 'object' && topic !== null;
}

function nameOf(topic: string | AnyTypedTopic): string {
  return isTyped(topic) ? topic.name : topic;
}

/** A partitioner, a schema or a getter of the options may throw anything. */
function asMqError(error: unknown): MqError {
  return error instanceof MqError ? error : new MqError('MQ_INVALID_MESSAGE', String(error), { cause: error });
}
