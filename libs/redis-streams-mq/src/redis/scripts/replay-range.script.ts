import { asArray, asText } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { IS_KNOWN } from './known-group.js';
import { decodeWalk, type WalkReply } from './position.script.js';
import { WALK } from './stream-walk.js';

export type ReplayRangeReply = { readonly status: 'no-group' } | ({ readonly status: 'ok' } & WalkReply);

export const replayRange: Script<
  'stream' | 'retry' | 'retryItems' | 'commit',
  'group' | 'from' | 'to' | 'limit',
  ReplayRangeReply
> = defineScript({
  name: 'replay-range',
  keys: ['stream', 'retry', 'retryItems', 'commit'],
  args: ['group', 'from', 'to', 'limit'],
  lua: `
-- Copies messages of a range, oldest first and at most limit, into a group's retry bucket: due now, with no attempts made. One that
-- is there already keeps its fields and its history. Returns { 'ok', count, id of the last, 1 if there may be more }, or { 'no-group' }
-- with nothing done. Twice: the item is the message's id, so that it is there once. The reads before the first write fail on a key of
-- a wrong type.
${WALK}
redis.call('XLEN', stream)
redis.call('ZCARD', retry)
redis.call('HLEN', retryItems)
${IS_KNOWN}
if not isKnown() then return { 'no-group' } end
local micros = nowMicros()
local count, last, more = walk(stream, from, to, tonumber(limit), 'XRANGE', function(entry, seen)
  local item = { '0', '', entry[2] }
  local packed = redis.call('HGET', retryItems, entry[1])
  local readable, waiting = false, nil
  if packed then readable, waiting = pcall(cmsgpack.unpack, packed) end
  if readable and type(waiting) == 'table' and isEntry(waiting[3]) then item = { '0', '', waiting[3], waiting[4] } end
  redis.call('HSET', retryItems, entry[1], cmsgpack.pack(item))
  -- Microseconds apart: equal times would be ordered by their digits.
  redis.call('ZADD', retry, string.format('%.3f', (micros + seen) / 1000), entry[1])
end)
return { 'ok', count, last or '', more }`,
  decode: (reply) => {
    const [status, ...walked] = asArray(reply);
    return asText(status) === 'no-group' ? { status: 'no-group' } : { status: 'ok', ...decodeWalk(walked) };
  },
});
