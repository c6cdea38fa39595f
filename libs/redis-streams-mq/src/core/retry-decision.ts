import type { ResolvedHandlerOptions } from './handler.js';
import { backoffMs } from './retry-policy.js';
import { isRetryLater, isUsableDelayMs } from './results.js';

/** A handler call that failed. */
export interface FailedCall {
  /** Which call of the handler it was; the first is 1. */
  readonly attempt: number;
  readonly error?: unknown;
  /** What the handler itself asked for. */
  readonly delayMs?: number;
}

export type RetryDecision =
  | { readonly type: 'retry'; readonly delayMs: number }
  | { readonly type: 'dead'; readonly reason: 'exhausted' | 'rejected' };

export interface RetryDecisionDeps {
  readonly random: () => number;
  /** A callback of the user's threw, or gave what cannot be used; the message is retried as without it. */
  readonly onBadCallback: (error: unknown) => void;
}

type RetryOptions = Pick<
  ResolvedHandlerOptions,
  'retryMaxAttempts' | 'retryBaseBackoffMs' | 'retryMaxBackoffMs' | 'retryBackoff' | 'retryIf'
>;

/** What follows from a failed call. Never throws, whatever the callbacks of the options do. */
export function decideRetry(call: FailedCall, options: RetryOptions, deps: RetryDecisionDeps): RetryDecision {
  const { attempt, error, delayMs } = call;
  if (!isWorthRetrying(call, options, deps)) return { type: 'dead', reason: 'rejected' };
  if (attempt >= options.retryMaxAttempts) return { type: 'dead', reason: 'exhausted' };
  if (delayMs !== undefined) return { type: 'retry', delayMs };
  const own = options.retryBackoff && ownDelayMs(options.retryBackoff, attempt, error, deps);
  const bounds = { baseMs: options.retryBaseBackoffMs, maxMs: options.retryMaxBackoffMs };
  return { type: 'retry', delayMs: own ?? backoffMs(attempt, bounds, deps.random) };
}

function isWorthRetrying(
  { attempt, error }: FailedCall,
  { retryIf }: RetryOptions,
  { onBadCallback }: RetryDecisionDeps,
): boolean {
  if (retryIf === undefined || error === undefined || isRetryLater(error)) return true;
  try {
    const answer: unknown = retryIf(error, attempt);
    if (typeof answer !== 'boolean') refuse('retryIf', 'true or false', answer, onBadCallback);
    return answer !== false;
  } catch (thrown) {
    onBadCallback(thrown);
    return true;
  }
}

function ownDelayMs(
  backoff: NonNullable<RetryOptions['retryBackoff']>,
  attempt: number,
  error: unknown,
  { onBadCallback }: RetryDecisionDeps,
): number | undefined {
  try {
    const answer: unknown = backoff(attempt, error);
    if (isUsableDelayMs(answer)) return Math.ceil(answer);
    refuse('backoff', 'milliseconds from 0 to ten years', answer, onBadCallback);
  } catch (thrown) {
    onBadCallback(thrown);
  }
  return undefined;
}

/** An async callback gives a promise, whose rejection nobody would handle. */
function refuse(name: string, expected: string, answer: unknown, onBadCallback: (error: unknown) => void): void {
  if (answer instanceof Promise) answer.catch(() => undefined);
  const got = answer instanceof Promise ? 'a promise' : typeof answer === 'number' ? String(answer) : typeof answer;
  onBadCallback(new TypeError(`retry.${name} must return ${expected}; got ${got}`));
}
