import { asArray, asNumber, asText } from '../reply.js';
import { defineMultiKeyScript, defineScript, type MultiKeyScript, type Script } from '../script.js';
import { decodeMove, type MoveReply } from './send.script.js';

export const moveRetries: Script<'retryStream' | 'lease' | 'retry' | 'retryItems', 'token' | 'limit', MoveReply> =
  defineScript({
    name: 'move-retries',
    keys: ['retryStream', 'lease', 'retry', 'retryItems'],
    args: ['token', 'limit'],
    lua: `
-- Puts due items of the group's bucket on its retry stream, at most limit. Returns { 'ok', moved, nextDue or '', bad... }.
-- An entry begins with 'origin', 'history' if there is one, and 'attempt'; what comes after these belongs to the message.
-- Twice: each item is added, then removed, in one step. A bad item is set aside and does not hold up the rest.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
local at = now()
local due = redis.call('ZRANGEBYSCORE', retry, '-inf', num(at), 'LIMIT', 0, limit)
local reply = { 'ok', 0, '' }
for _, item in ipairs(due) do
  local packed = redis.call('HGET', retryItems, item)
  local readable, envelope = false, nil
  if packed then readable, envelope = pcall(cmsgpack.unpack, packed) end
  if readable and type(envelope) == 'table' and type(envelope[1]) == 'string' and isEntry(envelope[3]) then
    if type(envelope[4]) == 'string' then
      redis.call('XADD', retryStream, '*', 'origin', item, 'history', envelope[4], 'attempt', envelope[1], unpack(envelope[3]))
    else
      redis.call('XADD', retryStream, '*', 'origin', item, 'attempt', envelope[1], unpack(envelope[3]))
    end
    redis.call('ZREM', retry, item)
    redis.call('HDEL', retryItems, item)
    reply[2] = reply[2] + 1
  else
    if packed then redis.call('ZADD', retry, 'XX', num(at + 3600000), item) else redis.call('ZREM', retry, item) end
    reply[#reply + 1] = item
  end
end
local first = redis.call('ZRANGE', retry, 0, 0, 'WITHSCORES')
if first[2] then reply[3] = first[2] end
return reply`,
    decode: decodeMove,
  });

export interface DueTimes {
  readonly now: number;
  /** Per key: the earliest due time, `null` when nothing waits. */
  readonly due: readonly (number | null)[];
}

export const dueTimes: MultiKeyScript<DueTimes> = defineMultiKeyScript({
  name: 'due-times',
  lua: `
-- Reads the earliest due time of each bucket. Returns { now, due or '', ... }. Writes nothing.
local reply = { num(now()) }
for i, key in ipairs(KEYS) do
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  reply[i + 1] = first[2] or ''
end
return reply`,
  decode: (reply) => {
    const [now, ...due] = asArray(reply);
    return {
      now: asNumber(now),
      due: due.map((value) => {
        const text = asText(value);
        return text === '' ? null : Number(text);
      }),
    };
  },
});
