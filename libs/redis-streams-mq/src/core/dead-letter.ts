import type { ValidationIssue } from './errors.js';
import type { DeadReason } from './events.js';

/** What made a message a dead letter. */
export interface DeadLetterError {
  readonly name: string;
  readonly message: string;
  readonly stack: string | null;
  /** With the reason `validation`: what is wrong with which field, as far as pipe or schema said so. */
  readonly issues?: readonly ValidationIssue[];
}

/** One failed handler call of a message. */
export interface FailedAttempt {
  /** Which call it was; the first is 1. */
  readonly attempt: number;
  /** By the server's clock, in milliseconds. */
  readonly failedAt: number;
  /** `Name: message`, cut; empty when nothing was thrown. */
  readonly error: string;
}

/** An earlier death of a message that was replayed since. */
export interface EarlierDeath {
  readonly failedAt: number;
  readonly attempts: number;
  readonly reason: DeadReason;
  readonly error: string;
  readonly replayedAt: number;
}

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
  readonly error: DeadLetterError | null;
  /** The handler calls since the message was sent or last replayed, oldest first; the last ten and the final one. */
  readonly failures: readonly FailedAttempt[];
  /** How often it died before and was replayed. */
  readonly deathCount: number;
  /** The last ten of these deaths, oldest first. */
  readonly deaths: readonly EarlierDeath[];
  /** The payload's bytes as they were sent; `null` for an entry that had none. */
  readonly payload: Buffer | null;
  readonly headers: Readonly<Record<string, string>>;
  /** Fields and values of the original entry, byte for byte. */
  readonly fields: readonly Buffer[];
}

/** What a replayed message has in place of what it had; everything else stays, the key and the event id always. */
export interface DeadLetterEdit {
  /** Goes through the module's serializer, as in `send()`. */
  readonly payload?: unknown;
  /** The payload's bytes as they are, past the serializer. Not together with `payload`. */
  readonly payloadBytes?: Uint8Array;
  /** All headers it is to have. */
  readonly headers?: Readonly<Record<string, string>>;
}
