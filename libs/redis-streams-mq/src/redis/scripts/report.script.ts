import { asArray, asNumber } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export interface ReportReply {
  readonly isOurs: boolean;
  /** How long the holder may keep it without a renewal, in milliseconds. */
  readonly pttl: number;
}

export const report: Script<'reporter', 'token' | 'ttl', ReportReply> = defineScript({
  name: 'report',
  keys: ['reporter'],
  args: ['token', 'ttl'],
  lua: `
-- Takes the right to report for all instances, or prolongs it; with ttl '0' gives it up. Returns { is ours, pttl }.
-- Twice: compares the whole token; taken again it is prolonged, given up again nothing is found.
-- Begins with a write that a full Redis allows.
local held = redis.call('GET', reporter)
if held == token and ttl == '0' then
  redis.call('DEL', reporter)
  return { 0, 0 }
end
if held == token then
  redis.call('PEXPIRE', reporter, ttl)
  return { 1, ttl }
end
if held or ttl == '0' then return { 0, math.max(0, redis.call('PTTL', reporter)) } end
redis.call('DEL', reporter)
redis.call('SET', reporter, token, 'PX', ttl)
return { 1, ttl }`,
  decode: (reply) => {
    const [isOurs, pttl] = asArray(reply);
    return { isOurs: asNumber(isOurs) === 1, pttl: asNumber(pttl) };
  },
});
