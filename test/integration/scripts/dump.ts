import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { asArray, asText, asTexts, type Reply } from '../../../libs/redis-streams-mq/src/redis/reply.js';

export type Dump = Record<string, unknown>;

/**
 * Everything under a prefix: each key's type and content, of a stream also its last id, its groups, their consumers and
 * pending entries with their delivery counts. Left out is what passes by itself: remaining lifetimes and idle times, and
 * the scores of the sorted sets, and the values of the hashes, named in `timesIn`.
 */
export async function dump(redis: Connection, prefix: string, timesIn: readonly string[] = []): Promise<Dump> {
  const keys = await keysUnder(redis, prefix);
  const contents = await Promise.all(keys.map((key) => contentOf(redis, key, !timesIn.includes(key))));
  return Object.fromEntries(keys.map((key, i) => [key, contents[i]]));
}

async function keysUnder(redis: Connection, prefix: string): Promise<string[]> {
  const keys = new Set<string>();
  let cursor = '0';
  do {
    const [next, page] = asArray(await redis.send('SCAN', cursor, 'MATCH', `${prefix}:*`, 'COUNT', 1_000));
    for (const key of asTexts(page)) keys.add(key);
    cursor = asText(next);
  } while (cursor !== '0');
  return [...keys].sort();
}

async function contentOf(redis: Connection, key: string, withScores: boolean): Promise<unknown> {
  const read = async (...command: [string, ...(string | number)[]]): Promise<unknown> =>
    readable(await redis.send(...command));
  const type = asText(await redis.send('TYPE', key));
  switch (type) {
    case 'string':
      return { type, value: await read('GET', key) };
    case 'list':
      return { type, items: await read('LRANGE', key, 0, -1) };
    case 'set':
      return { type, members: ((await read('SMEMBERS', key)) as string[]).sort() };
    case 'zset':
      return { type, members: await read('ZRANGE', key, 0, -1, ...(withScores ? ['WITHSCORES'] : [])) };
    case 'hash':
      return { type, fields: withScores ? fieldsOf(await read('HGETALL', key)) : await read('HKEYS', key) };
    case 'stream':
      return { type, entries: await read('XRANGE', key, '-', '+'), ...(await streamState(read, key)) };
    default:
      throw new Error(`${key} is of the unknown type ${type}`);
  }
}

async function streamState(read: (...command: [string, ...string[]]) => Promise<unknown>, key: string): Promise<Dump> {
  const info = fieldsOf(await read('XINFO', 'STREAM', key));
  const groups = ((await read('XINFO', 'GROUPS', key)) as unknown[]).map(fieldsOf);
  return {
    lastId: info['last-generated-id'],
    groups: await Promise.all(
      groups.map(async (group) => {
        const name = String(group.name);
        const consumers = ((await read('XINFO', 'CONSUMERS', key, name)) as unknown[]).map(fieldsOf);
        const pending = (await read('XPENDING', key, name, '-', '+', '10000')) as unknown[][];
        return {
          name,
          lastDelivered: group['last-delivered-id'],
          consumers: consumers.map((consumer) => consumer.name),
          pending: pending.map(([id, consumer, , deliveries]) => ({ id, consumer, deliveries })),
        };
      }),
    ),
  };
}

/** Names and values in turn, in order of the names. */
function fieldsOf(flat: unknown): Dump {
  const items = flat as unknown[];
  const pairs = Array.from({ length: items.length / 2 }, (_, i) => [String(items[2 * i]), items[2 * i + 1]] as const);
  return Object.fromEntries(pairs.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** A reply with its bytes as text, one character a byte. */
function readable(reply: Reply): unknown {
  if (Buffer.isBuffer(reply)) return reply.toString('latin1');
  return Array.isArray(reply) ? reply.map(readable) : reply;
}
