import type { StreamContext } from '../core/handler.js';
import { rawFieldsOf, type DecodedMessage } from '../core/message.js';
import type { HandlerCall } from './handler-call.js';
import type { LeaseTerms } from './lease.js';

export interface MessageContextSource {
  readonly terms: LeaseTerms;
  readonly message: DecodedMessage;
  readonly id: string;
  readonly attempt: number;
  readonly publishedAt: number;
  readonly fields: readonly Buffer[];
  readonly call: HandlerCall;
}

/** What a handler is told. A class: an object literal with accessors costs several times as much, for each message. */
export class MessageContext implements StreamContext {
  readonly topic: string;
  readonly partition: number;
  readonly group: string;
  readonly id: string;
  readonly key: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly eventId: string;
  readonly attempt: number;
  readonly epoch: number;
  readonly timestamp: number;
  readonly publishedAt: number;
  readonly #fields: readonly Buffer[];
  readonly #call: HandlerCall;

  constructor({ terms, message, id, attempt, publishedAt, fields, call }: MessageContextSource) {
    this.topic = terms.topic;
    this.partition = terms.partition;
    this.group = terms.group;
    this.id = id;
    this.key = message.key;
    this.headers = message.headers;
    this.eventId = message.eventId;
    this.attempt = attempt;
    this.epoch = terms.epoch;
    this.timestamp = message.timestamp ?? publishedAt;
    this.publishedAt = publishedAt;
    this.#fields = fields;
    this.#call = call;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get rawFields(): Readonly<Record<string, Buffer>> {
    return rawFieldsOf(this.#fields);
  }

  /** Works also when it was taken out of the context. */
  get heartbeat(): () => Promise<void> {
    const call = this.#call;
    return async () => call.heartbeat();
  }
}
