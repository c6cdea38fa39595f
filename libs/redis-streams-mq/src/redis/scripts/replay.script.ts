import { asArray, asText, asTexts } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { HISTORY } from './history.js';
import { IS_KNOWN } from './known-group.js';

/**
 * What became of one letter: `later`, the script had copied enough; `waiting`, an earlier replay or a retry of the same
 * message is still in the bucket, and is not overwritten.
 */
export type ReplayResult = 'replayed' | 'gone' | 'other-group' | 'unreadable' | 'waiting' | 'later';

export type ReplayReply =
  | { readonly status: 'paused' | 'no-group' }
  /** In the order of the ids. */
  | { readonly status: 'ok'; readonly results: readonly ReplayResult[] };

/** Bytes copied by one script. */
const MOST_BYTES = 4_194_304;

export const replay: Script<
  'dlq' | 'retry' | 'retryItems' | 'commit' | 'stream' | 'paused' | 'pausedAll',
  'group' | 'edits',
  ReplayReply
> = defineScript({
  name: 'replay',
  keys: ['dlq', 'retry', 'retryItems', 'commit', 'stream', 'paused', 'pausedAll'],
  args: ['group', 'edits'],
  lua: `
-- Moves dead letters into their group's retry bucket, due now, with no attempts made and this death in their history.
-- rest: edits names and values that replace those of the message, then the letters' ids.
-- Returns { 'ok', 'replayed' | 'gone' | 'other-group' | 'unreadable' | 'waiting' | 'later' per id }, or { 'paused' } or
-- { 'no-group' } with nothing done. 'waiting': the bucket has the message already. 'later': enough was copied.
-- Twice: each letter leaves the stream last, and the second call finds nothing. HEXISTS and ZCARD fail on a key of a
-- wrong type before anything is written.
if redis.call('EXISTS', paused, pausedAll) > 0 then return { 'paused' } end
${HISTORY}
${IS_KNOWN}
if not isKnown() then return { 'no-group' } end
redis.call('ZCARD', retry)
redis.call('HLEN', retryItems)
local firstId = rest + tonumber(edits)
local function edit(fields)
  for e = rest, firstId - 1, 2 do
    local kept, isSet = {}, false
    for f = 1, #fields, 2 do
      if fields[f] ~= ARGV[e] then
        kept[#kept + 1] = fields[f]
        kept[#kept + 1] = fields[f + 1]
      elseif not isSet then
        kept[#kept + 1] = fields[f]
        kept[#kept + 1] = ARGV[e + 1]
        isSet = true
      end
    end
    if not isSet then
      kept[#kept + 1] = ARGV[e]
      kept[#kept + 1] = ARGV[e + 1]
    end
    fields = kept
  end
  return fields
end
local at, copied, results = now(), 0, {}
-- Due, and in this order: equal times would be in the order of their names, and the next call is later than a microsecond
-- a letter.
local first = nowMicros() / 1000 - 2
local function putBack(id, position)
  local found = redis.call('XRANGE', dlq, id, id)
  if not found[1] then return 'gone' end
  local of = {}
  for f = 1, #found[1][2], 2 do of[found[1][2][f]] = found[1][2][f + 1] end
  if of.group ~= group then return 'other-group' end
  local origin, readable, fields = of.originalMessageId, false, nil
  if of.fields then readable, fields = pcall(cmsgpack.unpack, of.fields) end
  if not origin or not readable or not isEntry(fields) then return 'unreadable' end
  if redis.call('HEXISTS', retryItems, origin) == 1 then return 'waiting' end
  copied = copied + #of.fields
  local history = openHistory(of.history)
  local error = of.errorName and cut(of.errorName .. ': ' .. (of.errorMessage or '')) or ''
  remember(history[2], { of.failedAt or '0', of.attempts or '0', of.reason or '', error, num(at) })
  local deaths = (tonumber(history[3]) or 0) + 1
  local packed = cmsgpack.pack({ '0', '', edit(fields), cmsgpack.pack({ {}, history[2], num(deaths) }) })
  redis.call('HSET', retryItems, origin, packed)
  redis.call('ZADD', retry, string.format('%.6f', first + position / 2048), origin)
  redis.call('XDEL', dlq, id)
  return 'replayed'
end
for i = firstId, #ARGV do
  results[#results + 1] = copied > ${MOST_BYTES} and 'later' or putBack(ARGV[i], i - firstId + 1)
end
return { 'ok', results }`,
  decode: (reply) => {
    const [status, results] = asArray(reply);
    const state = asText(status);
    if (state === 'paused' || state === 'no-group') return { status: state };
    return { status: 'ok', results: asTexts(results) as ReplayResult[] };
  },
});
