import { matcher, pageOf } from './scan.js';
import { ZSet, type Keyspace } from './keyspace.js';
import { integer, OK, ReplyError, Status, syntaxError, type Answer, type Bytes } from './values.js';

/** What a command is given: the data, its arguments, and the time. */
export interface CommandContext {
  readonly data: Keyspace;
  readonly now: () => number;
}

export type CommandHandler = (context: CommandContext, args: readonly Bytes[]) => Answer;

/** Commands on strings, hashes, sets and sorted sets. */
export const keyCommands: Readonly<Record<string, CommandHandler>> = {
  DEL: ({ data }, keys) => keys.filter((key) => data.delete(key)).length,
  UNLINK: ({ data }, keys) => keys.filter((key) => data.delete(key)).length,
  EXISTS: ({ data }, keys) => keys.filter((key) => data.has(key)).length,
  TYPE: ({ data }, [key = '']) => new Status(data.type(key)),
  PEXPIRE: ({ data }, [key = '', ms]) => Number(data.expireIn(key, integer(ms))),
  EXPIRE: ({ data }, [key = '', seconds]) => Number(data.expireIn(key, integer(seconds) * 1_000)),
  PERSIST: ({ data }, [key = '']) => Number(data.persist(key)),
  PTTL: ({ data }, [key = '']) => data.ttl(key),
  TTL: ({ data }, [key = '']) => Math.ceil(data.ttl(key) / 1_000),

  GET: ({ data }, [key = '']) => data.text(key) ?? null,
  SET: set,
  INCR: ({ data }, [key = '']) => increase(data, key, 1),
  INCRBY: ({ data }, [key = '', by]) => increase(data, key, integer(by)),
  DECR: ({ data }, [key = '']) => increase(data, key, -1),

  HSET: hset,
  HSETNX: ({ data }, [key = '', field = '', value = '']) => {
    const hash = data.orNew(key, data.hash(key), () => new Map<Bytes, Bytes>());
    if (hash.has(field)) return 0;
    hash.set(field, value);
    return 1;
  },
  HGET: ({ data }, [key = '', field = '']) => data.hash(key)?.get(field) ?? null,
  HMGET: ({ data }, [key = '', ...fields]) => {
    const hash = data.hash(key);
    return fields.map((field) => hash?.get(field) ?? null);
  },
  HGETALL: ({ data }, [key = '']) => [...(data.hash(key) ?? [])].flat(),
  HKEYS: ({ data }, [key = '']) => [...(data.hash(key)?.keys() ?? [])],
  HVALS: ({ data }, [key = '']) => [...(data.hash(key)?.values() ?? [])],
  HLEN: ({ data }, [key = '']) => data.hash(key)?.size ?? 0,
  HEXISTS: ({ data }, [key = '', field = '']) => Number(data.hash(key)?.has(field) ?? false),
  HDEL: ({ data }, [key = '', ...fields]) => {
    const hash = data.hash(key);
    const deleted = fields.filter((field) => hash?.delete(field)).length;
    data.dropIfEmpty(key);
    return deleted;
  },
  HINCRBY: ({ data }, [key = '', field = '', by]) => {
    const hash = data.orNew(key, data.hash(key), () => new Map<Bytes, Bytes>());
    const sum = integer(hash.get(field) ?? '0') + integer(by);
    hash.set(field, String(sum));
    return sum;
  },

  SADD: ({ data }, [key = '', ...members]) => {
    const set = data.orNew(key, data.set(key), () => new Set<Bytes>());
    return members.filter((member) => !set.has(member) && set.add(member)).length;
  },
  SREM: ({ data }, [key = '', ...members]) => {
    const set = data.set(key);
    const removed = members.filter((member) => set?.delete(member)).length;
    data.dropIfEmpty(key);
    return removed;
  },
  SCARD: ({ data }, [key = '']) => data.set(key)?.size ?? 0,
  SMEMBERS: ({ data }, [key = '']) => [...(data.set(key) ?? [])],
  SISMEMBER: ({ data }, [key = '', member = '']) => Number(data.set(key)?.has(member) ?? false),
  SSCAN: ({ data }, [key = '', ...rest]) => scanned(data.set(key) ?? [], rest),
  SCAN: ({ data }, args) => scanned(data.keys, args),
  SRANDMEMBER: ({ data }, [key = '']) => [...(data.set(key) ?? [])][0] ?? null,

  ZADD: zadd,
  ZREM: ({ data }, [key = '', ...members]) => {
    const sorted = data.sorted(key);
    const removed = members.filter((member) => sorted?.scores.delete(member)).length;
    data.dropIfEmpty(key);
    return removed;
  },
  ZCARD: ({ data }, [key = '']) => data.sorted(key)?.scores.size ?? 0,
  ZSCORE: ({ data }, [key = '', member = '']) => {
    const score = data.sorted(key)?.scores.get(member);
    return score === undefined ? null : String(score);
  },
  ZCOUNT: ({ data }, [key = '', min = '', max = '']) => byScore(data, key, min, max).length,
  ZRANGE: zrange,
  ZRANGEBYSCORE: ({ data }, [key = '', min = '', max = '', ...options]) => {
    const { withScores, offset, count } = rangeOptions(options);
    return scored(byScore(data, key, min, max).slice(offset, offset + count), withScores);
  },
  ZREMRANGEBYSCORE: ({ data }, [key = '', min = '', max = '']) => {
    const found = byScore(data, key, min, max);
    for (const [member] of found) data.sorted(key)?.scores.delete(member);
    data.dropIfEmpty(key);
    return found.length;
  },
};

