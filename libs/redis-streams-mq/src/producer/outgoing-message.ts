import { thrownText } from '../core/errors.js';
import { eventIdToWire, newEventId } from '../core/event-id.js';
import { encodeMessage } from '../core/message.js';
import { checkHeaders, encodePayload, invalidMessage as invalid } from '../core/message-parts.js';
import type { Serializer } from '../core/serializer.js';

/** What may be said about a message when it is sent. */
export interface SendOptions {
  /** Messages of one key go to one partition and are handled in order. `''` is a key; `null` and absent are none. Numbers count as their text. */
  key?: string | number | null;
  /** Text values only; names and values travel as they are. */
  headers?: Record<string, string>;
  /** Global id by which handlers deduplicate. @defaultValue a new UUIDv7 */
  eventId?: string;
  /** Partition to use, in place of the key's. */
  partition?: number;
  /** When the event happened (milliseconds or Date). @defaultValue the time Redis stores it */
  timestamp?: number | Date;
  /** Milliseconds after storing at which the message is dead-lettered as `expired` rather than handled. */
  ttlMs?: number;
  /** Handled no earlier than this many milliseconds from now, by the server's clock. */
  delayMs?: number;
  /** Handled no earlier than this point in time (milliseconds or Date). Not together with `delayMs`. */
  deliverAt?: number | Date;
  /** A second message with this id, on the same partition and within `dedupTtlMs`, is not stored again. */
  dedupId?: string;
  /** How long a `dedupId` is remembered, in milliseconds. @defaultValue 86400000 (a day) */
  dedupTtlMs?: number;
  /** Deadline of this send in milliseconds. @defaultValue the module's `sendTimeoutMs` */
  timeoutMs?: number;
}

/** One message of a batch: its payload, and what else is said about it. */
export interface OutgoingMessage<T = unknown> extends SendOptions {
  payload: T;
}

export type Delivery =
  | { readonly kind: 'now' }
  | { readonly kind: 'once'; readonly dedupId: string; readonly ttlMs: number }
  | { readonly kind: 'later'; readonly mode: 'delay' | 'at'; readonly when: number };

/** A message that has been checked and encoded; only its partition is open. */
export interface PreparedMessage {
  readonly eventId: string;
  readonly wireEventId: string;
  /** What decides the partition: the key, else the `dedupId`. */
  readonly partitionKey: string | null;
  readonly fields: readonly (string | Buffer)[];
  readonly delivery: Delivery;
  readonly partition: number | undefined;
  readonly timeoutMs: number;
}

const DAY_MS = 86_400_000;
const MAX_DELAY_MS = 10 * 365 * DAY_MS;

function millis(topic: string, name: string, value: number | Date, min: number, max: number): number {
  const ms = value instanceof Date ? value.getTime() : value;
  if (typeof ms !== 'number' || !Number.isFinite(ms) || ms < min || ms > max) {
    throw invalid(topic, `${name} must be between ${min} and ${max} ms`);
  }
  return Math.round(ms);
}

function keyText(topic: string, key: unknown): string | null {
  if (key === undefined || key === null) return null;
  const text = typeof key === 'number' && Number.isFinite(key) ? String(key) : key;
  if (typeof text !== 'string') throw invalid(topic, 'key must be a string or a number');
  // A lone surrogate has no UTF-8 form: two different keys would become one.
  if (!text.isWellFormed()) throw invalid(topic, 'key is not well-formed Unicode');
  return text;
}

function wireForm(topic: string, eventId: string): string {
  try {
    return eventIdToWire(eventId);
  } catch (error) {
    throw invalid(topic, thrownText(error));
  }
}

function deliveryOf(topic: string, options: SendOptions): Delivery {
  const { delayMs, deliverAt, dedupId } = options;
  const later = delayMs !== undefined || deliverAt !== undefined;
  if (dedupId !== undefined) {
    if (typeof dedupId !== 'string' || dedupId === '' || dedupId.length > 512 || !dedupId.isWellFormed()) {
      throw invalid(topic, 'dedupId must be a string of 1 to 512 characters');
    }
    if (later)
      throw invalid(topic, 'dedupId cannot be combined with a delay; a delayed message is deduplicated by its eventId');
    return { kind: 'once', dedupId, ttlMs: millis(topic, 'dedupTtlMs', options.dedupTtlMs ?? DAY_MS, 1, MAX_DELAY_MS) };
  }
  if (delayMs !== undefined && deliverAt !== undefined)
    throw invalid(topic, 'delayMs and deliverAt exclude each other');
  if (delayMs !== undefined)
    return { kind: 'later', mode: 'delay', when: millis(topic, 'delayMs', delayMs, 0, MAX_DELAY_MS) };
  if (deliverAt !== undefined)
    return { kind: 'later', mode: 'at', when: millis(topic, 'deliverAt', deliverAt, 0, 8.64e15) };
  return { kind: 'now' };
}

/** @throws MqInvalidMessageError before anything is sent, naming the topic and the reason. */
export function prepareMessage(
  topic: string,
  payload: unknown,
  options: SendOptions,
  settings: { readonly serializer: Serializer; readonly maxPayloadBytes: number; readonly sendTimeoutMs: number },
): PreparedMessage {
  // A key in the place of the options would be lost without a word.
  if (typeof options !== 'object' || options === null) throw invalid(topic, 'the options must be an object');
  const bytes = encodePayload(topic, payload, settings);
  const key = keyText(topic, options.key);
  const eventId = options.eventId ?? newEventId();
  const wireEventId = wireForm(topic, eventId);
  const headers = checkHeaders(topic, options.headers);
  const timestamp =
    options.timestamp === undefined ? undefined : millis(topic, 'timestamp', options.timestamp, 0, 8.64e15);
  const ttlMs = options.ttlMs === undefined ? undefined : millis(topic, 'ttlMs', options.ttlMs, 1, MAX_DELAY_MS);
  const delivery = deliveryOf(topic, options);
  return {
    eventId,
    wireEventId,
    partitionKey: key ?? (delivery.kind === 'once' ? delivery.dedupId : null),
    fields: encodeMessage({
      payload: bytes,
      key,
      eventId: wireEventId,
      ...(headers && { headers }),
      ...(timestamp !== undefined && { timestamp }),
      ...(ttlMs !== undefined && { ttlMs }),
    }),
    delivery,
    partition: options.partition,
    timeoutMs:
      options.timeoutMs === undefined
        ? settings.sendTimeoutMs
        : millis(topic, 'timeoutMs', options.timeoutMs, 1, MAX_DELAY_MS),
  };
}
