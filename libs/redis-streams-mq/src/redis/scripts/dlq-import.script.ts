import { asArray, asText, asTexts, type Arg } from '../reply.js';
import { defineScript, type Script } from '../script.js';

/** A letter as it is to stand in the stream. */
export interface ImportedEntry {
  /** Its id where it was first, and the digest of its fields. */
  readonly id: string;
  readonly digest: string;
  readonly fields: readonly Arg[];
}

export type ImportResult = 'imported' | 'present';

export type ImportReply =
  | { readonly status: 'gone' }
  /** In the order of the letters. */
  | { readonly status: 'ok'; readonly results: readonly ImportResult[] };

export const dlqImport: Script<'dlq' | 'imports' | 'stream', 'keepMs', ImportReply> = defineScript({
  name: 'dlq-import',
  keys: ['dlq', 'imports', 'stream'],
  args: ['keepMs'],
  lua: `
-- Adds dead letters that are not there. rest: (id, digest, number of fields and values, these) per letter.
-- Returns { 'ok', 'imported' or 'present' per letter }: it was imported before, or its entry stands under its own id. { 'gone' }: the
-- partition is not there, and nothing is made for it.
-- Twice: the mark, written with the letter in one step or for the entry that stands there, says so when that is gone again; marks are kept for keepMs after the last
-- import. The first write tells a full Redis, and a key of a wrong type, before anything is added.
local results, at = {}, num(now())
redis.call('XLEN', dlq)
if redis.call('EXISTS', stream) == 0 then return { 'gone' } end
local i = rest
while i <= #ARGV do
  local id, digest, size = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local mark = id .. ':' .. digest
  local isPresent = redis.call('ZADD', imports, 'XX', 'INCR', 0, mark)
  if not isPresent then
    local found = redis.call('XRANGE', dlq, id, id)[1]
    isPresent = found and redis.sha1hex(table.concat(found[2], '\\0')) == digest
    -- Its id is as old as it is: it is no import that a search by time has to reckon with.
    if isPresent then redis.call('ZADD', imports, 0, mark) end
  end
  if isPresent then
    results[#results + 1] = 'present'
  else
    local entry = { 'XADD', dlq, '*', unpack(ARGV, i + 3, i + 2 + size) }
    entry[#entry + 1] = 'importedFrom'
    entry[#entry + 1] = mark
    redis.call(unpack(entry))
    redis.call('ZADD', imports, at, mark)
    results[#results + 1] = 'imported'
  end
  i = i + 3 + size
end
redis.call('PEXPIRE', imports, keepMs)
return { 'ok', results }`,
  decode: (reply) => {
    const [status, results] = asArray(reply);
    if (asText(status) === 'gone') return { status: 'gone' };
    return { status: 'ok', results: asTexts(results) as ImportResult[] };
  },
});

export function importArgs(entries: readonly ImportedEntry[]): Arg[] {
  return entries.flatMap(({ id, digest, fields }) => [id, digest, fields.length, ...fields]);
}
