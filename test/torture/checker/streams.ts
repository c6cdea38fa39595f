import type { Cluster, Redis } from 'ioredis';
import type { Keys } from '../../../libs/redis-streams-mq/src/core/keys.js';
import { decodeMessage } from '../../../libs/redis-streams-mq/src/core/message.js';
import type { DeadLetterQueue } from '../../../libs/redis-streams-mq/src/dlq/dead-letter-queue.js';
import { asEntries, type Reply } from '../../../libs/redis-streams-mq/src/redis/reply.js';
import type { BuriedMessage, StoredMessage } from './evidence.js';
import type { MessageName } from '../programs/record.js';
import { GROUPS, PARTITIONS, TOPIC } from '../programs/setup.js';

const PAGE = 1_000;
const partitions = Array.from({ length: PARTITIONS }, (_, partition) => partition);

/** Everything that the topic's streams hold, partition by partition in the order of the stream. */
export async function storedIn(client: Redis | Cluster, keys: Keys): Promise<StoredMessage[]> {
  const stored: StoredMessage[] = [];
  for (const partition of partitions) {
    for (let after = '-', more = true; more;) {
      const reply = await client.xrangeBuffer(keys.stream(TOPIC, partition), after, '+', 'COUNT', PAGE);
      const entries = asEntries(reply as unknown as Reply);
      for (const { id, fields } of entries) {
        const { eventId, payload } = decodeMessage(fields!);
        stored.push({ ...nameIn(payload), partition, id, eventId });
        after = `(${id}`;
      }
      more = entries.length === PAGE;
    }
  }
  return stored;
}

export async function buriedIn(deadLetters: DeadLetterQueue): Promise<BuriedMessage[]> {
  const buried: BuriedMessage[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const page = await deadLetters.list(TOPIC, { limit: PAGE, ...(cursor !== '' && { cursor }) });
    for (const { partition, group, eventId, reason, attempts, payload } of page.items) {
      buried.push({ ...nameIn(payload!), partition, group, eventId: eventId!, reason, attempts });
    }
    cursor = page.cursor;
  }
  return buried;
}

/** What still waits to be handled or put back, in words; empty when everything is done. */
export async function undrained(client: Redis | Cluster, keys: Keys): Promise<string[]> {
  const left: string[] = [];
  for (const partition of partitions) {
    const stream = keys.stream(TOPIC, partition);
    const last = fieldOf(await client.xinfo('STREAM', stream), 'last-generated-id');
    const states = (await client.xinfo('GROUPS', stream)) as unknown[];
    for (const group of GROUPS) {
      const { retryStream, retry, retryItems, crash } = keys.groupPartition(TOPIC, partition, group);
      const state = states.find((one) => fieldOf(one, 'name') === group);
      const read = fieldOf(state, 'last-delivered-id');
      const parts = {
        unread: read === last ? 0 : `from ${String(read)} to ${String(last)}`,
        pending: fieldOf(state, 'pending'),
        'put back': await client.xlen(retryStream),
        'to be put back': await client.zcard(retry),
        'items to be put back': await client.hlen(retryItems),
        'crash marks': await client.hlen(crash),
      };
      for (const [part, count] of Object.entries(parts)) {
        if (count !== 0) left.push(`partition ${partition} of ${group} is not drained: ${part} ${String(count)}`);
      }
    }
  }
  return left;
}

/** Partitions that are still held, in words: none after everybody has left in order. */
export async function stillHeld(client: Redis | Cluster, keys: Keys): Promise<string[]> {
  const held: string[] = [];
  for (const partition of partitions) {
    for (const group of GROUPS) {
      const holder = await client.get(keys.groupPartition(TOPIC, partition, group).lease);
      if (holder !== null) held.push(`partition ${partition} of ${group} is still held by ${holder}`);
    }
  }
  return held;
}

/** The most consumers that a group knows on one partition, with those that are long gone. */
export async function mostConsumers(client: Redis | Cluster, keys: Keys): Promise<number> {
  let most = 0;
  for (const partition of partitions) {
    for (const group of GROUPS) {
      const known = (await client.xinfo('CONSUMERS', keys.stream(TOPIC, partition), group)) as unknown[];
      most = Math.max(most, known.length);
    }
  }
  return most;
}

function nameIn(payload: Buffer): MessageName {
  const { key, seq } = JSON.parse(payload.toString('utf8')) as MessageName;
  return { key, seq };
}

function fieldOf(flat: unknown, name: string): unknown {
  return Array.isArray(flat) ? flat[flat.indexOf(name) + 1] : undefined;
}
