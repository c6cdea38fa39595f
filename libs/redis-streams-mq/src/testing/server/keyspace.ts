import { Stream } from './stream.js';
import { wrongType, type Bytes } from './values.js';

export type SortedSet = Map<Bytes, number>;
type Value = Bytes | Map<Bytes, Bytes> | Set<Bytes> | ZSet | Stream;

/** A class of its own, since hashes are maps too. */
export class ZSet {
  readonly scores: SortedSet = new Map();

  /** By score, then by member. */
  inOrder(): [member: Bytes, score: number][] {
    return [...this.scores].sort(([a, x], [b, y]) => x - y || (a < b ? -1 : a > b ? 1 : 0));
  }
}

/** Keys, their values of Redis' types, and when they end. */
export class Keyspace {
  private readonly values = new Map<Bytes, Value>();
  private readonly ends = new Map<Bytes, number>();

  constructor(private readonly now: () => number) {}

  get keys(): readonly Bytes[] {
    return [...this.values.keys()].filter((key) => this.value(key) !== undefined);
  }

  has(key: Bytes): boolean {
    return this.value(key) !== undefined;
  }

  delete(key: Bytes): boolean {
    const existed = this.has(key);
    this.values.delete(key);
    this.ends.delete(key);
    return existed;
  }

  /** Bytes of the value, without what keeps them in order. */
  sizeOf(key: Bytes): number {
    const value = this.value(key);
    if (value === undefined || typeof value === 'string') return value?.length ?? 0;
    if (value instanceof Stream)
      return value.entries.reduce((sum, { id, fields }) => sum + textsSize([id, ...fields]), 0);
    return textsSize(value instanceof ZSet ? value.scores.keys() : [...value].flat());
  }

  type(key: Bytes): string {
    const value = this.value(key);
    if (value === undefined) return 'none';
    if (typeof value === 'string') return 'string';
    if (value instanceof Stream) return 'stream';
    if (value instanceof ZSet) return 'zset';
    return value instanceof Set ? 'set' : 'hash';
  }

  /** Milliseconds that are left; -1 without an end, -2 without the key. */
  ttl(key: Bytes): number {
    if (!this.has(key)) return -2;
    const end = this.ends.get(key);
    return end === undefined ? -1 : Math.max(0, end - this.now());
  }

  expireIn(key: Bytes, ms: number): boolean {
    if (!this.has(key)) return false;
    this.ends.set(key, this.now() + ms);
    return true;
  }

  persist(key: Bytes): boolean {
    return this.has(key) && this.ends.delete(key);
  }

  text(key: Bytes): Bytes | undefined {
    const value = this.value(key);
    if (value !== undefined && typeof value !== 'string') throw wrongType();
    return value;
  }

  setText(key: Bytes, value: Bytes): void {
    this.values.set(key, value);
  }

  hash(key: Bytes): Map<Bytes, Bytes> | undefined {
    const value = this.value(key);
    if (value !== undefined && !(value instanceof Map)) throw wrongType();
    return value;
  }

  set(key: Bytes): Set<Bytes> | undefined {
    const value = this.value(key);
    if (value !== undefined && !(value instanceof Set)) throw wrongType();
    return value;
  }

  sorted(key: Bytes): ZSet | undefined {
    const value = this.value(key);
    if (value !== undefined && !(value instanceof ZSet)) throw wrongType();
    return value;
  }

  stream(key: Bytes): Stream | undefined {
    const value = this.value(key);
    if (value !== undefined && !(value instanceof Stream)) throw wrongType();
    return value;
  }

  /** The value that is there, else a new one. */
  orNew<V extends Exclude<Value, string>>(key: Bytes, existing: V | undefined, make: () => V): V {
    if (existing !== undefined) return existing;
    const made = make();
    this.values.set(key, made);
    return made;
  }

  /** Redis has no empty hashes and sets. */
  dropIfEmpty(key: Bytes): void {
    const value = this.values.get(key);
    const size =
      value instanceof ZSet ? value.scores.size : value instanceof Map || value instanceof Set ? value.size : 1;
    if (size === 0) this.delete(key);
  }

  private value(key: Bytes): Value | undefined {
    const end = this.ends.get(key);
    if (end !== undefined && end <= this.now()) {
      this.values.delete(key);
      this.ends.delete(key);
    }
    return this.values.get(key);
  }
}

function textsSize(texts: Iterable<Bytes>): number {
  let size = 0;
  for (const text of texts) size += text.length;
  return size;
}
