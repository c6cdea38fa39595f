import { asNumber } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export const openWake: Script<'wake', 'group' | 'ttl', boolean> = defineScript({
  name: 'open-wake',
  keys: ['wake'],
  args: ['group', 'ttl'],
  lua: `
-- Makes or prolongs the stream that wakes a blocked reader. Returns 1 if it was made.
-- Twice: BUSYGROUP is success. Begins with a write that a full Redis allows, since without this stream nothing is read.
redis.call('PEXPIRE', wake, ttl)
local made = redis.pcall('XGROUP', 'CREATE', wake, group, '$', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
redis.call('PEXPIRE', wake, ttl)
return made.err and 0 or 1`,
  decode: (reply) => asNumber(reply) === 1,
});
