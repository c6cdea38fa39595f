import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

type Truthy<T> = Exclude<T, false | null | undefined | 0 | ''>;

export interface WaitForOptions {
  /** @defaultValue 10000 */
  timeoutMs?: number;
  /** Completes the sentence "waited in vain for ...". */
  describe?: string;
}

/**
 * Looks every 5 ms until the condition gives something truthy, and resolves with that. A condition that throws counts as
 * not met, and what it threw last is the cause of the error at the deadline; one that never answers is given up then too.
 */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  { timeoutMs = 10_000, describe = String(condition) }: WaitForOptions = {},
): Promise<Truthy<T>> {
  const deadline = performance.now() + timeoutMs;
  const timer = new AbortController();
  const expired = sleep(timeoutMs, 'no answer', { signal: timer.signal }).catch(() => 'no answer');
  let outcome = 'no answer';
  let cause: unknown;
  try {
    while (performance.now() < deadline) {
      try {
        const look = Promise.resolve(condition()).then((value) => ({ value }));
        const seen = await Promise.race([look, expired]);
        if (typeof seen === 'string') break;
        if (seen.value) return seen.value as Truthy<T>;
        outcome = `last: ${inspect(seen.value)}`;
        cause = undefined;
      } catch (error) {
        outcome = `it threw ${inspect(error)}`;
        cause = error;
      }
      await sleep(5);
    }
  } finally {
    timer.abort();
  }
  throw new Error(`waited ${timeoutMs} ms in vain for ${describe} (${outcome})`, { cause });
}

export interface Deferred<T> {
  promise: Promise<T>;
  resolve(value: T): void;
  reject(error: unknown): void;
}

/** A promise that the test settles by hand. */
export function deferred<T = void>(): Deferred<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((res, rej) => {
    resolve = res;
    reject = rej;
  });
  return { promise, resolve, reject };
}
