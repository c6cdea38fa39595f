import { asTexts } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export interface TakeOutReply {
  readonly status: 'deleted' | 'gone' | 'fenced';
}

export const dlqTakeOut: Script<'dlq' | 'lease', 'token' | 'id', TakeOutReply> = defineScript({
  name: 'dlq-take-out',
  keys: ['dlq', 'lease'],
  args: ['token', 'id'],
  lua: `
-- Deletes a dead letter that its handler is done with, if the lease is still ours. Returns 'deleted', 'gone' or 'fenced'.
-- Twice: finds it gone. XDEL is the first write: a full Redis allows it.
if redis.call('GET', lease) ~= token then return { 'fenced' } end
return { redis.call('XDEL', dlq, id) == 1 and 'deleted' or 'gone' }`,
  decode: (reply) => ({ status: asTexts(reply)[0] as TakeOutReply['status'] }),
});
