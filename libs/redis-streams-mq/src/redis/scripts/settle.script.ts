import { asArray, asNumber, asText, asTexts, type Reply } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { HISTORY } from './history.js';

/** `pending` is the group's pending total on the source after the script: the ledger's figure. */
export type SettleReply =
  { readonly status: 'fenced' } | { readonly status: 'ok'; readonly acked: number; readonly pending: number };

type FencedKey = 'source' | 'lease';
type FencedArg = 'token' | 'group' | 'onRetryStream';

/**
 * On a retry stream the mover writes some fields before those of the message; an entry of someone else has none of them.
 * Returns where the message begins, and its packed history.
 */
const MESSAGE_AT = `local function messageAt(fields)
  if onRetryStream ~= '1' or fields[1] ~= 'origin' then return 1 end
  if fields[3] == 'attempt' then return 5 end
  if fields[3] == 'history' and fields[5] == 'attempt' then return 7, fields[4] end
  return 1
end`;

/**
 * Writes the group's commit position after entries have left the pending list, and returns the pending total. All that
 * was delivered before the oldest pending entry is settled; all that was delivered, when nothing is pending.
 */
const COMMIT = `local function writePosition()
  local summary = redis.call('XPENDING', source, group)
  if onRetryStream == '1' then return summary[1] end
  local position
  if summary[1] > 0 then
    local ms, seq = string.match(summary[2], '^(%d+)%-(%d+)$')
    if seq ~= '0' and #seq < 16 then position = ms .. '-' .. num(tonumber(seq) - 1)
    elseif seq ~= '0' then position = ms .. '-0'
    else position = num(tonumber(ms) - 1) .. '-18446744073709551615' end
  else
    for _, known in ipairs(redis.call('XINFO', 'GROUPS', source)) do
      local of = {}
      for i = 1, #known, 2 do of[known[i]] = known[i + 1] end
      if of['name'] == group then position = of['last-delivered-id'] end
    end
  end
  redis.call('HSET', commit, group, position)
  return summary[1]
end`;

export const settle: Script<FencedKey | 'commit' | 'crash' | 'held', FencedArg, SettleReply> = defineScript({
  name: 'settle',
  keys: ['source', 'lease', 'commit', 'crash', 'held'],
  args: ['token', 'group', 'onRetryStream'],
  lua: `
-- Acknowledges handled entries. rest: their ids, ascending. On the group's retry stream they are deleted too.
-- Writes the commit position and removes the notes of earlier failures.
-- Returns { 'ok', acknowledged, pending total }. Twice: the second XACK answers 0 and the position stays.
-- XACK is the first write: a full Redis allows it, and lets pass what follows. The reads before it fail on a key of a
-- wrong type, so that nothing is acknowledged then.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
${COMMIT}
redis.call('HLEN', crash)
if onRetryStream == '0' then
  redis.call('HLEN', commit)
  redis.call('HLEN', held)
end
local acked = 0
for i = rest, #ARGV, 1000 do
  local last = math.min(i + 999, #ARGV)
  acked = acked + redis.call('XACK', source, group, unpack(ARGV, i, last))
  redis.call('HDEL', crash, unpack(ARGV, i, last))
  if onRetryStream == '1' then redis.call('XDEL', source, unpack(ARGV, i, last))
  else redis.call('HDEL', held, unpack(ARGV, i, last)) end
end
if acked == 0 then return { 'ok', 0, redis.call('XPENDING', source, group)[1] } end
return { 'ok', acked, writePosition() }`,
  decode: (reply) => {
    const [status, acked, pending] = asArray(reply);
    if (asText(status) === 'fenced') return { status: 'fenced' };
    return { status: 'ok', acked: asNumber(acked), pending: asNumber(pending) };
  },
});

export type FailReply =
  | { readonly status: 'fenced' }
  | {
      readonly status: 'ok';
      readonly pending: number;
      /** When the earliest item of the bucket is due, by the server's clock. */
      readonly nextDue: number | null;
      readonly now: number;
      /** Per id: `moved`, `gone` (no longer pending: someone else settled it) or `deleted` (no longer in the stream). */
      readonly results: readonly string[];
    };

