import { Lease } from '../../../libs/redis-streams-mq/src/consumer/lease.js';
import { dead, fail, settle } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { mutateClass, mutateScript } from './patch.js';

for (const script of [settle, fail, dead]) {
  mutateScript(script, ["if redis.call('GET', lease) ~= token then return { 'fenced' } end", '']);
}
mutateClass(Lease, 'isTrusted', function () {
  return !this.isEnded;
});
