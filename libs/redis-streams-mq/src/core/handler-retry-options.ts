import type { RetryBackoff, RetryIf } from './handler.js';
import { ownOptions, unknownOption } from './kebab-options.js';
import { implementation, type OptionRule, problemOf } from './option-rules.js';
import { mqOptionRules } from './resolve-options.js';

/** Bounds of the exponential back-off of one subscription. */
export interface HandlerBackoff {
  /** Wait before the first retry, in ms; it doubles with each further one. @defaultValue `retryBaseBackoffMs` */
  readonly baseMs?: number;
  /** Longest wait, in ms. @defaultValue `retryMaxBackoffMs` */
  readonly maxMs?: number;
}

/** What follows when the handler fails. */
export interface HandlerRetry {
  /** The same as `retryMaxAttempts`. */
  readonly maxAttempts?: number;

  /**
   * Bounds of the exponential back-off, or a function `(attempt, error) => ms`. Its wait is taken as it is, without
   * jitter and without `retryMaxBackoffMs`. When it throws, or gives no number of milliseconds from 0 to ten years, the
   * exponential back-off decides, and the log says so. `RetryLater(ms)` goes before it.
   */
  readonly backoff?: HandlerBackoff | RetryBackoff;

  /**
   * Whether trying again makes sense after this error: `false` makes the message a dead letter at once, with the reason
   * `rejected`. It is not asked about `RetryLater` and `MessageHandleResult.RETRY`, which say it themselves. When it
   * throws, or returns anything but `false`, the message is retried.
   */
  readonly retryIf?: RetryIf;
}

const attempts = mqOptionRules.retryMaxAttempts;
const baseBackoff = mqOptionRules.retryBaseBackoffMs;
const maxBackoff = mqOptionRules.retryMaxBackoffMs;

const retryRules: { readonly [K in keyof Required<HandlerRetry>]: OptionRule<unknown> } = {
  maxAttempts: attempts,
  backoff: {
    kind: 'other',
    defaultValue: undefined,
    expected: `{ baseMs, maxMs } with ${baseBackoff.expected} each, or a function (attempt, error) => ms`,
    accepts: (value) =>
      typeof value === 'function' || keepsRules(value, { baseMs: optional(baseBackoff), maxMs: optional(maxBackoff) }),
  },
  retryIf: implementation<RetryIf | undefined>(undefined, 'a function (error, attempt) => boolean'),
};

function optional(rule: OptionRule<unknown>): OptionRule<unknown> {
  return { ...rule, accepts: (value) => value === undefined || rule.accepts(value) };
}

/** Whether it is a plain object in which every option has its rule and keeps it. */
export function keepsRules(value: unknown, known: Readonly<Record<string, OptionRule<unknown>>>): boolean {
  const entries = ownOptions(value);
  if (typeof entries === 'string') return false;
  const given = new Map(entries);
  return (
    [...given.keys()].every((name) => Object.hasOwn(known, name)) &&
    Object.entries(known).every(([name, rule]) => rule.accepts(given.get(name)))
  );
}

/** What is given twice, in two spellings. */
const twins = [
  ['timeoutMs', 'handlerTimeoutMs'],
  ['maxAttempts', 'retryMaxAttempts'],
  ['baseMs', 'retryBaseBackoffMs'],
  ['maxMs', 'retryMaxBackoffMs'],
] as const;

type Twins = { readonly retry?: HandlerRetry } & { readonly [K in 'timeoutMs' | (typeof twins)[number][1]]?: number };

/** Options of the handler that are given under both of their names. */
export function twinProblems(given: Twins): string[] {
  const { retry = {} } = given;
  const inner = { ...given, ...retry, ...(typeof retry.backoff === 'object' ? retry.backoff : undefined) };
  return twins
    .filter(([short, long]) => inner[short] !== undefined && given[long] !== undefined)
    .map(([short, long]) => `${short} and ${long} are the same; give one of them`);
}

/** What is wrong inside `retry`. */
export function retryProblems(retry: unknown): string[] {
  const entries = ownOptions(retry);
  if (typeof entries === 'string') return [];
  const problems: string[] = [];
  for (const [name, value] of entries) {
    const rule = Object.hasOwn(retryRules, name) ? retryRules[name as keyof HandlerRetry] : undefined;
    const problem =
      rule === undefined ? unknownOption(name, Object.keys(retryRules).values()) : problemOf(rule, name, value);
    if (value !== undefined && problem !== null) problems.push(`retry: ${problem}`);
  }
  return problems;
}
