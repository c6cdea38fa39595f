import { asArray, asNumber, asText, type Arg, type Reply } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { decodeHistory, type RawHistory } from './history.js';

export interface RawDeadLetter {
  readonly id: string;
  /** What the letter says about itself, but its history and the original fields. */
  readonly metadata: ReadonlyMap<string, string>;
  /** The original entry's fields and values, byte for byte; `null` when they cannot be read, or were not asked for. */
  readonly fields: readonly Buffer[] | null;
  readonly history: RawHistory;
}

export interface DeadLetterPageReply {
  readonly letters: readonly RawDeadLetter[];
  /** The last entry that was looked at; `null` when there was none. */
  readonly lastId: string | null;
  readonly looked: number;
  /** Nothing lies behind `lastId`. */
  readonly isEnd: boolean;
}

/** Which letters, as name and value pairs in the rest of the arguments; several values of one name are alternatives. */
export type DeadLetterCondition = 'group' | 'reason' | 'key' | 'errorText';

/** Of a stream range: `-`, `+`, an id, or `(id`. */
type RangeArg = 'low' | 'high' | 'scan' | 'failedFrom' | 'failedTo';

/** Bytes read by one script. */
const MOST_BYTES = 4_194_304;
/** Entries taken from the stream at a time. */
const CHUNK = 20;

/** The id of a letter and the time that it says it failed at come from two looks at the clock. */
const SLACK_MS = 60_000;

/**
 * Walks over the entries between low and high, at most `scan` of them, and hands those that match to `found`, which says
 * whether to go on. The id of a letter is as old as the letter, unless it was imported: `imports` tells until when
 * that happened, so that a bound of the time of failure hides none of them.
 */
const WALK = `local wanted = { group = {}, reason = {}, key = {} }
local conditions, errorText = {}, nil
for i = rest, #ARGV, 2 do
  if ARGV[i] == 'errorText' then errorText = string.lower(ARGV[i + 1])
  else
    if not next(wanted[ARGV[i]]) then conditions[#conditions + 1] = ARGV[i] end
    wanted[ARGV[i]][ARGV[i + 1]] = true
  end
end
local from, to = tonumber(failedFrom) or 0, tonumber(failedTo) or math.huge
local function metadataOf(entry)
  local of = {}
  for f = 1, #entry[2], 2 do of[entry[2][f]] = entry[2][f + 1] end
  return of
end
local function matches(of)
  for _, name in ipairs(conditions) do
    if not wanted[name][of[name] or false] then return false end
  end
  local at = tonumber(of.failedAt) or 0
  if at < from or at > to then return false end
  if not errorText then return true end
  return string.find(string.lower((of.errorName or '') .. ': ' .. (of.errorMessage or '')), errorText, 1, true) ~= nil
end
local function walk(newestFirst, found)
  local lastImport = tonumber(redis.call('ZRANGE', imports, -1, -1, 'WITHSCORES')[2]) or 0
  if low == '-' and from > 0 then low = num(math.max(0, from - ${SLACK_MS})) end
  if to < math.huge then
    local bound = math.max(to, lastImport) + ${SLACK_MS}
    if high == '+' or (tonumber(string.match(high, '^%(?(%d+)')) or 0) > bound then high = num(bound) end
  end
  local looked, bytes, lastId = 0, 0, ''
  while looked < tonumber(scan) do
    local size = math.min(${CHUNK}, tonumber(scan) - looked)
    local entries = newestFirst and redis.call('XREVRANGE', dlq, high, low, 'COUNT', size)
      or redis.call('XRANGE', dlq, low, high, 'COUNT', size)
    for _, entry in ipairs(entries) do
      looked, lastId = looked + 1, entry[1]
      for f = 1, #entry[2] do bytes = bytes + #entry[2][f] end
      local of = metadataOf(entry)
      if matches(of) and not found(entry, of) then return 0, lastId, looked end
      if bytes > ${MOST_BYTES} then return 0, lastId, looked end
    end
    if #entries < size then return 1, lastId, looked end
    if newestFirst then high = '(' .. lastId else low = '(' .. lastId end
  end
  return 0, lastId, looked
end`;

