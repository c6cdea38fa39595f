import { asArray, asText, type Reply } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export interface RawDeadLetter {
  readonly id: string;
  readonly metadata: ReadonlyMap<string, string>;
  /** The original entry's fields and values, byte for byte; `null` when they cannot be read. */
  readonly fields: readonly Buffer[] | null;
}

export const dlqPage: Script<'dlq', 'start' | 'stop' | 'count' | 'newestFirst', readonly RawDeadLetter[]> =
  defineScript({
    name: 'dlq-page',
    keys: ['dlq'],
    args: ['start', 'stop', 'count', 'newestFirst'],
    lua: `
-- Reads dead letters with their original fields unpacked. Returns (id, metadata, fields or false) per letter. Writes nothing.
local command, from, to = 'XRANGE', start, stop
if newestFirst == '1' then command, from, to = 'XREVRANGE', to, from end
local reply = {}
for i, entry in ipairs(redis.call(command, dlq, from, to, 'COUNT', count)) do
  local metadata, fields = {}, false
  for f = 1, #entry[2], 2 do
    if entry[2][f] == 'fields' then
      local readable, unpacked = pcall(cmsgpack.unpack, entry[2][f + 1])
      if readable and type(unpacked) == 'table' then fields = unpacked end
    else
      metadata[#metadata + 1] = entry[2][f]
      metadata[#metadata + 1] = entry[2][f + 1]
    end
  end
  reply[i] = { entry[1], metadata, fields }
end
return reply`,
    decode: (reply) =>
      asArray(reply).map((item) => {
        const [id, metadata, fields] = asArray(item);
        const flat = asArray(metadata);
        const map = new Map<string, string>();
        for (let i = 0; i < flat.length; i += 2) map.set(asText(flat[i]), asText(flat[i + 1]));
        return {
          id: asText(id),
          metadata: map,
          fields: Array.isArray(fields) ? (fields as Reply[] as Buffer[]) : null,
        };
      }),
  });

export type ReplayReply = 'replayed' | 'gone' | 'other-group' | 'unreadable';

export const replay: Script<'dlq' | 'retry' | 'retryItems', 'id' | 'group', ReplayReply> = defineScript({
  name: 'replay',
  keys: ['dlq', 'retry', 'retryItems'],
  args: ['id', 'group'],
  lua: `
-- Moves one dead letter into its group's retry bucket, due now, with no attempts made.
-- Returns 'replayed', 'gone', 'other-group' (the bucket named is not the letter's), 'unreadable'.
-- Twice: the letter leaves the stream last, and the second call finds nothing.
-- ZCARD fails on a key of a wrong type before anything is written.
local found = redis.call('XRANGE', dlq, id, id)
if not found[1] then return 'gone' end
local origin, owner, packed
for f = 1, #found[1][2], 2 do
  local name, value = found[1][2][f], found[1][2][f + 1]
  if name == 'originalMessageId' then origin = value elseif name == 'group' then owner = value elseif name == 'fields' then packed = value end
end
if owner ~= group then return 'other-group' end
local readable, fields = false, nil
if packed then readable, fields = pcall(cmsgpack.unpack, packed) end
if not origin or not readable or not isEntry(fields) then return 'unreadable' end
redis.call('ZCARD', retry)
redis.call('HSET', retryItems, origin, cmsgpack.pack({ '0', '', fields }))
redis.call('ZADD', retry, num(now()), origin)
redis.call('XDEL', dlq, id)
return 'replayed'`,
  decode: (reply) => asText(reply) as ReplayReply,
});
