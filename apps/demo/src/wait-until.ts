import { setTimeout as sleep } from 'node:timers/promises';
import { RunError } from './run-error.js';

const POLL_MS = 20;
const STALLED_MS = 30_000;

export interface Waiting {
  /** Said when nothing moves any more. */
  readonly what: string;
  readonly condition: () => boolean | Promise<boolean>;
  /** Any figure that changes while things move. */
  readonly progress: () => number;
  /** @throws when waiting is pointless. */
  readonly assertPossible: () => void;
  readonly signal: AbortSignal;
}

/** @throws RunError when the condition does not hold and nothing has moved for half a minute. */
export async function waitUntil({ what, condition, progress, assertPossible, signal }: Waiting): Promise<void> {
  let seen = progress();
  let movedAt = performance.now();
  while (!(await condition())) {
    assertPossible();
    if (progress() !== seen) {
      seen = progress();
      movedAt = performance.now();
    }
    if (performance.now() - movedAt > STALLED_MS) {
      throw new RunError(`Nothing has moved for ${STALLED_MS / 1000} s while waiting for: ${what}.`);
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}
