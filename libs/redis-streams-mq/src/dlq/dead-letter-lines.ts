import { createHash } from 'node:crypto';
import { isUtf8 } from 'node:buffer';
import { StringDecoder } from 'node:string_decoder';
import { MqAdminError } from '../core/errors.js';
import { isStreamId } from '../core/stream-id.js';
import type { ImportedEntry } from '../redis/scripts/dlq-import.script.js';

/** A dead letter as a line of JSON; every field of its entry is there byte for byte. */
interface Line {
  readonly version: 1;
  readonly topic: string;
  readonly partition: number;
  /** Where it was first dead-lettered, through any number of exports and imports. */
  readonly id: string;
  readonly digest: string;
  /** Names and values; what is no text, and what is packed, in base64. */
  readonly entry: readonly (readonly [Bytes, Bytes])[];
}

type Bytes = string | { readonly base64: string };

export interface ParsedLine extends ImportedEntry {
  readonly partition: number;
}

const IMPORTED_FROM = 'importedFrom';
/** As many as XADD takes from a script. */
const MAX_VALUES = 2_000;
const PACKED: ReadonlySet<string> = new Set(['fields', 'history']);

export function digestOf(fields: readonly Buffer[]): string {
  const hash = createHash('sha1');
  for (const [i, field] of fields.entries()) {
    if (i > 0) hash.update('\0');
    hash.update(field);
  }
  return hash.digest('hex');
}

/** With its newline. */
export function toLine(topic: string, partition: number, id: string, fields: readonly Buffer[]): string {
  const entry: (readonly [Bytes, Bytes])[] = [];
  const own: Buffer[] = [];
  let first = { id, digest: '' };
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!.toString('latin1');
    const mark = /^(\d+-\d+):([0-9a-f]{40})$/.exec(name === IMPORTED_FROM ? fields[i + 1]!.toString('latin1') : '');
    if (mark !== null) {
      first = { id: mark[1]!, digest: mark[2]! };
      continue;
    }
    own.push(fields[i]!, fields[i + 1]!);
    entry.push([toBytes(fields[i]!, false), toBytes(fields[i + 1]!, PACKED.has(name))]);
  }
  const line: Line = { version: 1, topic, partition, id: first.id, digest: first.digest || digestOf(own), entry };
  // Some tools end a line at these two characters.
  const text = JSON.stringify(line).replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029');
  return `${text}\n`;
}

/** @throws MqAdminError `MQ_IMPORT_MALFORMED` */
export function parseLine(text: string, number: number, topic: string, partitionCount: number): ParsedLine {
  const refuse = (reason: string): never => {
    const context = { topic, line: number };
    throw new MqAdminError('MQ_IMPORT_MALFORMED', `line ${number} is no dead letter of ${topic}: ${reason}`, {
      context,
    });
  };
  let line: Partial<Line> | null;
  try {
    line = JSON.parse(text) as Partial<Line> | null;
  } catch {
    return refuse('it is not JSON');
  }
  if (typeof line !== 'object' || line === null) return refuse('it is no object');
  if (line.version !== 1) return refuse('its version is not 1');
  if (line.topic !== topic) return refuse('it is of another topic');
  const { partition, id, digest, entry } = line;
  if (!Number.isInteger(partition) || partition! < 0) return refuse('partition is no number');
  if (partition! >= partitionCount)
    return refuse(`the topic has ${partitionCount} partitions, and it is of ${partition}`);
  if (!isStreamId(id)) return refuse('id is no stream id');
  if (typeof digest !== 'string' || !/^[0-9a-f]{40}$/.test(digest)) return refuse('digest is none');
  if (!Array.isArray(entry) || entry.length === 0 || entry.length * 2 > MAX_VALUES)
    return refuse('entry has no fields');
  const fields = (entry as unknown[]).flatMap((pair) =>
    Array.isArray(pair) && pair.length === 2 ? [fromBytes(pair[0]), fromBytes(pair[1])] : [null],
  );
  if (!fields.every((field) => field !== null)) return refuse('entry is not made of names and values');
  if (digestOf(fields) !== digest) return refuse('its fields are not what was exported');
  return { partition: partition!, id, digest, fields };
}

/** The lines of what was given: of a stream of chunks its lines, of anything else each item as one. */
export async function* linesOf(
  source: Iterable<string> | AsyncIterable<string | Uint8Array>,
): AsyncGenerator<string, void, undefined> {
  if (typeof (source as { pipe?: unknown }).pipe !== 'function') {
    for await (const item of source) yield typeof item === 'string' ? item : Buffer.from(item).toString('utf8');
    return;
  }
  const decoder = new StringDecoder('utf8');
  let rest = '';
  for await (const chunk of source) {
    const lines = (rest + (typeof chunk === 'string' ? chunk : decoder.write(Buffer.from(chunk)))).split('\n');
    rest = lines.pop()!;
    yield* lines;
  }
  yield rest + decoder.end();
}

function toBytes(bytes: Buffer, isPacked: boolean): Bytes {
  return !isPacked && isUtf8(bytes) ? bytes.toString('utf8') : { base64: bytes.toString('base64') };
}

/** `null` for what is neither. */
function fromBytes(value: unknown): Buffer | null {
  if (typeof value === 'string') return Buffer.from(value, 'utf8');
  const base64: unknown =
    typeof value === 'object' && value !== null ? (value as { base64?: unknown }).base64 : undefined;
  if (typeof base64 !== 'string') return null;
  const bytes = Buffer.from(base64, 'base64');
  // Buffer skips what is no base64.
  return bytes.toString('base64') === base64 ? bytes : null;
}
