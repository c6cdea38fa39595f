import { asArray, asEntry, asNumber, asText, type RawEntry } from '../reply.js';
import { defineScript, type Script } from '../script.js';
import { WALK } from './stream-walk.js';

export interface FindEventReply {
  readonly scanned: number;
  /** The entry; `null` when it is not among those that were looked at. */
  readonly entry: RawEntry | null;
  /** The last id that was looked at; `null` when the range was looked at to its end. */
  readonly last: string | null;
}

export const findEvent: Script<'stream', 'eventId' | 'from' | 'to' | 'limit', FindEventReply> = defineScript({
  name: 'find-event',
  keys: ['stream'],
  args: ['eventId', 'from', 'to', 'limit'],
  lua: `
-- Looks for the first entry with that event id (as it is on the wire) from one id to another, at most limit entries far:
-- the payloads stay on the server. Returns { looked at, last id or '' at the end of the range, { entry } or {} }. Writes nothing.
${WALK}
local found = {}
local seen, last, more = walk(stream, from, to, tonumber(limit), 'XRANGE', function(entry)
  for f = 1, #entry[2] - 1, 2 do
    if entry[2][f] == 'eventId' and entry[2][f + 1] == eventId then
      found[1] = entry
      return true
    end
  end
end)
return { seen, more == 1 and last or '', found }`,
  decode: (reply) => {
    const [scanned, last, found] = asArray(reply);
    const [entry] = asArray(found);
    return {
      scanned: asNumber(scanned),
      last: asText(last) || null,
      entry: entry === undefined ? null : asEntry(entry),
    };
  },
});
