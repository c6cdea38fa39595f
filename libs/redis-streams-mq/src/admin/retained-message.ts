import { thrownText } from '../core/errors.js';
import { decodeMessage } from '../core/message.js';
import type { Serializer } from '../core/serializer.js';
import { streamIdTime } from '../core/stream-id.js';

/** A message as it lies in its partition. */
export interface RetainedMessage {
  readonly topic: string;
  readonly partition: number;
  readonly id: string;
  /** When Redis stored it, in milliseconds by the server's clock. */
  readonly publishedAt: number;
  /** When the event happened: the sender's time, else `publishedAt`. */
  readonly timestamp: number;
  readonly key: string | null;
  /** `null` for an entry that is not a message of this library, or is damaged. */
  readonly eventId: string | null;
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds after `publishedAt` at which it is no longer worth handling; `null` for ever. */
  readonly ttlMs: number | null;
  /** What the module's serializer makes of the bytes; `undefined` when it cannot. */
  readonly payload: unknown;
  /** As they were sent; `null` when there are none. */
  readonly payloadBytes: Buffer | null;
  /** Why something above is missing; `null` when all is there. */
  readonly problem: string | null;
  /** Fields and values of the entry, byte for byte. */
  readonly fields: readonly Buffer[];
}

/** Never throws: one damaged entry must not hide those around it. */
export function toRetainedMessage(
  place: { readonly topic: string; readonly partition: number; readonly id: string },
  fields: readonly Buffer[],
  serializer: Serializer,
): RetainedMessage {
  const publishedAt = streamIdTime(place.id);
  const { topic, partition, id } = place;
  const bare = { topic, partition, id, publishedAt, fields };
  try {
    const {
      payload: payloadBytes,
      key,
      eventId,
      headers,
      timestamp = publishedAt,
      ttlMs = null,
    } = decodeMessage(fields);
    const decoded = { ...bare, timestamp, key, eventId, headers, ttlMs, payloadBytes };
    try {
      return { ...decoded, payload: serializer.deserialize(payloadBytes), problem: null };
    } catch (error) {
      return { ...decoded, payload: undefined, problem: `the payload cannot be decoded: ${thrownText(error)}` };
    }
  } catch (error) {
    return {
      ...bare,
      timestamp: publishedAt,
      key: null,
      eventId: null,
      headers: {},
      ttlMs: null,
      payload: undefined,
      payloadBytes: null,
      problem: thrownText(error),
    };
  }
}
