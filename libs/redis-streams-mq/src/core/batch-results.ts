import type { HandlerOutcome, ReceivedMessage } from './handler.js';
import { MessageHandleResult, outcomeOf } from './results.js';

/** One message of a batch that failed, by its place in the array, its `ctx.id` or its `ctx.eventId`. */
export type BatchItemFailure = ({ readonly index: number } | { readonly id: string } | { readonly eventId: string }) & {
  /** What it failed of; `RetryLater` and `DeadLetter` mean what they always do. Absent: the `BatchFailure` itself. */
  readonly error?: unknown;
};

const BATCH_FAILURE: unique symbol = Symbol.for('redis-streams-mq.batch-failure');

/**
 * Thrown by a handler of batches: these messages failed, and the others succeeded. One that names no message, or one that
 * is not in the batch, fails them all.
 *
 * @example
 * ```ts
 * const refused = await this.bank.chargeAll(orders);
 * if (refused.length > 0) throw new BatchFailure(refused.map(({ index, error }) => ({ index, error })));
 * ```
 */
export class BatchFailure extends Error {
  constructor(
    readonly failures: readonly BatchItemFailure[],
    message = `${failures.length} messages of the batch failed`,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
    this.name = 'BatchFailure';
    Object.defineProperty(this, BATCH_FAILURE, { value: true });
  }
}

/** Recognises `BatchFailure` by its brand, also one of another copy of the library. */
export function isBatchFailure(thrown: unknown): thrown is BatchFailure {
  return thrown instanceof Error && Reflect.get(thrown, BATCH_FAILURE) === true;
}

/**
 * What the end of a handler of batches means for each of the messages it was given. An array with a result for each
 * message decides about each; one of another length that has results in it can mean nothing, and so fails them all.
 * Anything else decides about all, as `outcomeOf` does about one.
 */
export function batchOutcomes(
  result: { readonly value?: unknown } | { readonly error: unknown },
  messages: readonly ReceivedMessage[],
): readonly HandlerOutcome[] {
  if ('error' in result) {
    const named = isBatchFailure(result.error) ? failedIn(result.error, messages) : null;
    if (named === null) return messages.map(() => outcomeOf(result));
    return messages.map((_message, i) => (named.has(i) ? outcomeOf({ error: named.get(i) }) : { type: 'success' }));
  }
  const { value } = result;
  if (!Array.isArray(value)) return messages.map(() => outcomeOf({ value }));
  const results = value as readonly unknown[];
  if (results.length === messages.length) return messages.map((_message, i) => outcomeOf(settledOf(results[i])));
  if (!results.some(decides)) return messages.map(() => ({ type: 'success' }));
  const error = new Error(`the handler returned ${results.length} results for a batch of ${messages.length} messages`);
  return messages.map(() => ({ type: 'retry', error }));
}

/** Index to error; `null` when it cannot be told which are meant. */
function failedIn(failure: BatchFailure, messages: readonly ReceivedMessage[]): Map<number, unknown> | null {
  const { failures } = failure;
  if (!Array.isArray(failures) || failures.length === 0) return null;
  const named = new Map<number, unknown>();
  for (const item of failures as readonly unknown[]) {
    if (typeof item !== 'object' || item === null) return null;
    const { index, id, eventId, error } = item as Readonly<Record<string, unknown>>;
    const at =
      index === undefined
        ? messages.findIndex(({ context }) => (id === undefined ? context.eventId === eventId : context.id === id))
        : messages.findIndex((_message, i) => i === index);
    if (at === -1) return null;
    named.set(at, error === undefined ? failure : error);
  }
  return named;
}

/** One result, which may be one of `Promise.allSettled`. */
function settledOf(result: unknown): { readonly value?: unknown } | { readonly error: unknown } {
  if (typeof result !== 'object' || result === null) return { value: result };
  const { status, value, reason } = result as Readonly<Record<string, unknown>>;
  if (status === 'rejected') return { error: reason };
  return status === 'fulfilled' ? { value } : { value: result };
}

function decides(result: unknown): boolean {
  const settled = settledOf(result);
  return 'error' in settled || Object.values(MessageHandleResult).includes(settled.value as MessageHandleResult);
}
