import { asArray, asNumber, asText, asTexts, type Outcome, type Reply } from '../reply.js';
import { defineForMany, defineScript, type MultiKeyScript, type Script } from '../script.js';
import { IS_BEFORE } from './stream-ids.js';
import { WALK } from './stream-walk.js';

/** How many messages of a stream a group has not been given. */
export interface Undelivered {
  readonly count: number;
  /**
   * `exact`: it was counted. `reported`: it is what Redis says, which can be too high after unread entries were trimmed.
   * `at-least`: Redis cannot say (before 7, or with deleted entries in between), and counting ended at its bound.
   */
  readonly certainty: 'exact' | 'reported' | 'at-least';
}

/** The oldest entry of a pending entries list. */
export interface OldestPending {
  readonly id: string;
  readonly consumer: string;
  readonly idleMs: number;
  readonly deliveries: number;
}

/** A group as its partition's stream and commit positions know it. */
export interface PartitionGroupStats {
  readonly group: string;
  /** False when only its commit position is known: the stream has lost it, and its next owner makes it again. */
  readonly isPresent: boolean;
  /** What was delivered last; the commit position of a group that is not present. */
  readonly position: string;
  readonly consumers: number;
  readonly pending: number;
  readonly oldestPendingId: string | null;
  readonly undelivered: Undelivered;
}

export interface PartitionStats {
  /** The server's clock, in milliseconds. */
  readonly now: number;
  readonly length: number;
  readonly firstId: string | null;
  readonly lastId: string | null;
  /** The last id the stream gave out, be the entry still there or not. */
  readonly lastGeneratedId: string | null;
  /** Entries ever added; `null` before Redis 7. */
  readonly entriesAdded: number | null;
  /** Estimate of the stream's memory; `null` when it was not asked for or the user may not ask. */
  readonly bytes: number | null;
  readonly deadLetters: number;
  readonly deadLetterBytes: number | null;
  readonly delayed: number;
  readonly nextDelayedDue: number | null;
  readonly groups: readonly PartitionGroupStats[];
  /** Keys whose type is not ours; what they would say is 0 or `null` above. */
  readonly unreadable: readonly string[];
}

export interface GroupStats {
  readonly now: number;
  /** `<instance>#<epoch>`, or `null` when nobody owns the partition for the group. */
  readonly token: string | null;
  readonly leaseMs: number | null;
  readonly isPaused: boolean;
  /** False when the partition's stream does not have the group. */
  readonly isPresent: boolean;
  /** What was delivered last; for a group that is not present its commit position; `null` when there is none either. */
  readonly position: string | null;
  /** Up to where everything is settled, as last written. */
  readonly committed: string | null;
  readonly undelivered: Undelivered;
  readonly pending: number;
  readonly oldestPending: OldestPending | null;
  readonly consumers: number;
  /** Retries that are due: entries of the group's retry stream, and how many of them are being handled. */
  readonly retryLength: number;
  readonly retryPending: number;
  readonly oldestRetryPending: OldestPending | null;
  /** Retries that wait for their time. */
  readonly bucket: number;
  readonly nextDue: number | null;
  /** Entries that keep their key's order; they are among `pending`. */
  readonly held: number;
  /** Original id of the oldest message that is not settled, wherever it is; `null` when all are. */
  readonly oldestId: string | null;
  /** False when more retries waited than were looked at, so that an older one may be among them. */
  readonly isOldestExact: boolean;
  readonly unreadable: readonly string[];
}

/**
 * `has`: whether a key is there and of its type; one of another type is noted and hurts no other.
 * `undeliveredOf`: what is behind a position: count, certainty, id of the first. Redis' own figure is asked last, as it
 * stays too high for ever after unread entries were trimmed.
 */
const READING = `local unreadable = {}
local function has(name, key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then unreadable[#unreadable + 1] = name end
  return found == kind
end
local function named(flat)
  local of = {}
  for i = 1, #flat, 2 do of[flat[i]] = flat[i + 1] end
  return of
end
local function idOr(id, other) return id and string.match(id, '^%d+%-%d+$') and id or other end
${IS_BEFORE}
${WALK}
local function undeliveredOf(stream, info, position, reported, limit)
  local first = info['first-entry'] and info['first-entry'][1]
  if not first or not isBefore(position, info['last-generated-id']) then return 0, 'exact', '' end
  if isBefore(position, first) then return info.length, 'exact', first end
  local oldest = ''
  local counted, _, more = walk(stream, '(' .. position, '+', math.max(1, limit), 'XRANGE', function(entry)
    if oldest == '' then oldest = entry[1] end
  end)
  if more == 0 then return counted, 'exact', oldest end
  if reported and reported >= counted then return math.min(reported, info.length), 'reported', oldest end
  return counted, 'at-least', oldest
end`;

