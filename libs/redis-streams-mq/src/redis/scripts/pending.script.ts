import { asArray, asEntries, asNumber, asText, asTexts, type RawEntry } from '../reply.js';
import { defineScript, type Script } from '../script.js';

/** An entry that is in its stream. */
export type LivingEntry = RawEntry & { readonly fields: readonly Buffer[] };

export type PageReply =
  | { readonly status: 'fenced' }
  | {
      readonly status: 'ok';
      readonly entries: readonly LivingEntry[];
      readonly deleted: readonly string[];
      readonly last: string | null;
    };

export const page: Script<'source' | 'lease', 'token' | 'group' | 'consumer' | 'after' | 'count', PageReply> =
  defineScript({
    name: 'page',
    keys: ['source', 'lease'],
    args: ['token', 'group', 'consumer', 'after', 'count'],
    lua: `
-- Claims one page of the group's pending entries, oldest first, whoever had them: the lease proves they are orphans.
-- after: '-' or '(id'. Returns { 'ok', last id or '', entries, deleted ids }; deleted ones are acknowledged.
-- Twice: JUSTID raises no count, claiming one's own entry changes nothing, and the second page is the same.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
local pending = redis.call('XPENDING', source, group, after, '+', count)
local ids = {}
for i, item in ipairs(pending) do ids[i] = item[1] end
if #ids == 0 then return { 'ok', '', {}, {} } end
for i = 1, #ids, 1000 do
  local claim = { 'XCLAIM', source, group, consumer, 0, unpack(ids, i, math.min(i + 999, #ids)) }
  claim[#claim + 1] = 'JUSTID'
  redis.call(unpack(claim))
end
local entries, deleted = {}, {}
for _, id in ipairs(ids) do
  local found = redis.call('XRANGE', source, id, id)
  if found[1] then
    entries[#entries + 1] = found[1]
  else
    redis.call('XACK', source, group, id)
    deleted[#deleted + 1] = id
  end
end
return { 'ok', ids[#ids], entries, deleted }`,
    decode: (reply) => {
      const [status, last, entries, deleted] = asArray(reply);
      if (asText(status) === 'fenced') return { status: 'fenced' };
      return {
        status: 'ok',
        last: asText(last) || null,
        entries: asEntries(entries) as LivingEntry[],
        deleted: asTexts(deleted),
      };
    },
  });

export type HealReply =
  | { readonly status: 'fenced' }
  | { readonly status: 'missing' }
  | {
      readonly status: 'ok';
      readonly created: boolean;
      readonly retryCreated: boolean;
      readonly position: string;
      readonly reason: 'new' | 'commit' | 'rewound' | 'present';
    };

export const heal: Script<'stream' | 'retryStream' | 'lease' | 'commit', 'token' | 'group' | 'start', HealReply> =
  defineScript({
    name: 'heal',
    keys: ['stream', 'retryStream', 'lease', 'commit'],
    args: ['token', 'group', 'start'],
    lua: `
-- Makes the group where it is missing: at its commit position, else at start. A commit position behind the stream's end
-- counts as 0; a start behind it counts as the end, so that clocks that disagree hide nothing.
-- Returns { 'ok', created, position, reason, retryCreated }; 'missing' when the partition's stream is not there.
-- Twice: BUSYGROUP is success. Begins with a write that a full Redis allows. XLEN fails on a key of a wrong type before
-- a group is made.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
redis.call('HDEL', commit, '')
if redis.call('EXISTS', stream) == 0 then return { 'missing' } end
redis.call('XLEN', stream)
redis.call('XLEN', retryStream)
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return tonumber(ms or id), tonumber(seq or '0')
end
local info, last = redis.call('XINFO', 'STREAM', stream), '0-0'
for i = 1, #info, 2 do if info[i] == 'last-generated-id' then last = info[i + 1] end end
local function isBehindEnd(id)
  local ms, seq = parts(id)
  local lastMs, lastSeq = parts(last)
  if not ms then return false end
  return ms > lastMs or (ms == lastMs and seq > lastSeq)
end
local position, reason = redis.call('HGET', commit, group), 'commit'
if not position then
  position, reason = start, 'new'
  if isBehindEnd(start) then position = last end
elseif isBehindEnd(position) then
  redis.call('HDEL', commit, group)
  position, reason = '0', 'rewound'
end
local made = redis.pcall('XGROUP', 'CREATE', stream, group, position)
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
local madeRetry = redis.pcall('XGROUP', 'CREATE', retryStream, group, '0', 'MKSTREAM')
if madeRetry.err and not string.find(madeRetry.err, 'BUSYGROUP', 1, true) then return madeRetry end
if made.err then return { 'ok', 0, position, 'present', madeRetry.err and 0 or 1 } end
return { 'ok', 1, position, reason, madeRetry.err and 0 or 1 }`,
    decode: (reply) => {
      const [status, created, position, reason, retryCreated] = asArray(reply);
      const state = asText(status);
      if (state === 'fenced' || state === 'missing') return { status: state };
      return {
        status: 'ok',
        created: asNumber(created) === 1,
        retryCreated: asNumber(retryCreated) === 1,
        position: asText(position),
        reason: asText(reason) as 'new' | 'commit' | 'rewound' | 'present',
      };
    },
  });