/** Of `cursor [MATCH pattern] [COUNT count]`. */
function scanned(all: Iterable<Bytes>, [cursor, ...options]: readonly Bytes[]): Answer {
  let isMeant: (text: Bytes) => boolean = () => true;
  let count = 10;
  for (let i = 0; i < options.length; i += 2) {
    const value = options[i + 1];
    const name = options[i]!.toUpperCase();
    if (value === undefined || !['MATCH', 'COUNT'].includes(name)) throw syntaxError();
    if (name === 'MATCH') isMeant = matcher(value);
    else count = integer(value);
  }
  if (count < 1) throw syntaxError();
  const page = pageOf(all, integer(cursor), count);
  return [String(page.next), page.items.filter(isMeant)];
}

function set({ data }: CommandContext, [key = '', value = '', ...options]: readonly Bytes[]): Answer {
  let endsIn: number | undefined;
  let keepsEnd = false;
  for (let i = 0; i < options.length; i++) {
    switch (options[i]!.toUpperCase()) {
      case 'NX':
        if (data.has(key)) return null;
        break;
      case 'XX':
        if (!data.has(key)) return null;
        break;
      case 'PX':
        endsIn = integer(options[++i]);
        break;
      case 'EX':
        endsIn = integer(options[++i]) * 1_000;
        break;
      case 'KEEPTTL':
        keepsEnd = true;
        break;
      default:
        throw syntaxError();
    }
  }
  if (!keepsEnd) data.delete(key);
  data.setText(key, value);
  if (endsIn !== undefined) data.expireIn(key, endsIn);
  return OK;
}

function increase(data: Keyspace, key: Bytes, by: number): number {
  const sum = integer(data.text(key) ?? '0') + by;
  data.setText(key, String(sum));
  return sum;
}

function hset({ data }: CommandContext, [key = '', ...pairs]: readonly Bytes[]): Answer {
  const existing = data.hash(key);
  if (pairs.length === 0 || pairs.length % 2 !== 0) {
    throw new ReplyError("ERR wrong number of arguments for 'hset' command");
  }
  const hash = data.orNew(key, existing, () => new Map<Bytes, Bytes>());
  const before = hash.size;
  for (let i = 0; i < pairs.length; i += 2) hash.set(pairs[i]!, pairs[i + 1]!);
  return hash.size - before;
}

