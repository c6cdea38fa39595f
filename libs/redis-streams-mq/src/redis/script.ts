import { createHash } from 'node:crypto';
import { asArray, type Arg, type Outcome, type Reply } from './reply.js';

/**
 * A Lua script with its keys and arguments by name. Inside the Lua they are local variables of the same names;
 * `rest` is the index in ARGV at which the variable part begins.
 */
export interface Script<K extends string, A extends string, R> {
  readonly name: string;
  readonly lua: string;
  readonly sha: string;
  /** The source without the prelude. */
  readonly body: string;
  /** Arguments of EVALSHA (or EVAL, with the source in place of the digest) after the digest. */
  args(keys: Readonly<Record<K, string>>, args: Readonly<Record<A, Arg>>, rest?: readonly Arg[]): Arg[];
  /** Checks the reply's shape and gives it names. */
  decode(reply: Reply): R;
}

/** A script call ready to be sent, alone or in a pipeline. */
export interface ScriptCall<R> {
  readonly script: { readonly name: string; readonly lua: string; readonly sha: string; decode(reply: Reply): R };
  readonly args: readonly Arg[];
}

export interface ScriptDefinition<K extends string, A extends string, R> {
  readonly name: string;
  readonly keys: readonly K[];
  readonly args: readonly A[];
  /** Header comment: what it does, what it returns, why it is safe to run twice; then the code. */
  readonly lua: string;
  readonly decode: (reply: Reply) => R;
}

/**
 * Helpers every script may use. `now` is the server's clock, in milliseconds: due times and leases know no other.
 * Numbers leave Lua as strings through `num`, because `tostring` of 16 digits loses some.
 * `isEntry` tells fields that XADD takes in one call from what a damaged or foreign item may hold.
 */
const PRELUDE = `
local function num(n) return string.format('%.0f', n) end
local function nowMicros() local t = redis.call('TIME') return tonumber(t[1]) * 1000000 + tonumber(t[2]) end
local function now() return math.floor(nowMicros() / 1000) end
local function isEntry(fields)
  if type(fields) ~= 'table' or #fields % 2 ~= 0 or #fields > 1000 then return false end
  for i = 1, #fields do if type(fields[i]) ~= 'string' then return false end end
  return true
end
`;

function locals(names: readonly string[], table: 'KEYS' | 'ARGV'): string {
  if (names.length === 0) return '';
  return `local ${names.join(', ')} = ${names.map((_, i) => `${table}[${i + 1}]`).join(', ')}\n`;
}

export function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex');
}

export function defineScript<K extends string, A extends string, R>(
  definition: ScriptDefinition<K, A, R>,
): Script<K, A, R> {
  const { name, keys, args, decode } = definition;
  const body =
    locals(keys, 'KEYS') + locals(args, 'ARGV') + `local rest = ${args.length + 1}\n` + definition.lua.trim();
  const lua = PRELUDE + body;
  return {
    name,
    lua,
    sha: sha1(lua),
    body,
    decode,
    args: (keyValues, argValues, rest = []) => [
      keys.length,
      ...keys.map((key) => keyValues[key]),
      ...args.map((arg) => argValues[arg]),
      ...rest,
    ],
  };
}

/** A script over any number of partitions at once: `keys` is a flat list, read in Lua as KEYS. */
export interface MultiKeyScript<R> {
  readonly name: string;
  readonly lua: string;
  readonly sha: string;
  args(keys: readonly string[], args: readonly Arg[]): Arg[];
  decode(reply: Reply): R;
}

export function defineMultiKeyScript<R>(
  definition: Omit<ScriptDefinition<never, never, R>, 'keys' | 'args'>,
): MultiKeyScript<R> {
  const lua = PRELUDE + definition.lua.trim();
  return {
    name: definition.name,
    lua,
    sha: sha1(lua),
    decode: definition.decode,
    args: (keys, args) => [keys.length, ...keys, ...args],
  };
}

/**
 * `script` for many places in one call, for a server that has all of their keys: a call costs more than what a short
 * script does. An error of one place is its answer and hides no other's.
 */
export function defineForMany<R>(script: Script<never, never, R>): MultiKeyScript<readonly Outcome<R>[]> {
  return defineMultiKeyScript({
    name: `${script.name}-for-many`,
    lua: `
local function one(KEYS, ARGV)
${script.body}
end
local keys, args = tonumber(ARGV[1]), tonumber(ARGV[2])
local replies = {}
for i = 1, #KEYS / keys do
  local theirs = { unpack(ARGV, 3 + (i - 1) * args, 2 + i * args) }
  local done, reply = pcall(one, { unpack(KEYS, 1 + (i - 1) * keys, i * keys) }, theirs)
  if not done then
    local text = type(reply) == 'table' and reply.err or reply
    reply = { err = string.match(text, '^@[^:]*: ?%d+: ?%-?(.*)') or text }
  end
  replies[i] = reply or false
end
return replies`,
    decode: (reply) =>
      asArray(reply).map((one) => {
        try {
          return one instanceof Error ? { ok: false, error: one } : { ok: true, value: script.decode(one) };
        } catch (error) {
          return { ok: false, error: error as Error };
        }
      }),
  });
}

export function call<K extends string, A extends string, R>(
  script: Script<K, A, R>,
  keys: Readonly<Record<K, string>>,
  args: Readonly<Record<A, Arg>>,
  rest?: readonly Arg[],
): ScriptCall<R> {
  return { script, args: script.args(keys, args, rest) };
}

/** The calls, of which there is at least one, are all of the script that `forMany` was made of. */
export function callForMany<R>(
  forMany: MultiKeyScript<readonly Outcome<R>[]>,
  calls: readonly ScriptCall<R>[],
): ScriptCall<readonly Outcome<R>[]> {
  const [first] = calls;
  const keyCount = Number(first!.args[0]);
  const keys = calls.flatMap(({ args }) => args.slice(1, 1 + keyCount)) as string[];
  const args = calls.flatMap((one) => one.args.slice(1 + keyCount));
  return callMulti(forMany, keys, [keyCount, args.length / calls.length, ...args]);
}

export function callMulti<R>(script: MultiKeyScript<R>, keys: readonly string[], args: readonly Arg[]): ScriptCall<R> {
  return { script, args: script.args(keys, args) };
}
