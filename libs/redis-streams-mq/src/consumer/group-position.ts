import type { Connection } from '../redis/connection.js';
import { asArray, asText, asTextOrNull } from '../redis/reply.js';

/**
 * Where a group without a position begins on a topic. 'latest' is decided once per group, by the server's time, and
 * kept beside the topic's meta: all partitions agree, and one added later begins there too, which is its beginning.
 */
export async function startPosition(
  connection: Connection,
  metaKey: string,
  group: string,
  startFrom: 'earliest' | 'latest',
): Promise<string> {
  if (startFrom === 'earliest') return '0';
  const field = `start:${group}`;
  const decided = asTextOrNull(await connection.send('HGET', metaKey, field));
  if (decided !== null) return `${decided}-0`;
  const [seconds, micros] = asArray(await connection.send('TIME')).map(asText);
  const now = Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  await connection.send('HSETNX', metaKey, field, now);
  return `${asText(await connection.send('HGET', metaKey, field))}-0`;
}
