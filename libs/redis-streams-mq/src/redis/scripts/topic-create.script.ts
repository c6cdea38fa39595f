import { asNumber, asTextOrNull, asArray } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export interface TopicCreateReply {
  readonly created: boolean;
  readonly partitionCount: number;
  readonly incarnation: string;
  readonly createdAt: number;
  readonly deletedAt: number | null;
  /** Its deletion was begun and not finished: its old keys may be there. */
  readonly isBeingDeleted: boolean;
}

export const topicCreate: Script<'meta' | 'partitions', 'count' | 'incarnation' | 'anew', TopicCreateReply> =
  defineScript({
    name: 'topic-create',
    keys: ['meta', 'partitions'],
    args: ['count', 'incarnation', 'anew'],
    lua: `
-- Writes a topic's meta, all fields at once, unless it is there. rest: the partitions' stream keys.
-- anew '1': also in place of a topic whose deletion is finished.
-- Returns { created, partitionCount, incarnation, createdAt, deletedAt, 1 if its deletion is not finished }.
-- Twice: the second call finds the meta, written last, and changes nothing; the set is only added to.
local stored = redis.call('HMGET', meta, 'partitionCount', 'incarnation', 'createdAt', 'deletedAt', 'isDeleted')
if stored[1] then
  if not stored[4] or not stored[5] or anew ~= '1' then
    return { 0, stored[1], stored[2], stored[3], stored[4], stored[4] and not stored[5] and 1 or 0 }
  end
  redis.call('DEL', meta, partitions)
end
local createdAt = num(now())
for i = rest, #ARGV, 1000 do redis.call('SADD', partitions, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
redis.call('HSET', meta, 'partitionCount', count, 'incarnation', incarnation, 'createdAt', createdAt, 'layoutVersion', '1')
return { 1, count, incarnation, createdAt, false, 0 }`,
    decode: (reply) => {
      const [created, count, incarnation, createdAt, deletedAt, isBeingDeleted] = asArray(reply);
      return {
        created: asNumber(created) === 1,
        partitionCount: asNumber(count),
        incarnation: asTextOrNull(incarnation) ?? '',
        createdAt: asNumber(createdAt),
        deletedAt: deletedAt === null || deletedAt === undefined ? null : asNumber(deletedAt),
        isBeingDeleted: asNumber(isBeingDeleted) === 1,
      };
    },
  });

export const partitionCreate: Script<'stream' | 'incarnation', never, boolean> = defineScript({
  name: 'partition-create',
  keys: ['stream', 'incarnation'],
  args: [],
  lua: `
-- Makes an empty stream, so that XADD NOMKSTREAM tells a deleted topic from an empty one, and notes by the time which making
-- of the partition this is, so that a deletion takes no later one. Returns 1 if it was made.
-- Twice: an existing stream is left alone, and so is the note; another type is an error that names it.
local kind = redis.call('TYPE', stream).ok
local noted = redis.call('GET', incarnation)
if kind == 'stream' then
  -- A full Redis may refuse it: a later call makes up for it.
  if not noted then redis.pcall('SET', incarnation, num(nowMicros())) end
  return 0
end
if kind ~= 'none' then return redis.error_reply('WRONGTYPE the key ' .. stream .. ' of a partition holds a ' .. kind) end
redis.call('XGROUP', 'CREATE', stream, 'created', '$', 'MKSTREAM')
redis.call('XGROUP', 'DESTROY', stream, 'created')
redis.call('SET', incarnation, num(nowMicros()))
return 1`,
  decode: (reply) => asNumber(reply) === 1,
});

export const partitionUnmake: Script<'stream' | 'incarnation', never, boolean> = defineScript({
  name: 'partition-unmake',
  keys: ['stream', 'incarnation'],
  args: [],
  lua: `
-- Takes away a stream that was made while its topic was deleted. One with messages or groups stays: it is the topic's that was made
-- anew since, and an empty one is made again by whoever misses it. Returns 1 if it is gone by this.
-- Twice: it is gone. UNLINK is what a full Redis allows.
if redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 0 then return 0 end
if #redis.call('XINFO', 'GROUPS', stream) > 0 then return 0 end
redis.call('UNLINK', stream, incarnation)
return 1`,
  decode: (reply) => asNumber(reply) === 1,
});
