import { asArray, asNumber, asText } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export interface HeartbeatReply {
  /** The server's clock in milliseconds. */
  readonly now: number;
  /** Living members with what they told about themselves. */
  readonly members: ReadonlyMap<string, string>;
}

export const heartbeat: Script<'members' | 'info', 'instance' | 'about' | 'ttl', HeartbeatReply> = defineScript({
  name: 'heartbeat',
  keys: ['members', 'info'],
  args: ['instance', 'about', 'ttl'],
  lua: `
-- Says that a member lives, forgets those that no longer do, and lists the living. Returns { now, id, about, ... }.
-- Twice: the same member with a later end. Purges first, so it works in a full Redis, and so that a key of a wrong type
-- fails it before anything is added.
local at = now()
redis.call('ZREM', members, '')
redis.call('HDEL', info, '')
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', num(at), 'LIMIT', 0, 500)) do
  redis.call('ZREM', members, dead)
  redis.call('HDEL', info, dead)
end
redis.call('ZADD', members, num(at + tonumber(ttl)), instance)
redis.call('HSET', info, instance, about)
local reply = { num(at) }
for _, id in ipairs(redis.call('ZRANGEBYSCORE', members, '(' .. num(at), '+inf', 'LIMIT', 0, 5000)) do
  reply[#reply + 1] = id
  reply[#reply + 1] = redis.call('HGET', info, id) or ''
end
return reply`,
  decode: (reply) => {
    const [now, ...flat] = asArray(reply);
    const members = new Map<string, string>();
    for (let i = 0; i < flat.length; i += 2) members.set(asText(flat[i]), asText(flat[i + 1]));
    return { now: asNumber(now), members };
  },
});

export interface LivingMember {
  readonly id: string;
  /** What it told about itself. */
  readonly about: string;
  /** For how much longer it counts as alive unless it is heard of again, in milliseconds. */
  readonly aliveMs: number;
}

export const livingMembers: Script<'members' | 'info', never, readonly LivingMember[]> = defineScript({
  name: 'living-members',
  keys: ['members', 'info'],
  args: [],
  lua: `
-- Lists the members that live, as heartbeat does, for one who is none. Returns (id, about, milliseconds left) per member.
-- Writes nothing.
local at = now()
local reply = {}
local living = redis.call('ZRANGEBYSCORE', members, '(' .. num(at), '+inf', 'WITHSCORES', 'LIMIT', 0, 5000)
for i = 1, #living, 2 do
  reply[#reply + 1] = { living[i], redis.call('HGET', info, living[i]) or '', num(tonumber(living[i + 1]) - at) }
end
return reply`,
  decode: (reply) =>
    asArray(reply).map((member) => {
      const [id, about, aliveMs] = asArray(member);
      return { id: asText(id), about: asText(about), aliveMs: asNumber(aliveMs) };
    }),
});
