import { asArray, asNumber, asText } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export type HoldReply =
  | { readonly status: 'fenced' }
  | {
      readonly status: 'ok';
      readonly now: number;
      /** Per id: when it is due, by the server's clock; `null`: no longer pending, someone else settled it. */
      readonly due: readonly (number | null)[];
    };

export const hold: Script<'source' | 'lease' | 'held' | 'crash', 'token' | 'group', HoldReply> = defineScript({
  name: 'hold',
  keys: ['source', 'lease', 'held', 'crash'],
  args: ['token', 'group'],
  lua: `
-- Notes of failed entries, which stay pending, how often they were tried and when they are due: '<attempts>:<due>'. rest:
-- (id, attempts made, delay in ms) per entry. Returns { 'ok', now, due or '' per entry }; '' is no longer pending.
-- Twice: only a higher attempt is written, and a lower or equal one answers what is there.
-- The note is the first write, so that a full Redis fails it whole. HLEN fails on a key of a wrong type before it.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
redis.call('HLEN', crash)
local at = now()
local reply = { 'ok', num(at) }
for i = rest, #ARGV, 3 do
  local id, attempts, due = ARGV[i], ARGV[i + 1], num(at + tonumber(ARGV[i + 2]))
  if #redis.call('XPENDING', source, group, id, id, 1) == 0 then
    redis.call('HDEL', held, id)
    due = ''
  else
    local before, beforeDue = string.match(redis.call('HGET', held, id) or '', '^(%d+):(%d+)$')
    if before and tonumber(before) >= tonumber(attempts) then due = beforeDue
    else redis.call('HSET', held, id, attempts .. ':' .. due) end
    redis.call('HDEL', crash, id)
  end
  reply[#reply + 1] = due
end
return reply`,
  decode: (reply) => {
    const [status, now, ...due] = asArray(reply);
    if (asText(status) === 'fenced') return { status: 'fenced' };
    return {
      status: 'ok',
      now: asNumber(now),
      due: due.map((value) => (asText(value) === '' ? null : asNumber(value))),
    };
  },
});

export interface HeldNote {
  readonly id: string;
  readonly attempts: number;
  /** By the server's clock. */
  readonly due: number;
}

export type HeldReply =
  { readonly status: 'fenced' } | { readonly status: 'ok'; readonly now: number; readonly notes: readonly HeldNote[] };

export const heldNotes: Script<'lease' | 'held', 'token', HeldReply> = defineScript({
  name: 'held-notes',
  keys: ['lease', 'held'],
  args: ['token'],
  lua: `
-- Reads the notes of entries that wait for their retry, which the owner before has left. There are no more than an owner
-- may hold. Returns { 'ok', now, (id, attempts, due)... }; what is no note is left out. Writes nothing.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
local reply = { 'ok', num(now()) }
local notes = redis.call('HGETALL', held)
for i = 1, #notes, 2 do
  local attempts, due = string.match(notes[i + 1], '^(%d+):(%d+)$')
  if attempts then
    reply[#reply + 1] = notes[i]
    reply[#reply + 1] = attempts
    reply[#reply + 1] = due
  end
end
return reply`,
  decode: (reply) => {
    const [status, now, ...flat] = asArray(reply);
    if (asText(status) === 'fenced') return { status: 'fenced' };
    const notes: HeldNote[] = [];
    for (let i = 0; i + 2 < flat.length; i += 3) {
      notes.push({ id: asText(flat[i]), attempts: asNumber(flat[i + 1]), due: asNumber(flat[i + 2]) });
    }
    return { status: 'ok', now: asNumber(now), notes };
  },
});

export const dropHeld: Script<'source' | 'lease' | 'held', 'token' | 'group', number> = defineScript({
  name: 'drop-held',
  keys: ['source', 'lease', 'held'],
  args: ['token', 'group'],
  lua: `
-- Removes the notes of entries that are no longer pending: someone settled them past the owner. rest: their ids.
-- Returns how many it removed, -1 when fenced. Twice: finds none. Begins with a write that a full Redis allows.
if redis.call('GET', lease) ~= token then return -1 end
redis.call('HDEL', held, '')
local dropped = 0
for i = rest, #ARGV do
  if #redis.call('XPENDING', source, group, ARGV[i], ARGV[i], 1) == 0 then
    dropped = dropped + redis.call('HDEL', held, ARGV[i])
  end
end
return dropped`,
  decode: (reply) => asNumber(reply),
});