function zadd({ data }: CommandContext, [key = '', ...rest]: readonly Bytes[]): Answer {
  const existing = data.sorted(key);
  const flags = new Set<string>();
  let at = 0;
  while (/^(NX|XX|GT|LT|CH|INCR)$/i.test(rest[at] ?? '')) flags.add(rest[at++]!.toUpperCase());
  const sorted = existing ?? (flags.has('XX') ? new ZSet() : data.orNew(key, existing, () => new ZSet()));
  let added = 0;
  let changed = 0;
  let last: number | undefined;
  for (; at < rest.length; at += 2) {
    const member = rest[at + 1]!;
    const before = sorted.scores.get(member);
    const score = scoreOf(rest[at]!) + (flags.has('INCR') ? (before ?? 0) : 0);
    if (before === undefined ? flags.has('XX') : flags.has('NX')) continue;
    last = score;
    if (before !== undefined && ((flags.has('GT') && score <= before) || (flags.has('LT') && score >= before)))
      continue;
    sorted.scores.set(member, score);
    if (before === undefined) added++;
    else if (before !== score) changed++;
  }
  data.dropIfEmpty(key);
  if (flags.has('INCR')) return last === undefined ? null : String(last);
  return flags.has('CH') ? added + changed : added;
}

function zrange({ data }: CommandContext, [key = '', start = '', stop = '', ...options]: readonly Bytes[]): Answer {
  const { withScores, isByScore, isReversed, offset, count } = rangeOptions(options);
  if (isByScore) {
    const [min, max] = isReversed ? [stop, start] : [start, stop];
    const found = byScore(data, key, min, max);
    if (isReversed) found.reverse();
    return scored(found.slice(offset, offset + count), withScores);
  }
  const all = data.sorted(key)?.inOrder() ?? [];
  if (isReversed) all.reverse();
  const from = integer(start) < 0 ? Math.max(0, all.length + integer(start)) : integer(start);
  const to = integer(stop) < 0 ? all.length + integer(stop) : integer(stop);
  return scored(all.slice(from, to + 1), withScores);
}

function rangeOptions(options: readonly Bytes[]): {
  withScores: boolean;
  isByScore: boolean;
  isReversed: boolean;
  offset: number;
  count: number;
} {
  const names = options.map((option) => option.toUpperCase());
  const limit = names.indexOf('LIMIT');
  const count = limit < 0 ? -1 : integer(options[limit + 2]);
  return {
    withScores: names.includes('WITHSCORES'),
    isByScore: names.includes('BYSCORE'),
    isReversed: names.includes('REV'),
    offset: limit < 0 ? 0 : integer(options[limit + 1]),
    count: count < 0 ? Infinity : count,
  };
}

function scored(found: readonly [Bytes, number][], withScores: boolean): Answer {
  return found.flatMap(([member, score]) => (withScores ? [member, String(score)] : [member]));
}

function byScore(data: Keyspace, key: Bytes, min: Bytes, max: Bytes): [Bytes, number][] {
  const sorted = data.sorted(key);
  const isAbove = bound(
    min,
    (score, limit) => score >= limit,
    (score, limit) => score > limit,
  );
  const isBelow = bound(
    max,
    (score, limit) => score <= limit,
    (score, limit) => score < limit,
  );
  return (sorted?.inOrder() ?? []).filter(([, score]) => isAbove(score) && isBelow(score));
}

type Compare = (score: number, limit: number) => boolean;

function bound(text: Bytes, inclusive: Compare, exclusive: Compare): (score: number) => boolean {
  const limit = scoreOf(text.replace(/^\(/, ''));
  return text.startsWith('(') ? (score) => exclusive(score, limit) : (score) => inclusive(score, limit);
}

function scoreOf(text: Bytes): number {
  if (/^[+-]?inf$/i.test(text)) return text.startsWith('-') ? -Infinity : Infinity;
  const score = Number(text);
  if (text === '' || Number.isNaN(score)) throw new ReplyError('ERR value is not a valid float');
  return score;
}
