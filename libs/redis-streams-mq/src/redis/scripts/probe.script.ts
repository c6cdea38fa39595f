import { asNumber } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export const probe: Script<'topics', never, number> = defineScript({
  name: 'probe',
  keys: ['topics'],
  args: [],
  lua: `
-- Does what only a server that takes writes allows, and changes nothing: adds to the registry one of its own members.
-- A full, read-only or under-replicated server refuses. Returns the number of topics. Twice: nothing changes.
local one = redis.call('SRANDMEMBER', topics)
if one then redis.call('SADD', topics, one) else redis.call('SREM', topics, '') end
return redis.call('SCARD', topics)`,
  decode: asNumber,
});