export type MarkReply =
  | { readonly status: 'fenced' }
  | {
      readonly status: 'ok';
      /** How many other ownerships have noted the first entry. */
      readonly deaths: number;
      /** How many entries, from the first on, were noted. */
      readonly marked: number;
    };

export const markCrash: Script<'lease' | 'crash', 'token' | 'epoch', MarkReply> = defineScript({
  name: 'mark-crash',
  keys: ['lease', 'crash'],
  args: ['token', 'epoch'],
  lua: `
-- Notes that an ownership is about to handle entries that the owner before it may have died on: its epoch joins their lists.
-- rest: ids, in the order in which they are handled. An entry that another ownership has noted is noted alone, so that the
-- one that ends its owners is found; those nobody has noted are noted together.
-- Returns { 'ok', how many other ownerships are in the first one's list, how many were noted }. The settle takes the marks away.
-- Twice: an epoch is in a list once. Begins with a write that a full Redis allows.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
redis.call('HDEL', crash, '')
local deaths, marked = 0, 0
for i, stored in ipairs(redis.call('HMGET', crash, unpack(ARGV, rest, #ARGV))) do
  local others, isThere = 0, false
  for noted in string.gmatch(stored or '', '[^,]+') do
    if noted == epoch then isThere = true else others = others + 1 end
  end
  if i > 1 and others > 0 then break end
  if not isThere then redis.call('HSET', crash, ARGV[rest + i - 1], others == 0 and epoch or stored .. ',' .. epoch) end
  marked = i
  if others > 0 then
    deaths = others
    break
  end
end
return { 'ok', deaths, marked }`,
  decode: (reply) => {
    const [status, deaths, marked] = asArray(reply);
    if (asText(status) === 'fenced') return { status: 'fenced' };
    return { status: 'ok', deaths: asNumber(deaths), marked: asNumber(marked) };
  },
});

export const unmarkCrash: Script<'crash', 'epoch', number> = defineScript({
  name: 'unmark-crash',
  keys: ['crash'],
  args: ['epoch'],
  lua: `
-- Takes back the marks of an ownership that ended while its process lives on. rest: the ids. Returns how many it had.
-- Not fenced, since it touches nothing but what this epoch has written. Twice: finds none. Begins with a write that a full
-- Redis allows.
redis.call('HDEL', crash, '')
local found = 0
for i = rest, #ARGV do
  local id, left, had = ARGV[i], {}, false
  for marked in string.gmatch(redis.call('HGET', crash, id) or '', '[^,]+') do
    if marked == epoch then had = true else left[#left + 1] = marked end
  end
  if had then
    found = found + 1
    if #left == 0 then redis.call('HDEL', crash, id) else redis.call('HSET', crash, id, table.concat(left, ',')) end
  end
end
return found`,
  decode: (reply) => asNumber(reply),
});

export const dropDeadConsumers: Script<'source' | 'lease', 'token' | 'group' | 'consumer' | 'limit', number> =
  defineScript({
    name: 'drop-dead-consumers',
    keys: ['source', 'lease'],
    args: ['token', 'group', 'consumer', 'limit'],
    lua: `
-- Removes consumers other than the owner that have nothing pending, at most limit of them: only the owner reads, so
-- they are of processes that are gone. One that has entries pending stays, since they would vanish with it.
-- Returns how many it removed, -1 when fenced. Twice: finds them gone.
if redis.call('GET', lease) ~= token then return -1 end
local dropped = 0
for _, known in ipairs(redis.call('XINFO', 'CONSUMERS', source, group)) do
  local name, pending
  for i = 1, #known, 2 do
    if known[i] == 'name' then name = known[i + 1] elseif known[i] == 'pending' then pending = known[i + 1] end
  end
  if name ~= consumer and pending == 0 and dropped < tonumber(limit) then
    redis.call('XGROUP', 'DELCONSUMER', source, group, name)
    dropped = dropped + 1
  end
end
return dropped`,
    decode: (reply) => asNumber(reply),
  });

export const dropConsumer: Script<'source', 'group' | 'consumer', number> = defineScript({
  name: 'drop-consumer',
  keys: ['source'],
  args: ['group', 'consumer'],
  lua: `
-- Removes a consumer that has nothing pending; one that has is left, since its entries would vanish with it.
-- Returns 1 it is not there any more, 0 the group is not there, -1 it has pending entries. Twice: finds it gone.
local pending = redis.pcall('XPENDING', source, group, '-', '+', 1, consumer)
if pending.err then return 0 end
if #pending > 0 then return -1 end
redis.call('XGROUP', 'DELCONSUMER', source, group, consumer)
return 1`,
  decode: (reply) => asNumber(reply),
});
