import { asArray, asNumber, asText } from '../reply.js';
import { defineScript, type Script } from '../script.js';

export interface DlqTally {
  /** Letters in the stream, counted by this call or not. */
  readonly length: number;
  /** The last letter that was counted, or `after` when there was none. */
  readonly upTo: string;
  /** Whether there is nothing behind it. */
  readonly isWhole: boolean;
  readonly counts: readonly { readonly group: string; readonly reason: string; readonly count: number }[];
}

export const dlqTally: Script<'dlq', 'after' | 'limit', DlqTally> = defineScript({
  name: 'dlq-tally',
  keys: ['dlq'],
  args: ['after', 'limit'],
  lua: `
-- Counts the dead letters behind an id by group and reason, at most limit. Returns { length, up to, is whole, (group, reason,
-- count)... }. Its pages grow and it ends after a megabyte, since the payloads come along. Writes nothing.
limit = tonumber(limit)
local upTo, seen, bytes, page, isWhole = after, 0, 0, 4, false
local counts, order = {}, {}
while seen < limit and bytes <= 1048576 do
  local asked = math.min(page, limit - seen)
  local letters = redis.call('XRANGE', dlq, '(' .. upTo, '+', 'COUNT', asked)
  for _, letter in ipairs(letters) do
    local group, reason = '', 'malformed'
    for f = 1, #letter[2], 2 do
      if letter[2][f] == 'group' then group = letter[2][f + 1] elseif letter[2][f] == 'reason' then reason = letter[2][f + 1] end
      bytes = bytes + #letter[2][f + 1]
    end
    local kind = group .. '\\0' .. reason
    if not counts[kind] then
      order[#order + 1] = kind
      counts[kind] = { group, reason, 0 }
    end
    counts[kind][3] = counts[kind][3] + 1
    upTo = letter[1]
  end
  seen = seen + #letters
  if #letters < asked then
    isWhole = true
    break
  end
  page = page * 4
end
local reply = { redis.call('XLEN', dlq), upTo, isWhole and 1 or 0 }
for _, kind in ipairs(order) do for i = 1, 3 do reply[#reply + 1] = counts[kind][i] end end
return reply`,
  decode: (reply) => {
    const [length, upTo, isWhole, ...flat] = asArray(reply);
    const counts: { group: string; reason: string; count: number }[] = [];
    for (let i = 0; i < flat.length; i += 3) {
      counts.push({ group: asText(flat[i]), reason: asText(flat[i + 1]), count: asNumber(flat[i + 2]) });
    }
    return { length: asNumber(length), upTo: asText(upTo), isWhole: asNumber(isWhole) === 1, counts };
  },
});