export const dlqPage: Script<'dlq' | 'imports', RangeArg | 'count' | 'newestFirst' | 'heads', DeadLetterPageReply> =
  defineScript({
    name: 'dlq-page',
    keys: ['dlq', 'imports'],
    args: ['low', 'high', 'scan', 'failedFrom', 'failedTo', 'count', 'newestFirst', 'heads'],
    lua: `
-- Reads the dead letters between low and high that meet the conditions, at most count, looking at no more than scan. rest:
-- the conditions. Returns { isEnd, last id looked at or '', looked, (id, metadata, fields or false, history) per letter };
-- heads '1': without fields and stack. Writes nothing.
${WALK}
local letters = {}
local isEnd, lastId, looked = walk(newestFirst == '1', function(entry, of)
  local metadata, fields, history = {}, false, false
  for f = 1, #entry[2], 2 do
    local name, value = entry[2][f], entry[2][f + 1]
    if name == 'fields' then
      local readable, unpacked = false, nil
      if heads ~= '1' then readable, unpacked = pcall(cmsgpack.unpack, value) end
      if readable and type(unpacked) == 'table' then fields = unpacked end
    elseif name == 'history' then
      local readable, unpacked = pcall(cmsgpack.unpack, value)
      if heads ~= '1' and readable and type(unpacked) == 'table' then history = unpacked end
    elseif heads ~= '1' or name ~= 'errorStack' then
      metadata[#metadata + 1] = name
      metadata[#metadata + 1] = value
    end
  end
  letters[#letters + 1] = { entry[1], metadata, fields, history }
  return #letters < tonumber(count)
end)
return { isEnd, lastId, looked, letters }`,
    decode: (reply) => {
      const [isEnd, lastId, looked, letters] = asArray(reply);
      return {
        isEnd: asNumber(isEnd) === 1,
        lastId: asText(lastId) || null,
        looked: asNumber(looked),
        letters: asArray(letters).map(decodeLetter),
      };
    },
  });

export interface DeadLetterCountReply {
  /** Letters in the stream, counted or not. */
  readonly length: number;
  readonly lastId: string | null;
  readonly looked: number;
  readonly isEnd: boolean;
  readonly counts: readonly {
    readonly group: string;
    readonly reason: string;
    readonly count: number;
    /** When the first of them failed, in milliseconds. */
    readonly oldest: number;
  }[];
}

export const dlqCount: Script<'dlq' | 'imports', RangeArg, DeadLetterCountReply> = defineScript({
  name: 'dlq-count',
  keys: ['dlq', 'imports'],
  args: ['low', 'high', 'scan', 'failedFrom', 'failedTo'],
  lua: `
-- Counts dead letters by group and reason, as dlq-page finds them. rest: the conditions.
-- Returns { isEnd, last id looked at or '', looked, length of the stream, (group, reason, count, oldest failedAt) ... }.
-- Writes nothing.
${WALK}
local order, counts = {}, {}
local isEnd, lastId, looked = walk(false, function(_, of)
  local group, reason, at = of.group or '', of.reason or 'malformed', tonumber(of.failedAt) or 0
  local name = #group .. ':' .. group .. reason
  local known = counts[name]
  if not known then
    known = { group, reason, 0, at }
    counts[name] = known
    order[#order + 1] = known
  end
  known[3] = known[3] + 1
  known[4] = math.min(known[4], at)
  return true
end)
local reply = { isEnd, lastId, looked, redis.call('XLEN', dlq) }
for _, known in ipairs(order) do
  reply[#reply + 1] = known[1]
  reply[#reply + 1] = known[2]
  reply[#reply + 1] = num(known[3])
  reply[#reply + 1] = num(known[4])
end
return reply`,
  decode: (reply) => {
    const [isEnd, lastId, looked, length, ...flat] = asArray(reply);
    const counts: DeadLetterCountReply['counts'][number][] = [];
    for (let i = 0; i < flat.length; i += 4) {
      counts.push({
        group: asText(flat[i]),
        reason: asText(flat[i + 1]),
        count: asNumber(flat[i + 2]),
        oldest: asNumber(flat[i + 3]),
      });
    }
    return {
      isEnd: asNumber(isEnd) === 1,
      lastId: asText(lastId) || null,
      looked: asNumber(looked),
      length: asNumber(length),
      counts,
    };
  },
});

function decodeLetter(reply: Reply): RawDeadLetter {
  const [id, metadata, fields, history] = asArray(reply);
  const flat = asArray(metadata);
  const map = new Map<string, string>();
  for (let i = 0; i < flat.length; i += 2) map.set(asText(flat[i]), asText(flat[i + 1]));
  return {
    id: asText(id),
    metadata: map,
    fields: Array.isArray(fields) && fields.every((field) => Buffer.isBuffer(field)) ? fields : null,
    history: decodeHistory(history),
  };
}

/** Conditions as the scripts take them. */
export function conditionArgs(conditions: readonly (readonly [DeadLetterCondition, string])[]): Arg[] {
  return conditions.flat();
}
