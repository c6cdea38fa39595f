import { MqRedisError } from '../core/errors.js';

/** An argument of a Redis command; bytes stay bytes. */
export type Arg = string | number | Buffer;

/** What Redis answers, in RESP2 shapes, strings as bytes. */
export type Reply = Buffer | number | null | Error | Reply[];

/** What is answered for one of several commands; an error does not hide its neighbours' answers. */
export type Outcome<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: Error };

/** One entry of a stream; `fields` is `null` when the entry was pending but is no longer in the stream. */
export interface RawEntry {
  readonly id: string;
  readonly fields: readonly Buffer[] | null;
}

function unexpected(what: string, reply: unknown): MqRedisError {
  return new MqRedisError('MQ_REDIS_UNEXPECTED_REPLY', `Redis answered something else than ${what}`, {
    context: { got: Buffer.isBuffer(reply) ? 'string' : Array.isArray(reply) ? 'array' : typeof reply },
  });
}

export function asText(reply: Reply | undefined): string {
  if (Buffer.isBuffer(reply)) return reply.toString('utf8');
  if (typeof reply === 'string') return reply;
  if (typeof reply === 'number') return String(reply);
  throw unexpected('a string', reply);
}

export function asTextOrNull(reply: Reply | undefined): string | null {
  return reply === null || reply === undefined ? null : asText(reply);
}

export function asNumber(reply: Reply | undefined): number {
  const value = typeof reply === 'number' ? reply : Buffer.isBuffer(reply) ? Number(reply.toString('latin1')) : NaN;
  if (Number.isNaN(value)) throw unexpected('a number', reply);
  return value;
}

export function asArray(reply: Reply | undefined): Reply[] {
  if (Array.isArray(reply)) return reply;
  if (reply === null || reply === undefined) return [];
  throw unexpected('an array', reply);
}

export function asTexts(reply: Reply | undefined): string[] {
  return asArray(reply).map(asText);
}

export function asBuffer(reply: Reply | undefined): Buffer {
  if (Buffer.isBuffer(reply)) return reply;
  throw unexpected('a string', reply);
}

export function asEntry(reply: Reply): RawEntry {
  const [id, fields] = asArray(reply);
  return { id: asText(id), fields: Array.isArray(fields) ? (fields as Buffer[]) : null };
}

export function asEntries(reply: Reply | undefined): RawEntry[] {
  return asArray(reply).map(asEntry);
}

/** The reply of XREADGROUP or XREAD, by stream key. */
export function asStreams(reply: Reply | undefined): Map<string, RawEntry[]> {
  const streams = new Map<string, RawEntry[]>();
  for (const stream of asArray(reply)) {
    const [key, entries] = asArray(stream);
    streams.set(asText(key), asEntries(entries));
  }
  return streams;
}
