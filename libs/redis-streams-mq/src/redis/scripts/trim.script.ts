import { asArray, asNumber, asText } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { IS_BEFORE } from './stream-ids.js';

export interface TrimReply {
  readonly length: number;
  /** Entries removed, by the rule that wanted it. */
  readonly byLength: number;
  readonly byAge: number;
  /** Between the oldest and `beforeId`. */
  readonly byId: number;
  /** Removed by the hard bound, or by force, although some group had not settled them. */
  readonly byHardBound: number;
  /** The group that kept an entry which a rule wanted to go; empty when none did. */
  readonly pinnedBy: string;
  /** Groups passed over, and how many of the removed entries they had not settled. */
  readonly abandoned: readonly { readonly group: string; readonly count: number; readonly idleMs: number }[];
}

type TrimArg = 'maxLen' | 'maxAgeMs' | 'hardMaxLen' | 'beforeId' | 'limit' | 'guarded' | 'force' | 'abandonedMs';

export const trim: Script<'stream' | 'commit' | 'activity', TrimArg, TrimReply> = defineScript({
  name: 'trim',
  keys: ['stream', 'commit', 'activity'],
  args: ['maxLen', 'maxAgeMs', 'hardMaxLen', 'beforeId', 'limit', 'guarded', 'force', 'abandonedMs'],
  lua: `
-- Removes the oldest entries, at most limit, that are beyond maxLen or older than maxAgeMs (0: no such rule), or stand before
-- beforeId ('' none). guarded '1':
-- nothing goes that some group has not settled, be it known to the stream or, after a loss, to the commit positions
-- alone, and nothing at all while there is no group; but what is beyond hardMaxLen goes whatever anybody has settled.
-- force '1': so does what any rule wants. A group without an owner for longer than abandonedMs (0: none is) keeps nothing.
-- Returns { length before, by length, by age, by id, unsettled, group that kept something or '', abandoned groups { name, entries
-- they had not settled, ms without an owner } }. A group whose last owner is not known counts from its first look.
-- Twice: what is gone is gone, and what is left is judged anew. Reads first, so that a key of a wrong type fails it whole.
local length = redis.call('XLEN', stream)
maxLen, maxAgeMs, hardMaxLen = tonumber(maxLen), tonumber(maxAgeMs), tonumber(hardMaxLen)
local excess = maxLen > 0 and length - maxLen or 0
local hardExcess = hardMaxLen > 0 and length - hardMaxLen or 0
local at = now()
local before = maxAgeMs > 0 and at - maxAgeMs or 0
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local function msOf(id) return tonumber(string.match(id, '^(%d+)')) end
${IS_BEFORE}
local function isBeforeId(id) return beforeId ~= '' and isBefore(id, beforeId) end
local function isWanted(i, id) return i <= excess or i <= hardExcess or msOf(id) < before or isBeforeId(id) end
if not oldest or not isWanted(1, oldest[1]) then return { length, 0, 0, 0, 0, '', {} } end

local lastSeen, unseen, abandoned = {}, {}, {}
if guarded == '1' and tonumber(abandonedMs) > 0 then
  local seen = redis.call('HGETALL', activity)
  for i = 1, #seen, 2 do lastSeen[seen[i]] = seen[i + 1] end
else
  redis.call('HLEN', activity)
end
local keepFrom, keptBy
local function keep(id, group, isSettled)
  if not string.match(id, '^%d+%-%d+$') then id = '0-0' end
  if group ~= '' and tonumber(abandonedMs) > 0 then
    if not lastSeen[group] then unseen[#unseen + 1] = group end
    local idle = lastSeen[group] and tonumber(lastSeen[group]) and at - tonumber(lastSeen[group]) or 0
    if idle > tonumber(abandonedMs) then
      abandoned[#abandoned + 1] = { name = group, from = id, isSettled = isSettled, count = 0, idle = idle }
      return
    end
  end
  if not keepFrom or isBefore(id, keepFrom) then keepFrom, keptBy = id, group end
end
if guarded == '1' then
  local present = {}
  for _, known in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = {}
    for i = 1, #known, 2 do group[known[i]] = known[i + 1] end
    present[group.name] = true
    if group.pending > 0 then keep(redis.call('XPENDING', stream, group.name)[2], group.name)
    else keep(group['last-delivered-id'], group.name, true) end
  end
  local commits = redis.call('HGETALL', commit)
  for i = 1, #commits, 2 do
    if not present[commits[i]] then keep(commits[i + 1], commits[i], true) end
  end
  if not keepFrom and #abandoned == 0 then keep('0-0', '') end
end

local byLength, byAge, byId, unsettled, pinnedBy, firstKept = 0, 0, 0, 0, '', nil
for i, entry in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', tonumber(limit) + 1)) do
  local id = entry[1]
  firstKept = id
  if i > tonumber(limit) or not isWanted(i, id) then break end
  if keepFrom and not isBefore(id, keepFrom) then
    if i > hardExcess and force ~= '1' then
      pinnedBy = keptBy
      break
    end
    unsettled = unsettled + 1
  elseif i <= excess or i <= hardExcess then byLength = byLength + 1
  elseif msOf(id) < before then byAge = byAge + 1
  else byId = byId + 1 end
  for _, group in ipairs(abandoned) do
    if isBefore(group.from, id) or (id == group.from and not group.isSettled) then group.count = group.count + 1 end
  end
  firstKept = nil
end
local removed = byLength + byAge + byId + unsettled
if removed > 0 then
  if firstKept then redis.call('XTRIM', stream, 'MINID', firstKept)
  else redis.call('XTRIM', stream, 'MAXLEN', length - removed) end
end
-- After what a full Redis allows; refused, the time without an owner begins at a later look.
for _, group in ipairs(unseen) do redis.pcall('HSET', activity, group, num(at)) end
local passed = {}
for _, group in ipairs(abandoned) do
  if group.count > 0 then passed[#passed + 1] = { group.name, group.count, num(group.idle) } end
end
return { length, byLength, byAge, byId, unsettled, pinnedBy, passed }`,
  decode: (reply) => {
    const [length, byLength, byAge, byId, byHardBound, pinnedBy, abandoned] = asArray(reply);
    return {
      length: asNumber(length),
      byLength: asNumber(byLength),
      byAge: asNumber(byAge),
      byId: asNumber(byId),
      byHardBound: asNumber(byHardBound),
      pinnedBy: asText(pinnedBy),
      abandoned: asArray(abandoned).map((item) => {
        const [group, count, idleMs] = asArray(item);
        return { group: asText(group), count: asNumber(count), idleMs: asNumber(idleMs) };
      }),
    };
  },
});
