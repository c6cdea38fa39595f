/** A timer that has been set; `cancel()` is idempotent. */
export interface Timer {
  cancel(): void;
}

/**
 * The only source of time in the library. Wall time is for display and for message timestamps; every decision about
 * trust uses `monotonic()`, which no clock adjustment moves.
 */
export interface Clock {
  /** Wall-clock milliseconds since the epoch. */
  now(): number;
  /** Milliseconds from an arbitrary origin, never going back. */
  monotonic(): number;
  /** Calls `callback` once after `ms` milliseconds; the timer does not keep the process alive. */
  setTimer(callback: () => void, ms: number): Timer;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  setTimer: (callback, ms) => {
    // A longer delay would fire at once.
    const handle = setTimeout(callback, Math.min(ms, 2_147_483_647));
    handle.unref();
    return { cancel: () => clearTimeout(handle) };
  },
};

/** Resolves after `ms`, or at once when `signal` aborts. Never rejects: the caller looks at the signal. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      timer.cancel();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = clock.setTimer(done, ms);
    signal?.addEventListener('abort', done, { once: true });
  });
}

/** Waits for `work`, but no longer than `ms`; says whether it ended, in whatever way. What is not waited for goes on. */
export async function within(clock: Clock, work: Promise<unknown>, ms: number): Promise<boolean> {
  const done = new AbortController();
  const ended = work.then(
    () => true,
    () => true,
  );
  const late = pause(clock, ms, done.signal).then(() => false);
  const result = await Promise.race([ended, late]);
  done.abort();
  return result;
}
