import { asArray, asNumber, asText } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { IS_BEFORE } from './stream-ids.js';

export interface TrimReply {
  readonly length: number;
  /** Entries removed, by the rule that wanted it. */
  readonly byLength: number;
  readonly byAge: number;
  /** Removed by the hard bound although some group had not settled them. */
  readonly byHardBound: number;
  /** The group that kept an entry which a rule wanted to go; empty when none did. */
  readonly pinnedBy: string;
}

export const trim: Script<'stream' | 'commit', 'maxLen' | 'maxAgeMs' | 'hardMaxLen' | 'limit' | 'guarded', TrimReply> =
  defineScript({
    name: 'trim',
    keys: ['stream', 'commit'],
    args: ['maxLen', 'maxAgeMs', 'hardMaxLen', 'limit', 'guarded'],
    lua: `
-- Removes the oldest entries, at most limit, that are beyond maxLen or older than maxAgeMs (0: no such rule). guarded '1':
-- nothing goes that some group has not settled, be it known to the stream or, after a loss, to the commit positions
-- alone, and nothing at all while there is no group; but what is beyond hardMaxLen goes whatever anybody has settled.
-- Returns { length before, by length, by age, by the hard bound, group that kept something or '' }.
-- Twice: what is gone is gone, and what is left is judged anew. Reads first, so that a key of a wrong type fails it whole.
local length = redis.call('XLEN', stream)
maxLen, maxAgeMs, hardMaxLen = tonumber(maxLen), tonumber(maxAgeMs), tonumber(hardMaxLen)
local excess = maxLen > 0 and length - maxLen or 0
local hardExcess = hardMaxLen > 0 and length - hardMaxLen or 0
local before = maxAgeMs > 0 and now() - maxAgeMs or 0
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local function msOf(id) return tonumber(string.match(id, '^(%d+)')) end
local function isWanted(i, id) return i <= excess or i <= hardExcess or msOf(id) < before end
if not oldest or not isWanted(1, oldest[1]) then return { length, 0, 0, 0, '' } end

${IS_BEFORE}
local keepFrom, keptBy
local function keep(id, group)
  if not string.match(id, '^%d+%-%d+$') then id = '0-0' end
  if not keepFrom or isBefore(id, keepFrom) then keepFrom, keptBy = id, group end
end
if guarded == '1' then
  local present = {}
  for _, known in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = {}
    for i = 1, #known, 2 do group[known[i]] = known[i + 1] end
    present[group.name] = true
    if group.pending > 0 then keep(redis.call('XPENDING', stream, group.name)[2], group.name)
    else keep(group['last-delivered-id'], group.name) end
  end
  local commits = redis.call('HGETALL', commit)
  for i = 1, #commits, 2 do
    if not present[commits[i]] then keep(commits[i + 1], commits[i]) end
  end
  if not keepFrom then keep('0-0', '') end
end

local byLength, byAge, byHardBound, pinnedBy, firstKept = 0, 0, 0, '', nil
for i, entry in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', tonumber(limit) + 1)) do
  local id = entry[1]
  firstKept = id
  if i > tonumber(limit) or not isWanted(i, id) then break end
  if keepFrom and not isBefore(id, keepFrom) then
    if i > hardExcess then
      pinnedBy = keptBy
      break
    end
    byHardBound = byHardBound + 1
  elseif i <= excess or i <= hardExcess then byLength = byLength + 1
  else byAge = byAge + 1 end
  firstKept = nil
end
local removed = byLength + byAge + byHardBound
if removed > 0 then
  if firstKept then redis.call('XTRIM', stream, 'MINID', firstKept)
  else redis.call('XTRIM', stream, 'MAXLEN', length - removed) end
end
return { length, byLength, byAge, byHardBound, pinnedBy }`,
    decode: (reply) => {
      const [length, byLength, byAge, byHardBound, pinnedBy] = asArray(reply);
      return {
        length: asNumber(length),
        byLength: asNumber(byLength),
        byAge: asNumber(byAge),
        byHardBound: asNumber(byHardBound),
        pinnedBy: asText(pinnedBy),
      };
    },
  });
