import { asArray, asNumber, asText, asTexts } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export type NoteRaiseReply =
  { readonly status: 'gone' } | { readonly status: 'noted' | 'more'; readonly partitionCount: number };

export const noteRaise: Script<'meta', 'count', NoteRaiseReply> = defineScript({
  name: 'note-raise',
  keys: ['meta'],
  args: ['count'],
  lua: `
-- Notes in a topic's meta up to which count partitions are being made, so that a deletion takes those along which a raise that broke
-- off has left. Returns { 'noted' | 'more' (it has more), partition count } or { 'gone' }. Twice: it is noted already.
local stored = redis.call('HMGET', meta, 'partitionCount', 'deletedAt', 'raisingTo')
if not stored[1] or stored[2] then return { 'gone' } end
if tonumber(stored[1]) > tonumber(count) then return { 'more', stored[1] } end
if tonumber(stored[3] or '0') < tonumber(count) then redis.call('HSET', meta, 'raisingTo', count) end
return { 'noted', stored[1] }`,
  decode: (reply) => {
    const [status, count] = asArray(reply);
    const state = asText(status) as NoteRaiseReply['status'];
    return state === 'gone' ? { status: state } : { status: state, partitionCount: asNumber(count) };
  },
});

export type RaiseReply =
  | { readonly status: 'gone' }
  /** `paused`: what is paused has changed since it was read. */
  | { readonly status: 'raised' | 'more' | 'paused'; readonly partitionCount: number };

export const raiseCount: Script<'meta' | 'partitions', 'count' | 'pauseChange', RaiseReply> = defineScript({
  name: 'raise-count',
  keys: ['meta', 'partitions'],
  args: ['count', 'pauseChange'],
  lua: `
-- Raises a topic's partition count. rest: the stream keys of the partitions that come, whose streams are there already, with pause
-- flags as of pauseChange. Returns { 'raised' | 'more' (it has more) | 'paused' (a pause came or went), partition count } or { 'gone' }.
-- Twice: it has that count already. Begins with the addition, and the count comes last.
local stored = redis.call('HMGET', meta, 'partitionCount', 'deletedAt', 'pauseChange', 'raisingTo')
if not stored[1] or stored[2] then return { 'gone' } end
if tonumber(stored[1]) > tonumber(count) then return { 'more', stored[1] } end
if (stored[3] or '0') ~= pauseChange then return { 'paused', stored[1] } end
for i = rest, #ARGV, 1000 do redis.call('SADD', partitions, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
redis.call('HSET', meta, 'partitionCount', count)
if tonumber(stored[4] or '0') <= tonumber(count) then redis.call('HDEL', meta, 'raisingTo') end
return { 'raised', count }`,
  decode: (reply) => {
    const [status, count] = asArray(reply);
    const state = asText(status) as RaiseReply['status'];
    return state === 'gone' ? { status: state } : { status: state, partitionCount: asNumber(count) };
  },
});

export type DeletionReply =
  /** `anew`: the topic is another incarnation than the one that was named. */
  | { readonly status: 'gone' | 'anew' }
  | {
      readonly status: 'marked';
      /** With those that a raise had begun to make. */
      readonly partitionCount: number;
      readonly incarnation: string;
      /** Groups that the meta names. */
      readonly groups: readonly string[];
    };

export const markDeleted: Script<'meta', 'incarnation', DeletionReply> = defineScript({
  name: 'mark-deleted',
  keys: ['meta'],
  args: ['incarnation'],
  lua: `
-- Marks a topic as deleted: from now on nobody makes, reads or fills it. incarnation: only that one (empty: any). Returns { 'marked',
-- partition count, incarnation, groups that the meta names }, { 'gone' } when there is none or its deletion is finished, or
-- { 'anew' } when it is another one. Twice: the first time stays. HDEL lets it work in a full Redis.
local stored = redis.call('HGETALL', meta)
local of, groups = {}, {}
for i = 1, #stored, 2 do
  of[stored[i]] = stored[i + 1]
  local group = string.match(stored[i], '^start:(.+)$') or string.match(stored[i], '^paused:(.+)$')
  if group then groups[#groups + 1] = group end
end
if not of.partitionCount or of.isDeleted then return { 'gone' } end
if incarnation ~= '' and of.incarnation ~= incarnation then return { 'anew' } end
redis.call('HDEL', meta, '')
if not of.deletedAt then redis.call('HSET', meta, 'deletedAt', num(now())) end
local count = math.max(tonumber(of.partitionCount), tonumber(of.raisingTo or '0'))
return { 'marked', num(count), of.incarnation or '', groups }`,
  decode: (reply) => {
    const [status, count, incarnation, groups] = asArray(reply);
    const state = asText(status) as DeletionReply['status'];
    if (state !== 'marked') return { status: state };
    return {
      status: state,
      partitionCount: asNumber(count),
      incarnation: asText(incarnation),
      groups: [...new Set(asTexts(groups))],
    };
  },
});

export const finishDeletion: Script<'meta' | 'partitions', 'incarnation', boolean> = defineScript({
  name: 'finish-deletion',
  keys: ['meta', 'partitions'],
  args: ['incarnation'],
  lua: `
-- Leaves of a deleted topic's meta only that it was deleted. Returns 1, or 0 when it is not marked or another incarnation.
-- Twice: the same once more.
local stored = redis.call('HMGET', meta, 'partitionCount', 'incarnation', 'createdAt', 'deletedAt')
if not stored[4] or (stored[2] or '') ~= incarnation then return 0 end
redis.call('DEL', meta, partitions)
redis.call('HSET', meta, 'partitionCount', stored[1], 'incarnation', stored[2] or '', 'createdAt', stored[3] or '0')
redis.call('HSET', meta, 'deletedAt', stored[4], 'isDeleted', '1')
return 1`,
  decode: (reply) => asNumber(reply) === 1,
});

export const deleteGroup: Script<
  | 'stream'
  | 'retryStream'
  | 'lease'
  | 'epoch'
  | 'retry'
  | 'retryItems'
  | 'held'
  | 'crash'
  | 'commit'
  | 'activity'
  | 'paused'
  | 'pauseChanges',
  'token' | 'group',
  { readonly status: 'fenced' | 'deleted' }
> = defineScript({
  name: 'delete-group',
  keys: [
    'stream',
    'retryStream',
    'lease',
    'epoch',
    'retry',
    'retryItems',
    'held',
    'crash',
    'commit',
    'activity',
    'paused',
    'pauseChanges',
  ],
  args: ['token', 'group'],
  lua: `
-- Deletes all that a group has on a partition, under a lease of the administration, which goes last. Its dead letters stay.
-- Returns { 'deleted' }. Twice: fenced, since the lease is gone. Begins with a write that a full Redis allows.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
redis.call('XLEN', stream)
redis.call('HLEN', activity)
redis.call('HLEN', pauseChanges)
redis.call('HDEL', commit, group)
redis.call('HDEL', pauseChanges, group)
redis.call('HDEL', activity, group)
if redis.call('EXISTS', stream) == 1 then redis.call('XGROUP', 'DESTROY', stream, group) end
redis.call('UNLINK', retryStream, retry, retryItems, held, crash, paused, epoch, lease)
return { 'deleted' }`,
  decode: (reply) => ({ status: asText(asArray(reply)[0]) as 'fenced' | 'deleted' }),
});
