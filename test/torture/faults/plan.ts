import { between, pick, randomOf, shuffled } from '../random.js';
import { definitionOf, type FaultName } from './catalog.js';

export interface PlannedFault {
  readonly kind: FaultName;
  /** After the beginning, in milliseconds. */
  readonly atMs: number;
  /** Chooses among those that the fault may hit, and decides on its length: in [0, 1). */
  readonly choice: number;
  readonly extent: number;
  /** It is the first of its kind, and tried until it meets somebody. */
  readonly isDue: boolean;
}

const LONGEST_GAP_MS = 2_000;
/** The first round is over by then, whatever the length of the run. */
const FIRST_ROUND = 0.8;
/** The last fault begins so long before the end. */
const TAIL_MS = 1_000;

/**
 * The same faults at the same times for the same seed: a first round with one of each, which a run of a minute has time
 * for, and then by weight.
 */
export function planFaults(seed: string, forMs: number, kinds: readonly FaultName[]): PlannedFault[] {
  const random = randomOf(`${seed}/faults`);
  const deck = kinds.flatMap((kind) => Array<FaultName>(definitionOf(kind).weight).fill(kind));
  const faults: PlannedFault[] = [];
  const gapMs = Math.min(LONGEST_GAP_MS, (FIRST_ROUND * forMs) / kinds.length);
  let round = shuffled(random, kinds);
  const end = forMs - TAIL_MS;
  for (let atMs = gapMs; atMs < end || faults.length < kinds.length;) {
    const isDue = faults.length < kinds.length;
    if (round.length === 0) round = shuffled(random, deck);
    faults.push({ kind: round.pop()!, atMs: Math.min(atMs, end), choice: random(), extent: random(), isDue });
    atMs += between(random, 0.5, isDue ? 1 : 1.5) * gapMs;
  }
  return faults;
}

/** `choice` as an index among these. */
export function chosen<T>(choice: number, items: readonly T[]): T | undefined {
  return items.length === 0 ? undefined : pick(() => choice, items);
}
