import { asNumber } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export const setRetention: Script<'meta', never, boolean> = defineScript({
  name: 'set-retention',
  keys: ['meta'],
  args: [],
  lua: `
-- Writes bounds of a topic into its meta. rest: (bound, value) each, an empty value takes the bound away. Returns 1, or 0 when
-- the topic is not there. Twice: the same once more.
local stored = redis.call('HMGET', meta, 'partitionCount', 'deletedAt')
if not stored[1] or stored[2] then return 0 end
for i = rest, #ARGV, 2 do
  local field = 'retention:' .. ARGV[i]
  if ARGV[i + 1] == '' then redis.call('HDEL', meta, field) else redis.call('HSET', meta, field, ARGV[i + 1]) end
end
return 1`,
  decode: (reply) => asNumber(reply) === 1,
});
