import { MqError } from './errors.js';
import { eventIdFromWire } from './event-id.js';

/** A message as it is stored: the fields of one stream entry, before they become bytes. */
export interface StoredMessage {
  /** Text stands for its UTF-8 bytes. */
  readonly payload: Buffer | string;
  /** `null` when sent without a key; the empty string is a key. */
  readonly key: string | null;
  /** Wire form, see event-id.ts. */
  readonly eventId: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** When the event happened, in milliseconds; absent means the time of the entry's id. */
  readonly timestamp?: number;
  /** Milliseconds after the entry was stored at which it is no longer worth handling. */
  readonly ttlMs?: number;
}

export interface DecodedMessage extends Omit<StoredMessage, 'payload' | 'headers' | 'timestamp' | 'ttlMs'> {
  readonly payload: Buffer;
  readonly headers: Readonly<Record<string, string>>;
  readonly timestamp?: number | undefined;
  readonly ttlMs?: number | undefined;
}

/** More fields than this are not ours, and could not be passed through one script call. */
const MAX_FIELDS = 64;
const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze(Object.create(null) as Record<string, string>);

/** An entry that this library did not write, or that was damaged. It is dead-lettered as `malformed`. */
export class MalformedEntryError extends MqError {
  constructor(reason: string, cause?: unknown) {
    super('MQ_MALFORMED_ENTRY', `malformed stream entry: ${reason}`, { cause });
  }
}

/** Fields in a fixed order, so that neighbouring entries share their field names in Redis' memory. */
export function encodeMessage(message: StoredMessage): (string | Buffer)[] {
  const fields: (string | Buffer)[] = ['payload', message.payload];
  if (message.key !== null) fields.push('key', message.key);
  fields.push('eventId', message.eventId);
  if (message.headers !== undefined) fields.push('headers', JSON.stringify(message.headers));
  if (message.timestamp !== undefined) fields.push('timestamp', String(message.timestamp));
  if (message.ttlMs !== undefined) fields.push('ttl', String(message.ttlMs));
  return fields;
}

/** @throws MalformedEntryError naming what is wrong. */
export function decodeMessage(fields: readonly Buffer[]): DecodedMessage {
  if (fields.length > MAX_FIELDS * 2) throw new MalformedEntryError(`${fields.length / 2} fields`);
  let payload: Buffer | undefined;
  let key: string | null = null;
  let eventId: string | undefined;
  let headers = NO_HEADERS;
  let timestamp: number | undefined;
  let ttlMs: number | undefined;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!;
    const value = fields[i + 1]!;
    if (isText(name, 'payload')) payload = value;
    else if (isText(name, 'key')) key = value.toString('utf8');
    else if (isText(name, 'eventId')) eventId = value.toString('latin1');
    else if (isText(name, 'headers')) headers = decodeHeaders(value);
    else if (isText(name, 'timestamp')) timestamp = decodeMillis('timestamp', value);
    else if (isText(name, 'ttl')) ttlMs = decodeMillis('ttl', value);
  }
  if (payload === undefined) throw new MalformedEntryError('no payload field');
  if (eventId === undefined) throw new MalformedEntryError('no eventId field');
  try {
    eventId = eventIdFromWire(eventId);
  } catch (error) {
    throw new MalformedEntryError('bad eventId', error);
  }
  return { payload, key, eventId, headers, timestamp, ttlMs };
}

const COMMON_NAMES = ['payload', 'key', 'eventId', 'headers'].map((name) => ({ name, bytes: Buffer.from(name) }));

/**
 * The same fields, with one and the same buffer for each name that most entries have: thousands that wait then do not hold
 * a buffer for each of their names, which the garbage collector would copy.
 */
export function withSharedNames(fields: readonly Buffer[]): readonly Buffer[] {
  return fields.map((field, i) => (i % 2 === 0 ? sharedName(field) : field));
}

function sharedName(field: Buffer): Buffer {
  for (const { name, bytes } of COMMON_NAMES) if (isText(field, name)) return bytes;
  return field;
}

/** For ASCII text; a tenth of the time that making a string of the bytes takes. */
function isText(bytes: Buffer, text: string): boolean {
  if (bytes.length !== text.length) return false;
  for (let i = 0; i < text.length; i++) if (bytes[i] !== text.charCodeAt(i)) return false;
  return true;
}

/** The fields of an entry by their names, as they are. */
export function rawFieldsOf(fields: readonly Buffer[]): Readonly<Record<string, Buffer>> {
  const named = Object.create(null) as Record<string, Buffer>;
  for (let i = 0; i + 1 < fields.length; i += 2) named[fields[i]!.toString('utf8')] = fields[i + 1]!;
  return named;
}

function decodeHeaders(bytes: Buffer): Readonly<Record<string, string>> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new MalformedEntryError('headers are not JSON', error);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw new MalformedEntryError('headers are not an object');
  }
  // Without a prototype, so that a header named `__proto__` is a header and nothing else.
  const headers = Object.create(null) as Record<string, string>;
  for (const [name, value] of Object.entries(parsed)) {
    if (typeof value !== 'string') throw new MalformedEntryError('a header is not a string');
    headers[name] = value;
  }
  return headers;
}

function decodeMillis(field: string, bytes: Buffer): number {
  const text = bytes.toString('latin1');
  const value = Number(text);
  // `Number` alone takes blanks, signs, exponents and hexadecimal, too.
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new MalformedEntryError(`bad ${field}`);
  return value;
}
