import { asArray, asNumber, asText } from '../reply.js';
import { defineMultiKeyScript, defineScript, type MultiKeyScript, type Script } from '../script.js';

export type AcquireReply =
  | {
      readonly status: 'acquired';
      readonly epoch: number;
      readonly clean: boolean;
      /**
       * For how long the partition had been without an owner, in milliseconds; `unknown` when the lease before ended by
       * itself, `never` when there was none before.
       */
      readonly freeForMs: number | 'unknown' | 'never';
    }
  | { readonly status: 'held'; readonly token: string; readonly pttl: number }
  | { readonly status: 'paused' };

export const acquire: Script<
  'lease' | 'epoch' | 'paused' | 'pausedAll' | 'activity',
  'instance' | 'nonce' | 'ttl' | 'group' | 'forAdmin',
  AcquireReply
> = defineScript({
  name: 'acquire',
  keys: ['lease', 'epoch', 'paused', 'pausedAll', 'activity'],
  args: ['instance', 'nonce', 'ttl', 'group', 'forAdmin'],
  lua: `
-- Takes a free lease. The epoch key remembers '<epoch>#<nonce>#<clean>@<free for>', or '<epoch>##released@<when>' after
-- an owner that left in order; the lease holds '<instance>#<epoch>'.
-- The group's entry in activity is written with it: whoever has set a pause flag finds there all groups that may hold a lease.
-- forAdmin '1': pauses do not matter, and it is no activity of the group.
-- Returns { 'acquired', epoch, clean, free for } | { 'held', token, pttl } | { 'paused' }. clean: the owner before released
-- it. free for: milliseconds since then, 'unknown' when its lease ended by itself, 'never' when there was no owner before.
-- Twice: the same instance and nonce get the same epoch again, prolonged. Never takes from a living owner.
-- Begins with a write that a full Redis allows. HLEN fails on a key of a wrong type before anything is written.
redis.call('HLEN', activity)
redis.call('PEXPIRE', epoch, 604800000)
local last, lastNonce, how, since = '0', '', '', 'never'
local stored = redis.call('GET', epoch)
if stored then
  local a, b, c, d = string.match(stored, '^(%d+)#([^#]*)#([^@]*)@?(.*)$')
  if a then last, lastNonce, how, since = a, b, c, d end
end
local held = redis.call('GET', lease)
if held then
  if lastNonce == nonce and held == instance .. '#' .. last then
    redis.call('PEXPIRE', lease, ttl)
    return { 'acquired', last, how == '1' and 1 or 0, since }
  end
  return { 'held', held, redis.call('PTTL', lease) }
end
if forAdmin ~= '1' and redis.call('EXISTS', paused, pausedAll) > 0 then return { 'paused' } end
local at = now()
local clean = how == 'released' and '1' or '0'
local freeFor = how == '' and 'never' or 'unknown'
if how == 'released' and tonumber(since) then freeFor = num(math.max(0, at - tonumber(since))) end
local number = num(math.max(tonumber(last) + 1, at))
redis.call('SET', epoch, number .. '#' .. nonce .. '#' .. clean .. '@' .. freeFor, 'PX', 604800000)
if forAdmin ~= '1' then redis.call('HSET', activity, group, num(at)) end
redis.call('SET', lease, instance .. '#' .. number, 'PX', ttl)
return { 'acquired', number, tonumber(clean), freeFor }`,
  decode: (reply) => {
    const [status, a, b, c] = asArray(reply);
    switch (asText(status)) {
      case 'acquired':
        return { status: 'acquired', epoch: asNumber(a), clean: asNumber(b) === 1, freeForMs: freeForOf(asText(c)) };
      case 'held':
        return { status: 'held', token: asText(a), pttl: asNumber(b) };
      default:
        return { status: 'paused' };
    }
  },
});

function freeForOf(text: string): number | 'unknown' | 'never' {
  if (text === 'never') return text;
  return /^\d+$/.test(text) ? Number(text) : 'unknown';
}

export const release: Script<'lease' | 'epoch', 'token' | 'keepLease', boolean> = defineScript({
  name: 'release',
  keys: ['lease', 'epoch'],
  args: ['token', 'keepLease'],
  lua: `
-- Notes that the owner leaves in order, and when, and gives up the lease if it is still ours. Returns 1 if it was ours.
-- keepLease '1': a handler may still run, so that the lease ends by itself; its end is not taken for a death.
-- Twice: compares the whole token; the second call finds another or none, or writes the same.
-- Begins with a write that a full Redis allows.
if redis.call('GET', lease) ~= token then return 0 end
redis.call('PEXPIRE', epoch, 604800000)
-- The token's own number: the epoch key itself is gone after an ownership of more than seven days.
local number = string.match(token, '(%d+)$')
local since = keepLease == '1' and '' or '@' .. num(now())
if number then redis.call('SET', epoch, number .. '##released' .. since, 'PX', 604800000) end
if keepLease ~= '1' then redis.call('DEL', lease) end
return 1`,
  decode: (reply) => asNumber(reply) === 1,
});