export const fail: Script<FencedKey | 'retry' | 'retryItems' | 'commit' | 'crash' | 'held', FencedArg, FailReply> =
  defineScript({
    name: 'fail',
    keys: ['source', 'lease', 'retry', 'retryItems', 'commit', 'crash', 'held'],
    args: ['token', 'group', 'onRetryStream'],
    lua: `
-- Moves failed entries into the group's retry bucket. rest: (id, item id, attempts made, delay in ms, error) per entry.
-- The fields are copied here, as bytes; the attempt joins the message's history. Writes the commit position. Returns { 'ok', pending total, nextDue or '', now, result per entry }.
-- An item that the bucket has already is left, and its entry acknowledged.
-- Twice: an entry that is no longer pending answers 'gone' and nothing changes.
-- The item is written before the entry leaves the pending list, so that a full Redis fails it whole. The reads before
-- it fail on a key of a wrong type, so that no half of an item is left.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
${MESSAGE_AT}
${COMMIT}
${HISTORY}
redis.call('HLEN', crash)
redis.call('ZCARD', retry)
if onRetryStream == '0' then
  redis.call('HLEN', commit)
  redis.call('HLEN', held)
end
local at, left = now(), false
local results = {}
for i = rest, #ARGV, 5 do
  local id, item, attempts, delay, reason = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if #redis.call('XPENDING', source, group, id, id, 1) == 0 then
    results[#results + 1] = 'gone'
  else
    local found = redis.call('XRANGE', source, id, id)
    if found[1] then
      -- A replay may have put it there meanwhile: that one is due earlier, with its attempts reset.
      if redis.call('HEXISTS', retryItems, item) == 0 then
        local fields = {}
        local first, packed = messageAt(found[1][2])
        for f = first, #found[1][2] do fields[#fields + 1] = found[1][2][f] end
        local history = openHistory(packed)
        remember(history[1], { attempts, num(at), cut(reason) })
        redis.call('HSET', retryItems, item, cmsgpack.pack({ attempts, reason, fields, cmsgpack.pack(history) }))
        redis.call('ZADD', retry, num(at + tonumber(delay)), item)
      end
      results[#results + 1] = 'moved'
    else
      results[#results + 1] = 'deleted'
    end
    redis.call('XACK', source, group, id)
    redis.call('HDEL', crash, id)
    if onRetryStream == '1' then redis.call('XDEL', source, id) else redis.call('HDEL', held, id) end
    left = true
  end
end
local pending = left and writePosition() or redis.call('XPENDING', source, group)[1]
local first = redis.call('ZRANGE', retry, 0, 0, 'WITHSCORES')
return { 'ok', pending, first[2] or '', num(at), results }`,
    decode: (reply) => {
      const [status, pending, nextDue, now, results] = asArray(reply);
      if (asText(status) === 'fenced') return { status: 'fenced' };
      const due = asText(nextDue);
      return {
        status: 'ok',
        pending: asNumber(pending),
        nextDue: due === '' ? null : Number(due),
        now: asNumber(now),
        results: asTexts(results),
      };
    },
  });

export type DeadReply =
  | { readonly status: 'fenced' }
  | { readonly status: 'dead' | 'gone' | 'deleted'; readonly pending: number; readonly dlqId: string | null };

export const dead: Script<FencedKey | 'dlq' | 'commit' | 'crash' | 'held', FencedArg | 'id', DeadReply> = defineScript({
  name: 'dead',
  keys: ['source', 'lease', 'dlq', 'commit', 'crash', 'held'],
  args: ['token', 'group', 'onRetryStream', 'id'],
  lua: `
-- Moves one entry into the dead letter stream. rest: metadata fields and values; failedAt, the history and the original
-- fields, packed into one byte field so that nothing in a foreign entry can collide, are added here. Writes the commit position.
-- Returns { 'dead', pending total, dlq id } | { 'gone' | 'deleted', pending total }.
-- Twice: checked at the source first, written to the next place, removed from the source last.
-- HLEN fails on a key of a wrong type before anything is written.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
${MESSAGE_AT}
${COMMIT}
redis.call('HLEN', crash)
if onRetryStream == '0' then
  redis.call('HLEN', commit)
  redis.call('HLEN', held)
end
if #redis.call('XPENDING', source, group, id, id, 1) == 0 then
  return { 'gone', redis.call('XPENDING', source, group)[1] }
end
local status, dlqId = 'deleted', false
local found = redis.call('XRANGE', source, id, id)
if found[1] then
  local fields = {}
  local first, history = messageAt(found[1][2])
  for f = first, #found[1][2] do fields[#fields + 1] = found[1][2][f] end
  local entry = { 'XADD', dlq, '*' }
  for i = rest, #ARGV do entry[#entry + 1] = ARGV[i] end
  entry[#entry + 1] = 'failedAt'
  entry[#entry + 1] = num(now())
  if history then
    entry[#entry + 1] = 'history'
    entry[#entry + 1] = history
  end
  entry[#entry + 1] = 'fields'
  entry[#entry + 1] = cmsgpack.pack(fields)
  dlqId = redis.call(unpack(entry))
  status = 'dead'
end
redis.call('XACK', source, group, id)
redis.call('HDEL', crash, id)
if onRetryStream == '1' then redis.call('XDEL', source, id) else redis.call('HDEL', held, id) end
return { status, writePosition(), dlqId }`,
  decode: (reply) => {
    const [status, pending, dlqId] = asArray(reply);
    const state = asText(status);
    if (state === 'fenced') return { status: 'fenced' };
    return {
      status: state as 'dead' | 'gone' | 'deleted',
      pending: asNumber(pending),
      dlqId: dlqId === null || dlqId === undefined ? null : asText(dlqId as Reply),
    };
  },
});
