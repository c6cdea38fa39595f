import { asArray, asNumber, asTexts } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export type NotePauseReply =
  | { readonly status: 'gone' }
  /** `change`: each pause and resumption of this topic has a greater number than the one before. */
  | { readonly status: 'noted'; readonly partitionCount: number; readonly change: number };

export const notePause: Script<'meta', 'group' | 'isPaused', NotePauseReply> = defineScript({
  name: 'note-pause',
  keys: ['meta'],
  args: ['group', 'isPaused'],
  lua: `
-- Notes in a topic's meta that a group (empty: all groups) is paused, or no longer is, for partitions that come later.
-- Returns { partition count, number of the last change }, or {} when the topic is not there. The number is a time where that is
-- greater, so that it grows also past a loss of the meta.
-- Twice: what is noted already is left, and its number with it.
local stored = redis.call('HMGET', meta, 'partitionCount', 'deletedAt', 'pauseChange')
if not stored[1] or stored[2] then return {} end
local field = group == '' and 'paused' or 'paused:' .. group
local change = tonumber(stored[3] or '0')
local isNoted = redis.call('HEXISTS', meta, field) == 1
if isNoted ~= (isPaused == '1') then
  change = math.max(change + 1, now())
  if isNoted then redis.call('HDEL', meta, field) else redis.call('HSET', meta, field, num(now())) end
  redis.call('HSET', meta, 'pauseChange', num(change))
end
return { stored[1], num(change) }`,
  decode: (reply) => {
    const [count, change] = asArray(reply);
    if (count === undefined) return { status: 'gone' };
    return { status: 'noted', partitionCount: asNumber(count), change: asNumber(change) };
  },
});

export const flagPause: Script<
  'flag' | 'activity' | 'pauseChanges',
  'group' | 'isPaused' | 'change',
  readonly string[]
> = defineScript({
  name: 'flag-pause',
  keys: ['flag', 'activity', 'pauseChanges'],
  args: ['group', 'isPaused', 'change'],
  lua: `
-- Sets or takes away a pause flag of one partition: of a group, or of all groups (empty). One that is late, the flag having been
-- changed by a change of a greater number, does nothing. While a group is paused its activity
-- is 'paused' and no time, and after a pause the time without an owner counts from now.
-- Returns the groups that may hold a lease: nobody acquires one once the flag is set, and acquire wrote them there.
-- Twice: a flag that is as it should be is left, and so is the activity. Taking it away begins with a write that a full Redis
-- allows.
local known = redis.call('HGETALL', activity)
local last = tonumber(redis.call('HGET', pauseChanges, group) or '0')
if tonumber(change) >= last then
  if isPaused ~= '1' then
    if redis.call('DEL', flag) == 1 then
      for i = 1, #known, 2 do
        local isOurs = known[i] == group or (group == '' and known[i + 1] ~= 'paused')
        if isOurs then redis.call('HSET', activity, known[i], num(now())) end
      end
    end
  elseif redis.call('EXISTS', flag) == 0 then
    redis.call('SET', flag, '1')
    if group ~= '' then redis.call('HSET', activity, group, 'paused') end
  end
  if tonumber(change) > last then redis.call('HSET', pauseChanges, group, change) end
end
local groups = {}
for i = 1, #known, 2 do groups[#groups + 1] = known[i] end
return groups`,
  decode: asTexts,
});

export interface PauseState {
  /** Whether all groups are paused; a group of `groups` stays paused when that ends. */
  readonly all: boolean;
  readonly groups: readonly string[];
  /** Grows with each pause and resumption of this topic. */
  readonly change: number;
}

export const pauseState: Script<'meta', never, PauseState> = defineScript({
  name: 'pause-state',
  keys: ['meta'],
  args: [],
  lua: `
-- Reads what a topic's meta says of pauses: { number of the last change, '1' if all groups are paused, paused groups... }.
-- Writes nothing.
local stored = redis.call('HGETALL', meta)
local reply = { '0', '0' }
for i = 1, #stored, 2 do
  local name = stored[i]
  if name == 'pauseChange' then reply[1] = stored[i + 1]
  elseif name == 'paused' then reply[2] = '1'
  elseif string.sub(name, 1, 7) == 'paused:' then reply[#reply + 1] = string.sub(name, 8) end
end
return reply`,
  decode: (reply) => {
    const [change, all, ...groups] = asTexts(reply);
    return { change: Number(change), all: all === '1', groups: groups.sort() };
  },
});
