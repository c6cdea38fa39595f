import type { HandlerOutcome } from './handler.js';

// Registered symbols: the same in two copies of the library, and never equal to anything that a handler returns by chance.
const SUCCESS: unique symbol = Symbol.for('redis-streams-mq.result.SUCCESS');
const RETRY: unique symbol = Symbol.for('redis-streams-mq.result.RETRY');
const FAIL: unique symbol = Symbol.for('redis-streams-mq.result.FAIL');
const DEAD_LETTER: unique symbol = Symbol.for('redis-streams-mq.result.DEAD_LETTER');

/**
 * What a handler may return to decide about its message. Only these values decide; the text `'RETRY'`, or anything else,
 * is a success. To say when to retry or why a message is dead, throw `RetryLater` or `DeadLetter` instead.
 *
 * @example
 * ```ts
 * @StreamHandler('orders', 'billing')
 * async onOrder(order: Order): Promise<MessageHandleResult> {
 *   return (await this.billing.isOpen()) ? MessageHandleResult.SUCCESS : MessageHandleResult.RETRY;
 * }
 * ```
 */
export const MessageHandleResult: {
  /** Done: the message is acknowledged. The same as returning nothing. */
  readonly SUCCESS: typeof SUCCESS;
  /** Again after the back-off; a dead letter when the attempts are used up. */
  readonly RETRY: typeof RETRY;
  /** A dead letter at once, with the reason `rejected`. */
  readonly FAIL: typeof FAIL;
  /** The same as `FAIL`. */
  readonly DEAD_LETTER: typeof DEAD_LETTER;
} = Object.freeze({ SUCCESS, RETRY, FAIL, DEAD_LETTER });

/** One of the four values of the constant of the same name. */
export type MessageHandleResult = (typeof MessageHandleResult)[keyof typeof MessageHandleResult];

/** Ten years in ms. A retry beyond it would never be seen again, and near `Infinity` a due time means nothing. */
const MAX_RETRY_DELAY_MS = 10 * 365 * 24 * 3_600_000;

const CONTROL = Symbol.for('redis-streams-mq.control');

/** Not enumerable, to keep it out of logged errors. */
function brand(error: Error, kind: 'retry-later' | 'dead-letter'): void {
  Object.defineProperty(error, CONTROL, { value: kind });
}

/**
 * Thrown by a handler: handle this message again later. It counts as an attempt. It has to be thrown; returned, it is a
 * success like any other value.
 *
 * @example
 * ```ts
 * if (response.status === 429) throw new RetryLater(30_000, 'rate limited');
 * ```
 */
export class RetryLater extends Error {
  /**
   * @param delayMs - wait in ms, at least 0 and at most ten years; absent, or not such a number, the back-off decides.
   */
  constructor(
    readonly delayMs?: number,
    message = 'retry later',
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
    this.name = 'RetryLater';
    brand(this, 'retry-later');
  }
}

/**
 * Thrown by a handler: this message can never be handled, so it becomes a dead letter at once, with the reason
 * `rejected`. It has to be thrown; returned, it is a success like any other value.
 *
 * @example
 * ```ts
 * if (!customer) throw new DeadLetter(`no customer ${order.customerId}`);
 * ```
 */
export class DeadLetter extends Error {
  /** @param reason - for the person who looks at the dead letter; it is stored with it. */
  constructor(
    readonly reason: string,
    options?: { readonly cause?: unknown },
  ) {
    super(reason, options);
    this.name = 'DeadLetter';
    brand(this, 'dead-letter');
  }
}

/** A property of whatever was thrown, which may be a proxy or have getters that throw. */
function read(thrown: unknown, property: PropertyKey): unknown {
  if (typeof thrown !== 'object' || thrown === null) return undefined;
  try {
    return (thrown as Record<PropertyKey, unknown>)[property];
  } catch {
    return undefined;
  }
}

/** Recognises `RetryLater` by its brand, also one of another copy of the library. Never throws. */
export function isRetryLater(thrown: unknown): thrown is RetryLater {
  return read(thrown, CONTROL) === 'retry-later';
}

/** Recognises `DeadLetter` by its brand, also one of another copy of the library. Never throws. */
export function isDeadLetter(thrown: unknown): thrown is DeadLetter {
  return read(thrown, CONTROL) === 'dead-letter';
}

/** Whole milliseconds, never less than asked for; `undefined` when the back-off has to decide. */
function usableDelayMs(thrown: RetryLater): number | undefined {
  const delayMs = read(thrown, 'delayMs');
  // Adding zero makes a plain zero of the negative one.
  return isUsableDelayMs(delayMs) ? Math.ceil(delayMs) + 0 : undefined;
}

/** Whether a retry can wait that many milliseconds. */
export function isUsableDelayMs(delayMs: unknown): delayMs is number {
  return typeof delayMs === 'number' && delayMs >= 0 && delayMs <= MAX_RETRY_DELAY_MS;
}

/**
 * What a handler's end means for its message. It needs what the handler itself returned or threw, before an interceptor
 * or a filter has touched it. Never throws; any value may have been thrown.
 */
export function outcomeOf(result: { readonly value?: unknown } | { readonly error: unknown }): HandlerOutcome {
  if ('error' in result) {
    const { error } = result;
    if (isDeadLetter(error)) return { type: 'dead', reason: 'rejected', error };
    const delayMs = isRetryLater(error) ? usableDelayMs(error) : undefined;
    return delayMs === undefined ? { type: 'retry', error } : { type: 'retry', delayMs, error };
  }
  switch (result.value) {
    case MessageHandleResult.RETRY:
      return { type: 'retry' };
    case MessageHandleResult.FAIL:
    case MessageHandleResult.DEAD_LETTER:
      return { type: 'dead', reason: 'rejected' };
    default:
      return { type: 'success' };
  }
}