export const forsake: Script<'lease', 'token', boolean> = defineScript({
  name: 'forsake',
  keys: ['lease'],
  args: ['token'],
  lua: `
-- Gives up a lease under which nothing was done: how the ownership before it ended stays as it was, or counts as a death.
-- Returns 1 if it was ours. Twice: compares the whole token, and the second call finds none.
if redis.call('GET', lease) ~= token then return 0 end
redis.call('DEL', lease)
return 1`,
  decode: (reply) => asNumber(reply) === 1,
});

export interface RenewedLease {
  readonly state: 'owned' | 'paused' | 'other' | 'missing';
  /** The server's pending totals; -1 when the group is not there. */
  readonly pending: number;
  readonly retryPending: number;
}

/** Per lease six keys (lease, stream, retry stream, paused, pausedAll, activity) and two arguments (token, group) after the ttl. */
export const renew: MultiKeyScript<readonly RenewedLease[]> = defineMultiKeyScript({
  name: 'renew',
  lua: `
-- Prolongs the leases that are still ours. ARGV: ttl, then token and group per lease.
-- Returns per lease state, pending total, pending total of the retry stream. Notes the group's activity, unless it is paused:
-- then activity says so.
-- Twice: compare and PEXPIRE; a missing lease is lost and never made again. A lease key of a wrong type is lost ('other')
-- and does not take the other leases along; neither does an activity key of one.
local reply, at = {}, num(now())
for i = 1, #KEYS / 6 do
  local lease, stream, retryStream, paused, pausedAll, activity = unpack(KEYS, 6 * i - 5, 6 * i)
  local token, group = ARGV[2 * i], ARGV[2 * i + 1]
  local held = redis.pcall('GET', lease)
  local state = 'missing'
  if held == token then
    redis.call('PEXPIRE', lease, ARGV[1])
    state = redis.call('EXISTS', paused, pausedAll) > 0 and 'paused' or 'owned'
    if state == 'owned' then redis.pcall('HSET', activity, group, at) end
  elseif held then
    state = 'other'
  end
  reply[#reply + 1] = state
  for _, source in ipairs({ stream, retryStream }) do
    local summary = state == 'owned' and redis.pcall('XPENDING', source, group) or { -1 }
    reply[#reply + 1] = summary.err and -1 or summary[1]
  end
end
return reply`,
  decode: (reply) => {
    const flat = asArray(reply);
    const leases: RenewedLease[] = [];
    for (let i = 0; i < flat.length; i += 3) {
      leases.push({
        state: asText(flat[i]) as RenewedLease['state'],
        pending: asNumber(flat[i + 1]),
        retryPending: asNumber(flat[i + 2]),
      });
    }
    return leases;
  },
});

export interface LeaseHolder {
  /** `<instance>#<epoch>`, or `null` when the lease is free. */
  readonly token: string | null;
  readonly pttl: number;
  readonly paused: boolean;
}

/** Per lease three keys: lease, paused, pausedAll. */
export const holders: MultiKeyScript<readonly LeaseHolder[]> = defineMultiKeyScript({
  name: 'holders',
  lua: `
-- Reads leases. Returns token (or ''), remaining milliseconds and whether it is paused, per lease. Writes nothing.
-- A key of a wrong type counts as free: whoever acquires that partition meets the error, the others go on.
local reply = {}
for i = 1, #KEYS / 3 do
  local lease, paused, pausedAll = unpack(KEYS, 3 * i - 2, 3 * i)
  local held = redis.pcall('GET', lease)
  reply[3 * i - 2] = type(held) == 'string' and held or ''
  reply[3 * i - 1] = redis.call('PTTL', lease)
  reply[3 * i] = redis.call('EXISTS', paused, pausedAll)
end
return reply`,
  decode: (reply) => {
    const flat = asArray(reply);
    const result: LeaseHolder[] = [];
    for (let i = 0; i < flat.length; i += 3) {
      result.push({
        token: asText(flat[i]) || null,
        pttl: asNumber(flat[i + 1]),
        paused: asNumber(flat[i + 2]) > 0,
      });
    }
    return result;
  },
});
