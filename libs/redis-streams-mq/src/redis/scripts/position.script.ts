import { asArray, asNumber, asText, type Reply } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { HISTORY } from './history.js';
import { IS_BEFORE } from './stream-ids.js';
import { WALK } from './stream-walk.js';

export interface WalkReply {
  readonly count: number;
  /** The entry at which it ended; `null` when there was none. */
  readonly last: string | null;
  /** Whether the range may go on behind it. */
  readonly more: boolean;
}

export const walkStream: Script<'stream', 'from' | 'to' | 'limit' | 'reverse', WalkReply> = defineScript({
  name: 'walk-stream',
  keys: ['stream'],
  args: ['from', 'to', 'limit', 'reverse'],
  lua: `
-- Counts entries of a range, at most limit: forward, or in reverse from its end. Returns { count, id of the last, 1 if there
-- may be more }. Writes nothing.
${WALK}
local count, last, more
if reverse == '1' then count, last, more = walk(stream, to, from, tonumber(limit), 'XREVRANGE', function() end)
else count, last, more = walk(stream, from, to, tonumber(limit), 'XRANGE', function() end) end
return { count, last or '', more }`,
  decode: decodeWalk,
});

export type ResetReply =
  | { readonly status: 'fenced' | 'missing' }
  | {
      readonly status: 'ok';
      /** Behind which the group goes on. */
      readonly position: string;
      readonly pendingDropped: number;
      readonly retriesDropped: number;
    };

export const resetPosition: Script<
  'stream' | 'retryStream' | 'lease' | 'retry' | 'retryItems' | 'held' | 'crash' | 'commit',
  'token' | 'group' | 'position' | 'keepRetries',
  ResetReply
> = defineScript({
  name: 'reset-position',
  keys: ['stream', 'retryStream', 'lease', 'retry', 'retryItems', 'held', 'crash', 'commit'],
  args: ['token', 'group', 'position', 'keepRetries'],
  lua: `
-- Lets a group go on behind position ('latest', or one behind the end: the end), under a lease of the administration. What
-- was pending is so no more: behind the position it comes anew, before it it is skipped. Retries stay, or go when
-- keepRetries is '0'. Returns { 'ok', position, pending dropped, retries dropped }; 'missing': the stream is not there.
-- Twice: the same position once more. Begins with a write that a full Redis allows. The reads before it fail on a key of a
-- wrong type, so that nothing is changed then.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
${IS_BEFORE}
redis.call('XLEN', stream)
if redis.call('EXISTS', stream) == 0 then return { 'missing' } end
local waiting = redis.call('XLEN', retryStream) + redis.call('ZCARD', retry)
redis.call('HLEN', retryItems)
redis.call('HLEN', held)
local suspects = redis.call('HGETALL', crash)
redis.call('HLEN', commit)
local pending = 0
local info, last = redis.call('XINFO', 'STREAM', stream), '0-0'
for i = 1, #info, 2 do if info[i] == 'last-generated-id' then last = info[i + 1] end end
for _, known in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local of = {}
  for i = 1, #known, 2 do of[known[i]] = known[i + 1] end
  if of.name == group then pending = of.pending end
end
if position == 'latest' or isBefore(last, position) then position = last end
redis.call('HDEL', commit, '')
redis.call('XGROUP', 'DESTROY', stream, group)
redis.call('XGROUP', 'CREATE', stream, group, position)
redis.call('HSET', commit, group, position)
redis.call('DEL', held)
for i = 1, #suspects, 2 do
  if #redis.call('XRANGE', retryStream, suspects[i], suspects[i]) == 0 then redis.call('HDEL', crash, suspects[i]) end
end
local dropped = 0
if keepRetries == '0' then
  dropped = waiting
  redis.call('UNLINK', retry, retryItems, retryStream, crash)
end
return { 'ok', position, pending, dropped }`,
  decode: (reply) => {
    const [status, position, pending, retries] = asArray(reply);
    const state = asText(status);
    if (state === 'fenced' || state === 'missing') return { status: state };
    return {
      status: 'ok',
      position: asText(position),
      pendingDropped: asNumber(pending),
      retriesDropped: asNumber(retries),
    };
  },
});

