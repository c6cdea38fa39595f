import { MqInvalidMessageError } from './errors.js';

/**
 * Chooses the partition of a message that names none: an integer from 0 to `partitionCount - 1`. `key` is the key's
 * UTF-8 bytes, or `null` for a message without one. The result of a user's own must pass `checkPartition`.
 */
export type Partitioner = (key: Buffer | null, partitionCount: number, topic: string) => number;

/** The default partitioner; it also takes a key as text, and then hashes it without allocating. */
export type DefaultPartitioner = (key: Uint8Array | string | null, partitionCount: number, topic: string) => number;

const { imul } = Math;
const SEED = 0x9747b28c;
const MULTIPLIER = 0x5bd1e995;

/**
 * The 32-bit MurmurHash2 of Kafka's Java client, as a signed integer
 * (`org.apache.kafka.common.utils.Utils.murmur2`; the golden vectors are those of its `UtilsTest`).
 */
export function murmur2(data: Uint8Array): number {
  return hashBytes(data, data.length);
}

/** Kafka's way to make a hash non-negative: it clears the sign bit, so it is not the absolute value. */
export function toPositive(hash: number): number {
  return hash & 0x7fffffff;
}

/**
 * The partition that Kafka's Java client gives this key, text being its UTF-8 bytes: a topic of the same size keeps
 * its mapping. `count` is at least 1.
 */
export function keyPartition(key: Uint8Array | string, count: number): number {
  return toPositive(typeof key === 'string' ? hashText(key) : murmur2(key)) % count;
}

/**
 * A partitioner that maps keys as Kafka does and deals messages without a key to the partitions of their topic in
 * turn. The first one of a topic lies at `random()` (0 inclusive to 1 exclusive), so that many young producers do not
 * all begin at partition 0.
 */
export function createPartitioner(random: () => number = Math.random): DefaultPartitioner {
  const nextOf = new Map<string, number>();
  return (key, partitionCount, topic) => {
    if (key !== null) return keyPartition(key, partitionCount);
    const next = nextOf.get(topic) ?? Math.floor(random() * partitionCount);
    const partition = next % partitionCount;
    nextOf.set(topic, partition + 1);
    return partition;
  };
}

/**
 * Returns `value` when it is one of `count` partitions.
 * @throws MqInvalidMessageError `MQ_INVALID_PARTITION`
 */
export function checkPartition(value: unknown, count: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < count) return value;
  const shown = typeof value === 'string' ? JSON.stringify(value) : typeof value === 'number' ? value : typeof value;
  throw new MqInvalidMessageError(
    'MQ_INVALID_PARTITION',
    `partition must be an integer from 0 to ${count - 1}, got ${shown}`,
    { context: { partitionCount: count } },
  );
}

const encoder = new TextEncoder();
const scratch = new Uint8Array(1024);

function hashText(text: string): number {
  const { read, written } = encoder.encodeInto(text, scratch);
  return read === text.length ? hashBytes(scratch, written) : murmur2(encoder.encode(text));
}

function hashBytes(data: Uint8Array, length: number): number {
  let hash = SEED ^ length;
  const tail = length & ~3;
  for (let i = 0; i < tail; i += 4) {
    let word = data[i]! | (data[i + 1]! << 8) | (data[i + 2]! << 16) | (data[i + 3]! << 24);
    word = imul(word, MULTIPLIER);
    word = imul(word ^ (word >>> 24), MULTIPLIER);
    hash = imul(hash, MULTIPLIER) ^ word;
  }
  const left = length - tail;
  if (left > 2) hash ^= data[tail + 2]! << 16;
  if (left > 1) hash ^= data[tail + 1]! << 8;
  if (left > 0) hash = imul(hash ^ data[tail]!, MULTIPLIER);
  hash = imul(hash ^ (hash >>> 13), MULTIPLIER);
  return hash ^ (hash >>> 15);
}