export const partitionStats: Script<'stream' | 'dlq' | 'delayed' | 'commit', 'samples' | 'countLimit', PartitionStats> =
  defineScript({
    name: 'partition-stats',
    keys: ['stream', 'dlq', 'delayed', 'commit'],
    args: ['samples', 'countLimit'],
    lua: `
-- Reads what all groups share of a partition. samples: nodes that MEMORY USAGE looks at, 0: it is not asked. countLimit:
-- entries that are counted at most for a group that is behind.
-- Returns { now, length, first id, last id, last generated id, entries added, bytes, dead letters, their bytes, delayed, next due,
-- unreadable, groups }, '' for what is not known; per group { name, is present, position, consumers, pending, oldest
-- pending id, undelivered, certainty }. Writes nothing.
${READING}
local function bytesOf(key)
  if samples == '0' then return '' end
  local bytes = redis.pcall('MEMORY', 'USAGE', key, 'SAMPLES', samples)
  return type(bytes) == 'number' and bytes or ''
end
local reply = { num(now()), 0, '', '', '', '', '', 0, '', 0, '' }
local groups, present, info = {}, {}, nil
if has('stream', stream, 'stream') then
  info = named(redis.call('XINFO', 'STREAM', stream))
  reply[2] = info.length
  reply[3] = info['first-entry'] and info['first-entry'][1] or ''
  reply[4] = info['last-entry'] and info['last-entry'][1] or ''
  reply[5] = info['last-generated-id']
  reply[6] = info['entries-added'] or ''
  reply[7] = bytesOf(stream)
  for _, known in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = named(known)
    local position = group['last-delivered-id']
    local oldest = group.pending > 0 and redis.call('XPENDING', stream, group.name)[2] or ''
    local count, certainty = undeliveredOf(stream, info, position, group.lag, tonumber(countLimit))
    present[group.name] = true
    groups[#groups + 1] = { group.name, 1, position, group.consumers, group.pending, oldest, count, certainty }
  end
end
if has('dlq', dlq, 'stream') then
  reply[8] = redis.call('XLEN', dlq)
  reply[9] = bytesOf(dlq)
end
if has('delayed', delayed, 'zset') then
  reply[10] = redis.call('ZCARD', delayed)
  reply[11] = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or ''
end
if has('commit', commit, 'hash') then
  local commits = redis.call('HGETALL', commit)
  for i = 1, #commits, 2 do
    if not present[commits[i]] then
      local position = idOr(commits[i + 1], '0-0')
      local count, certainty = 0, 'exact'
      if info then count, certainty = undeliveredOf(stream, info, position, nil, tonumber(countLimit)) end
      groups[#groups + 1] = { commits[i], 0, position, 0, 0, '', count, certainty }
    end
  end
end
reply[12] = unreadable
reply[13] = groups
return reply`,
    decode: (reply) => {
      const parts = asArray(reply);
      return {
        now: asNumber(parts[0]),
        length: asNumber(parts[1]),
        firstId: known(parts[2]),
        lastId: known(parts[3]),
        lastGeneratedId: known(parts[4]),
        entriesAdded: knownNumber(parts[5]),
        bytes: knownNumber(parts[6]),
        deadLetters: asNumber(parts[7]),
        deadLetterBytes: knownNumber(parts[8]),
        delayed: asNumber(parts[9]),
        nextDelayedDue: knownNumber(parts[10]),
        unreadable: asTexts(parts[11]),
        groups: asArray(parts[12]).map((item) => {
          const [group, isPresent, position, consumers, pending, oldestPendingId, count, certainty] = asArray(item);
          return {
            group: asText(group),
            isPresent: asNumber(isPresent) === 1,
            position: asText(position),
            consumers: asNumber(consumers),
            pending: asNumber(pending),
            oldestPendingId: known(oldestPendingId),
            undelivered: toUndelivered(count, certainty),
          };
        }),
      };
    },
  });

export const manyPartitionStats: MultiKeyScript<readonly Outcome<PartitionStats>[]> = defineForMany(partitionStats);

export const groupStats: Script<
  'stream' | 'retryStream' | 'lease' | 'retry' | 'held' | 'commit' | 'paused' | 'pausedAll',
  'group' | 'countLimit',
  GroupStats