export type DropRetriesReply =
  | { readonly status: 'fenced' }
  | {
      readonly status: 'ok';
      readonly dropped: number;
      /** Where the next page begins; `after` is `null` when the retry stream was gone through. */
      readonly after: string | null;
      readonly skip: number;
      readonly more: boolean;
    };

export const dropRetries: Script<
  'stream' | 'retryStream' | 'lease' | 'retry' | 'retryItems' | 'crash',
  'token' | 'group' | 'position' | 'after' | 'skip' | 'limit' | 'isDry',
  DropRetriesReply
> = defineScript({
  name: 'drop-retries',
  keys: ['stream', 'retryStream', 'lease', 'retry', 'retryItems', 'crash'],
  args: ['token', 'group', 'position', 'after', 'skip', 'limit', 'isDry'],
  lua: `
-- Drops those retries of a group that it will read from the stream again, being behind position and still there. What was
-- replayed after a death stays: it may have been edited, and is then no copy of what the stream has. One page
-- of the retry stream behind after, or, with after empty, of the bucket without its first skip items. isDry '1': only counts, and
-- asks for no lease. Returns { 'ok', dropped, next after or '', next skip, 1 if there may be more }.
-- Twice: what is gone is gone. Begins with writes that a full Redis allows.
if isDry ~= '1' and redis.call('GET', lease) ~= token then return { 'fenced' } end
${IS_BEFORE}
redis.call('XLEN', stream)
redis.call('XLEN', retryStream)
redis.call('ZCARD', retry)
redis.call('HLEN', retryItems)
redis.call('HLEN', crash)
${HISTORY}
local function isReplay(history) return history and #openHistory(history)[2] > 0 end
local function isReplayItem(item)
  local packed = redis.call('HGET', retryItems, item)
  local readable, envelope = pcall(cmsgpack.unpack, packed or '')
  return readable and type(envelope) == 'table' and isReplay(envelope[4])
end
local function isReread(origin)
  return string.match(origin, '^%d+%-%d+$') and isBefore(position, origin) and #redis.call('XRANGE', stream, origin, origin) > 0
end
local dropped = 0
if after ~= '' then
  local entries = redis.call('XRANGE', retryStream, after, '+', 'COUNT', limit)
  for _, entry in ipairs(entries) do
    local of = entry[2]
    if of[1] == 'origin' and isReread(of[2]) and not (of[3] == 'history' and isReplay(of[4])) then
      dropped = dropped + 1
      if isDry ~= '1' then
        redis.call('XACK', retryStream, group, entry[1])
        redis.call('XDEL', retryStream, entry[1])
        redis.call('HDEL', crash, entry[1])
      end
    end
  end
  if #entries < tonumber(limit) then return { 'ok', dropped, '', 0, 1 } end
  return { 'ok', dropped, '(' .. entries[#entries][1], 0, 1 }
end
local items = redis.call('ZRANGE', retry, skip, skip + limit - 1)
for _, item in ipairs(items) do
  if isReread(item) and not isReplayItem(item) then
    dropped = dropped + 1
    if isDry ~= '1' then
      redis.call('ZREM', retry, item)
      redis.call('HDEL', retryItems, item)
    end
  end
end
local kept = isDry == '1' and #items or #items - dropped
return { 'ok', dropped, '', skip + kept, #items == tonumber(limit) and 1 or 0 }`,
  decode: (reply) => {
    const [status, dropped, after, skip, more] = asArray(reply);
    if (asText(status) === 'fenced') return { status: 'fenced' };
    return {
      status: 'ok',
      dropped: asNumber(dropped),
      after: asText(after) || null,
      skip: asNumber(skip),
      more: asNumber(more) === 1,
    };
  },
});

export function decodeWalk(reply: Reply | undefined): WalkReply {
  const [count, last, more] = asArray(reply);
  return { count: asNumber(count), last: asText(last) || null, more: asNumber(more) === 1 };
}
