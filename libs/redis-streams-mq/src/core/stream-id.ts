const STREAM_ID = /^(?:0|[1-9]\d{0,19})-(?:0|[1-9]\d{0,19})$/;
const MAX_PART = 0xffff_ffff_ffff_ffffn;

/**
 * Whether `value` is a stream id as Redis writes it: two unsigned 64-bit decimals without leading zeros, `ms-seq`. The
 * other functions of this file take only such ids.
 */
export function isStreamId(value: unknown): value is string {
  if (typeof value !== 'string' || !STREAM_ID.test(value)) return false;
  if (value.length < 21) return true;
  const { ms, seq } = parse(value);
  return ms <= MAX_PART && seq <= MAX_PART;
}

/** Negative, 0 or positive as entry `a` stands before, at or after entry `b` in a stream. */
export function compareStreamIds(a: string, b: string): number {
  if (a === b) return 0;
  const dashA = a.indexOf('-');
  const dashB = b.indexOf('-');
  if (dashA !== dashB) return dashA - dashB;
  if (a.length === b.length) return a < b ? -1 : 1;
  // As many digits in the first part, but not in the second: the shorter id is the smaller only if the first parts match.
  const msA = a.slice(0, dashA);
  const msB = b.slice(0, dashB);
  if (msA === msB) return a.length - b.length;
  return msA < msB ? -1 : 1;
}

/** When Redis stored the entry, in milliseconds since the epoch by the server's clock; exact below 2^53. */
export function streamIdTime(id: string): number {
  return Number.parseInt(id, 10);
}

/** The greatest id before `id`. @throws RangeError for `0-0` */
export function previousStreamId(id: string): string {
  const { ms, seq } = parse(id);
  if (seq > 0n) return `${ms}-${seq - 1n}`;
  if (ms > 0n) return `${ms - 1n}-${MAX_PART}`;
  throw new RangeError('there is no stream id before 0-0');
}

/** The smallest id after `id`. @throws RangeError for the greatest id there is */
export function nextStreamId(id: string): string {
  const { ms, seq } = parse(id);
  if (seq < MAX_PART) return `${ms}-${seq + 1n}`;
  if (ms < MAX_PART) return `${ms + 1n}-0`;
  throw new RangeError(`there is no stream id after ${id}`);
}

function parse(id: string): { readonly ms: bigint; readonly seq: bigint } {
  const dash = id.indexOf('-');
  return { ms: BigInt(id.slice(0, dash)), seq: BigInt(id.slice(dash + 1)) };
}
