import type { DeadReason } from '../core/events.js';
import { eventIdFromWire } from '../core/event-id.js';
import { decodeMessage, type DecodedMessage } from '../core/message.js';
import type { RawDeadLetter } from '../redis/scripts/dlq.script.js';

/** A message that a group gave up on, with its cause. */
export interface DeadLetter {
  /** Id within the topic's DLQ: `<partition>/<stream id>`. */
  readonly id: string;
  readonly topic: string;
  readonly partition: number;
  readonly group: string;
  readonly originalMessageId: string;
  /** `null` when the entry was too damaged to have one. */
  readonly eventId: string | null;
  readonly key: string | null;
  /** By the server's clock, in milliseconds. */
  readonly failedAt: number;
  /** Handler calls that were made. */
  readonly attempts: number;
  readonly reason: DeadReason;
  readonly error: { readonly name: string; readonly message: string; readonly stack: string | null } | null;
  /** The payload's bytes as they were sent; `null` for an entry that had none. */
  readonly payload: Buffer | null;
  readonly headers: Readonly<Record<string, string>>;
  /** Fields and values of the original entry, byte for byte. */
  readonly fields: readonly Buffer[];
}

export function toDeadLetter(topic: string, partition: number, raw: RawDeadLetter): DeadLetter {
  const { metadata } = raw;
  const errorName = metadata.get('errorName');
  const message = raw.fields === null ? null : decodeOrNull(raw.fields);
  const wireEventId = metadata.get('eventId');
  return {
    id: `${partition}/${raw.id}`,
    topic,
    partition,
    group: metadata.get('group') ?? '',
    originalMessageId: metadata.get('originalMessageId') ?? '',
    eventId: message?.eventId ?? (wireEventId === undefined ? null : eventIdOrNull(wireEventId)),
    key: metadata.get('key') ?? null,
    failedAt: Number(metadata.get('failedAt') ?? 0),
    attempts: Number(metadata.get('attempts') ?? 0),
    reason: (metadata.get('reason') ?? 'malformed') as DeadReason,
    error:
      errorName === undefined
        ? null
        : { name: errorName, message: metadata.get('errorMessage') ?? '', stack: metadata.get('errorStack') ?? null },
    payload: message?.payload ?? null,
    headers: message?.headers ?? {},
    fields: raw.fields ?? [],
  };
}

function decodeOrNull(fields: readonly Buffer[]): DecodedMessage | null {
  try {
    return decodeMessage(fields);
  } catch {
    return null;
  }
}

/** `null` for what this library never writes: one foreign entry must not hide the letters around it. */
function eventIdOrNull(wire: string): string | null {
  try {
    return eventIdFromWire(wire);
  } catch {
    return null;
  }
}
