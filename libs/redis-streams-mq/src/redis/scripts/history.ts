import { asArray, type Reply } from '../reply.js';

/** Earlier failures that a message carries, and earlier deaths that its dead letter carries: the newest so many. */
const MOST_REMEMBERED = 10;
/** Bytes of an error's text that are remembered. */
const TEXT_LENGTH = 200;

/**
 * What a message has been through travels with it, packed: { attempts, deaths, number of deaths }, each attempt being
 * { number, when, error } and each death { when, attempts, reason, error, when it was replayed }. All are strings.
 */
export const HISTORY: string = `local function openHistory(packed)
  local readable, history = false, nil
  if packed then readable, history = pcall(cmsgpack.unpack, packed) end
  if not readable or type(history) ~= 'table' or type(history[1]) ~= 'table' or type(history[2]) ~= 'table' then
    return { {}, {}, '0' }
  end
  return history
end
local function remember(list, item)
  if #list >= ${MOST_REMEMBERED} then table.remove(list, 1) end
  list[#list + 1] = item
end
local function cut(text)
  if #text <= ${TEXT_LENGTH} then return text end
  return (string.gsub(string.sub(text, 1, ${TEXT_LENGTH}), '[\\194-\\244][\\128-\\191]*$', '')) .. '...'
end`;

export interface RawAttempt {
  readonly attempt: number;
  readonly at: number;
  readonly error: string;
}

export interface RawDeath {
  readonly at: number;
  readonly attempts: number;
  readonly reason: string;
  readonly error: string;
  readonly replayedAt: number;
}

export interface RawHistory {
  readonly attempts: readonly RawAttempt[];
  readonly deaths: readonly RawDeath[];
  readonly deathCount: number;
}

/** Never throws: a damaged history must not hide its letter. */
export function decodeHistory(reply: Reply | undefined): RawHistory {
  const [attempts, deaths, deathCount] = list(reply);
  return {
    attempts: list(attempts).map((item) => {
      const [attempt, at, error] = list(item);
      return { attempt: number(attempt), at: number(at), error: text(error) };
    }),
    deaths: list(deaths).map((item) => {
      const [at, made, reason, error, replayedAt] = list(item);
      return {
        at: number(at),
        attempts: number(made),
        reason: text(reason),
        error: text(error),
        replayedAt: number(replayedAt),
      };
    }),
    deathCount: number(deathCount),
  };
}

function list(reply: Reply | undefined): Reply[] {
  return Array.isArray(reply) ? asArray(reply) : [];
}

function text(reply: Reply | undefined): string {
  return Buffer.isBuffer(reply) ? reply.toString('utf8') : '';
}

function number(reply: Reply | undefined): number {
  const value = Number(text(reply));
  return Number.isFinite(value) ? value : 0;
}
