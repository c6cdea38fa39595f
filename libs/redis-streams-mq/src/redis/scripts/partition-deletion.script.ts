import { asArray, asNumber, asText, asTexts } from '../reply.js';
import { defineMultiKeyScript, defineScript, type MultiKeyScript, type Script } from '../script.js';

export type StopPartitionReply =
  { readonly status: 'anew' } | { readonly status: 'stopped'; readonly groups: readonly string[] };

export const stopPartition: Script<
  'incarnation' | 'pausedAll' | 'activity' | 'commit' | 'stream',
  'noted',
  StopPartitionReply
> = defineScript({
  name: 'stop-partition',
  keys: ['incarnation', 'pausedAll', 'activity', 'commit', 'stream'],
  args: ['noted'],
  lua: `
-- Pauses all groups of a partition that is to be deleted, if it is still the one that was noted (empty: none was). Returns
-- { 'stopped', every group there is } or { 'anew' }. Groups that the stream alone knows are written beside it: it goes first.
-- Without note and stream there is nothing to stop, and no flag may wait there for a partition that is made anew.
-- Twice: all is there already. Begins with a write that a full Redis allows.
if (redis.call('GET', incarnation) or '') ~= noted then return { 'anew' } end
local groups, known = {}, {}
local function add(group)
  if not known[group] then groups[#groups + 1] = group end
  known[group] = true
end
for _, key in ipairs({ activity, commit }) do
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do add(fields[i]) end
end
redis.call('HDEL', activity, '')
local kind = redis.call('TYPE', stream).ok
if noted ~= '' or kind ~= 'none' then redis.call('SET', pausedAll, '1') end
if kind == 'stream' then
  for _, of in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    for i = 1, #of, 2 do
      if of[i] == 'name' and not known[of[i + 1]] then
        redis.call('HSET', commit, of[i + 1], '0-0')
        add(of[i + 1])
      end
    end
  end
end
return { 'stopped', groups }`,
  decode: (reply) => {
    const [status, groups] = asArray(reply);
    return asText(status) === 'anew' ? { status: 'anew' } : { status: 'stopped', groups: asTexts(groups) };
  },
});

/** The first key is the partition's incarnation, the argument what was noted of it. */
export const deletePartition: MultiKeyScript<boolean> = defineMultiKeyScript({
  name: 'delete-partition',
  lua: `
-- Deletes keys of a partition, if it is still the one that was noted (empty: none was). Returns 1, or 0 when it is another.
-- Twice: what is gone is gone. UNLINK is what a full Redis allows.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('UNLINK', unpack(KEYS, 2))
return 1`,
  decode: (reply) => asNumber(reply) === 1,
});
