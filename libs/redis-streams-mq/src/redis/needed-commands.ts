import type { Command } from './connection.js';

/** What an application does with the queue; one that consumes also sends: retries, dead letters, replays. */
export type Use = 'produce' | 'consume';

export interface NeededCommand {
  /** As ACL rules write it: `xadd`, `xgroup|create`. */
  readonly name: string;
  /** Who needs it. `optional`: something works less well without it, and nothing stops. */
  readonly by: Use | 'optional';
  /** Arguments with which it changes nothing on a key that holds a string; none where there is no such way. */
  readonly probe?: readonly (string | number)[];
}

/** Stands for the probed key. */
const key = '<key>';

/**
 * Every command the queue sends itself or calls inside its scripts, where the same rights are asked for. The ACL lines
 * of docs/redis.md are made of this list.
 */
export const neededCommands: readonly NeededCommand[] = [
  { name: 'eval', by: 'produce', probe: ['return 0', 1, key] },
  { name: 'evalsha', by: 'produce', probe: ['0'.repeat(40), 1, key] },
  { name: 'time', by: 'produce', probe: [] },
  { name: 'type', by: 'produce', probe: [key] },
  { name: 'exists', by: 'produce', probe: [key] },
  { name: 'get', by: 'produce', probe: [key] },
  { name: 'set', by: 'produce', probe: [key, '', 'XX', 'PX', 1_000] },
  { name: 'incr', by: 'produce', probe: [key] },
  { name: 'hset', by: 'produce', probe: [key, 'f', 'v'] },
  { name: 'hmget', by: 'produce', probe: [key, 'f'] },
  { name: 'hexists', by: 'produce', probe: [key, 'f'] },
  { name: 'sadd', by: 'produce', probe: [key, 'm'] },
  { name: 'srem', by: 'produce', probe: [key, 'm'] },
  { name: 'scard', by: 'produce', probe: [key] },
  { name: 'srandmember', by: 'produce', probe: [key] },
  { name: 'zadd', by: 'produce', probe: [key, 1, 'm'] },
  { name: 'zcard', by: 'produce', probe: [key] },
  { name: 'zrange', by: 'produce', probe: [key, 0, 0] },
  { name: 'xadd', by: 'produce', probe: [key, 'NOMKSTREAM', '*', 'f', 'v'] },
  { name: 'xrange', by: 'produce', probe: [key, '-', '+', 'COUNT', 1] },
  { name: 'xrevrange', by: 'produce', probe: [key, '+', '-', 'COUNT', 1] },
  { name: 'xgroup|create', by: 'produce', probe: [key, 'g', '$'] },
  { name: 'xgroup|destroy', by: 'produce', probe: [key, 'g'] },
  { name: 'pexpire', by: 'consume', probe: [key, 1_000] },
  { name: 'pttl', by: 'consume', probe: [key] },
  { name: 'hget', by: 'consume', probe: [key, 'f'] },
  { name: 'hdel', by: 'consume', probe: [key, 'f'] },
  { name: 'hgetall', by: 'consume', probe: [key] },
  { name: 'hlen', by: 'consume', probe: [key] },
  { name: 'zrangebyscore', by: 'consume', probe: [key, '-inf', '+inf', 'LIMIT', 0, 1] },
  { name: 'zrem', by: 'consume', probe: [key, 'm'] },
  { name: 'xlen', by: 'consume', probe: [key] },
  { name: 'xdel', by: 'consume', probe: [key, '1-0'] },
  { name: 'xtrim', by: 'consume', probe: [key, 'MAXLEN', 1] },
  { name: 'xack', by: 'consume', probe: [key, 'g', '1-0'] },
  { name: 'xclaim', by: 'consume', probe: [key, 'g', 'c', 0, '1-0', 'JUSTID'] },
  { name: 'xpending', by: 'consume', probe: [key, 'g'] },
  { name: 'xreadgroup', by: 'consume', probe: ['GROUP', 'g', 'c', 'COUNT', 1, 'STREAMS', key, '>'] },
  { name: 'xinfo|stream', by: 'consume', probe: [key] },
  { name: 'xinfo|groups', by: 'consume', probe: [key] },
  { name: 'xinfo|consumers', by: 'consume', probe: [key, 'g'] },
  { name: 'xgroup|delconsumer', by: 'consume', probe: [key, 'g', 'c'] },
  { name: 'del', by: 'consume', probe: [key] },
  { name: 'unlink', by: 'consume', probe: [key] },
  // Listing topics; the memory of streams; ownership that changes hands at once; `waitReplicas`; the look at the server's settings.
  { name: 'sscan', by: 'optional', probe: [key, 0, 'MATCH', 'm*', 'COUNT', 1] },
  { name: 'memory|usage', by: 'optional', probe: [key, 'SAMPLES', 5] },
  { name: 'publish', by: 'optional', probe: [key, 'm'] },
  { name: 'subscribe', by: 'optional' },
  { name: 'wait', by: 'optional', probe: [0, 1] },
  { name: 'info', by: 'optional', probe: ['memory'] },
];

export function needed(use: Use): NeededCommand[] {
  return neededCommands.filter(({ by }) => by === 'produce' || by === use);
}

/** The command as it is sent, on that key. */
export function probeOf({ name, probe = [] }: NeededCommand, probedKey: string): Command {
  const [command, ...subcommand] = name.toUpperCase().split('|');
  return [command!, ...subcommand, ...probe.map((arg) => (arg === key ? probedKey : arg))];
}