> = defineScript({
  name: 'group-stats',
  keys: ['stream', 'retryStream', 'lease', 'retry', 'held', 'commit', 'paused', 'pausedAll'],
  args: ['group', 'countLimit'],
  lua: `
-- Reads what one group has to do on a partition. countLimit: entries that are counted at most when it is behind.
-- Returns { now, token, lease ms, is paused, is present, position, committed, undelivered, certainty, pending, consumers,
-- oldest pending, retry length, retry pending, oldest retry pending, bucket, next due, held, oldest id, is oldest exact,
-- unreadable }, '' for what is not there; an oldest pending is { id, consumer, idle ms, deliveries } or {}. Writes nothing.
${READING}
local reply = { num(now()), '', '', redis.call('EXISTS', paused, pausedAll) > 0 and 1 or 0, 0, '', '', 0, 'exact', 0, 0, {}, 0, 0, {}, 0, '', 0, '', 1 }
local function older(id)
  id = idOr(id)
  if id and (reply[19] == '' or isBefore(id, reply[19])) then reply[19] = id end
end
local function oldestOf(source) return redis.call('XPENDING', source, group, '-', '+', 1)[1] or {} end
local function find(source)
  for _, known in ipairs(redis.call('XINFO', 'GROUPS', source)) do
    local of = named(known)
    if of.name == group then return of end
  end
end
if has('lease', lease, 'string') then
  reply[2] = redis.call('GET', lease)
  reply[3] = redis.call('PTTL', lease)
end
if has('commit', commit, 'hash') then reply[7] = redis.call('HGET', commit, group) or '' end
if has('stream', stream, 'stream') then
  local known = find(stream)
  if known then
    reply[5], reply[6], reply[10], reply[11] = 1, known['last-delivered-id'], known.pending, known.consumers
    if known.pending > 0 then
      reply[12] = oldestOf(stream)
      older(reply[12][1])
    end
  elseif reply[7] ~= '' then
    reply[6] = idOr(reply[7], '0-0')
  end
  if reply[6] ~= '' then
    local info = named(redis.call('XINFO', 'STREAM', stream))
    local first
    reply[8], reply[9], first = undeliveredOf(stream, info, reply[6], known and known.lag, tonumber(countLimit))
    older(first)
  end
end
if has('retryStream', retryStream, 'stream') then
  reply[13] = redis.call('XLEN', retryStream)
  local known = find(retryStream)
  if known and known.pending > 0 then
    reply[14] = known.pending
    reply[15] = oldestOf(retryStream)
  end
  local _, _, more = walk(retryStream, '-', '+', 100, 'XRANGE', function(entry)
    older(entry[2][1] == 'origin' and entry[2][2] or entry[1])
  end)
  if more == 1 then reply[20] = 0 end
end
if has('retry', retry, 'zset') then
  reply[16] = redis.call('ZCARD', retry)
  reply[17] = redis.call('ZRANGE', retry, 0, 0, 'WITHSCORES')[2] or ''
  for _, item in ipairs(redis.call('ZRANGE', retry, 0, 499)) do older(item) end
  if reply[16] > 500 then reply[20] = 0 end
end
if has('held', held, 'hash') then reply[18] = redis.call('HLEN', held) end
reply[21] = unreadable
return reply`,
  decode: (reply) => {
    const parts = asArray(reply);
    return {
      now: asNumber(parts[0]),
      token: known(parts[1]),
      leaseMs: knownNumber(parts[2]),
      isPaused: asNumber(parts[3]) === 1,
      isPresent: asNumber(parts[4]) === 1,
      position: known(parts[5]),
      committed: known(parts[6]),
      undelivered: toUndelivered(parts[7], parts[8]),
      pending: asNumber(parts[9]),
      consumers: asNumber(parts[10]),
      oldestPending: toOldestPending(parts[11]),
      retryLength: asNumber(parts[12]),
      retryPending: asNumber(parts[13]),
      oldestRetryPending: toOldestPending(parts[14]),
      bucket: asNumber(parts[15]),
      nextDue: knownNumber(parts[16]),
      held: asNumber(parts[17]),
      oldestId: known(parts[18]),
      isOldestExact: asNumber(parts[19]) === 1,
      unreadable: asTexts(parts[20]),
    };
  },
});

export const manyGroupStats: MultiKeyScript<readonly Outcome<GroupStats>[]> = defineForMany(groupStats);

function known(reply: Reply | undefined): string | null {
  return asText(reply) || null;
}

function knownNumber(reply: Reply | undefined): number | null {
  const text = known(reply);
  return text === null ? null : Number(text);
}

function toUndelivered(count: Reply | undefined, certainty: Reply | undefined): Undelivered {
  return { count: asNumber(count), certainty: asText(certainty) as Undelivered['certainty'] };
}

function toOldestPending(reply: Reply | undefined): OldestPending | null {
  const [id, consumer, idleMs, deliveries] = asArray(reply);
  if (id === undefined) return null;
  return { id: asText(id), consumer: asText(consumer), idleMs: asNumber(idleMs), deliveries: asNumber(deliveries) };
}
