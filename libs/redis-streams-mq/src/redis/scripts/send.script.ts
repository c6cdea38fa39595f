import { asArray, asNumber, asText, type Reply } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export type SendOnceReply =
  { readonly status: 'stored'; readonly id: string; readonly duplicate: boolean } | { readonly status: 'gone' };

export const sendOnce: Script<'stream' | 'dedup', 'incarnation' | 'ttl', SendOnceReply> = defineScript({
  name: 'send-once',
  keys: ['stream', 'dedup'],
  args: ['incarnation', 'ttl'],
  lua: `
-- Adds a message unless its marker says that this incarnation of the topic has it. rest: the entry's fields.
-- Returns { 'stored', id, duplicate } or { 'gone' } when the topic's stream is not there.
-- Twice: the marker is read first and written last; a crash between cannot happen inside a script.
local marker = redis.call('GET', dedup)
if marker then
  local cut = string.find(marker, '|', 1, true)
  if cut and string.sub(marker, 1, cut - 1) == incarnation then return { 'stored', string.sub(marker, cut + 1), 1 } end
end
local id = redis.call('XADD', stream, 'NOMKSTREAM', '*', unpack(ARGV, rest))
if not id then return { 'gone' } end
redis.call('SET', dedup, incarnation .. '|' .. id, 'PX', ttl)
return { 'stored', id, 0 }`,
  decode: (reply) => {
    const [status, id, duplicate] = asArray(reply);
    if (asText(status) === 'gone') return { status: 'gone' };
    return { status: 'stored', id: asText(id), duplicate: asNumber(duplicate) === 1 };
  },
});

export type ScheduleReply =
  | { readonly status: 'scheduled'; readonly due: number; readonly earliest: boolean; readonly duplicate: boolean }
  | { readonly status: 'gone' };

export const schedule: Script<
  'stream' | 'delayed' | 'delayedItems' | 'delayedSeq',
  'eventId' | 'mode' | 'when',
  ScheduleReply
> = defineScript({
  name: 'schedule',
  keys: ['stream', 'delayed', 'delayedItems', 'delayedSeq'],
  args: ['eventId', 'mode', 'when'],
  lua: `
-- Keeps a message until it is due; mode 'delay' counts from the server's now, 'at' is a point in time. rest: fields.
-- The member carries a sequence, so that equal due times keep the order of sending.
-- Returns { 'scheduled', due, isEarliest, duplicate } or { 'gone' }.
-- Twice: the item, written last, is the marker; a member without an item is dropped by the mover. Once the mover has put
-- the message on the stream the marker is gone: a second call then stores it again, under the same eventId.
-- ZCARD fails on a key of a wrong type before anything is written.
if redis.call('EXISTS', stream) == 0 then return { 'gone' } end
if redis.call('HEXISTS', delayedItems, eventId) == 1 then return { 'scheduled', '0', 0, 1 } end
redis.call('ZCARD', delayed)
local due = tonumber(when)
if mode == 'delay' then due = due + now() end
local sequence = redis.call('INCR', delayedSeq)
local member = string.format('%016.0f', sequence) .. ':' .. eventId
redis.call('ZADD', delayed, num(due), member)
local fields = {}
for i = rest, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', delayedItems, eventId, cmsgpack.pack(fields))
local first = redis.call('ZRANGE', delayed, 0, 0)
return { 'scheduled', num(due), first[1] == member and 1 or 0, 0 }`,
  decode: (reply) => {
    const [status, due, earliest, duplicate] = asArray(reply);
    if (asText(status) === 'gone') return { status: 'gone' };
    return {
      status: 'scheduled',
      due: asNumber(due),
      earliest: asNumber(earliest) === 1,
      duplicate: asNumber(duplicate) === 1,
    };
  },
});

export interface MoveReply {
  readonly fenced: boolean;
  readonly moved: number;
  /** When the next item is due, by the server's clock; `null` when none waits. */
  readonly nextDue: number | null;
  /** Items that could not be moved and were set aside. */
  readonly bad: readonly string[];
}

export const moveDelayed: Script<'stream' | 'delayed' | 'delayedItems', 'limit', MoveReply> = defineScript({
  name: 'move-delayed',
  keys: ['stream', 'delayed', 'delayedItems'],
  args: ['limit'],
  lua: `
-- Moves due messages to the partition stream, at most limit. Returns { 'ok', moved, nextDue or '', bad... }.
-- Twice: each item is added, then removed, in one step; the second call finds it gone. Any group's owner may call it.
-- An item that cannot be read is put an hour off and reported; a member without an item is dropped and reported.
local at = now()
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', num(at), 'LIMIT', 0, limit)
local reply = { 'ok', 0, '' }
for _, member in ipairs(due) do
  local eventId = string.sub(member, 18)
  local packed = redis.call('HGET', delayedItems, eventId)
  local readable, fields = false, nil
  if packed then readable, fields = pcall(cmsgpack.unpack, packed) end
  if readable and isEntry(fields) and #fields > 0 then
    if not redis.call('XADD', stream, 'NOMKSTREAM', '*', unpack(fields)) then break end
    redis.call('ZREM', delayed, member)
    redis.call('HDEL', delayedItems, eventId)
    reply[2] = reply[2] + 1
  else
    if packed then redis.call('ZADD', delayed, 'XX', num(at + 3600000), member) else redis.call('ZREM', delayed, member) end
    reply[#reply + 1] = member
  end
end
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
if first[2] then reply[3] = first[2] end
return reply`,
  decode: decodeMove,
});

export function decodeMove(reply: Reply): MoveReply {
  const [status, moved, nextDue, ...bad] = asArray(reply);
  if (asText(status) === 'fenced') return { fenced: true, moved: 0, nextDue: null, bad: [] };
  const due = asText(nextDue);
  return { fenced: false, moved: asNumber(moved), nextDue: due === '' ? null : Number(due), bad: bad.map(asText) };
}
