import { between, pick, randomOf, shuffled } from './random.js';

export type FaultKind =
  | 'kill a consumer'
  | 'terminate a consumer'
  | 'stop a consumer past its lease'
  | 'cut the connections of a child'
  | 'lose the reply of a read'
  | 'lose the reply of a script'
  | 'lose the reply of a send'
  | 'black hole for a child'
  | 'five flaps for a child'
  | 'flush the scripts'
  | 'kill all clients'
  | 'kill Redis'
  | 'stop Redis';

/** What the machine does by itself. */
export type MachineFault = 'the test had no time' | 'Redis had no time' | 'the clock was set';

/** What was done, to whom (`redis` is everybody) and when. */
export interface Fault {
  readonly kind: FaultKind | MachineFault;
  target: string;
  readonly from: number;
  to: number;
  detail: string;
  /** It could not be done: nobody was there to be hit, or the command to be hit did not come. */
  missed: boolean;
}

export interface PlannedFault {
  readonly kind: FaultKind;
  /** After the beginning, in milliseconds. */
  readonly atMs: number;
  /** Chooses among those that the fault may hit, and decides on its length: in [0, 1). */
  readonly choice: number;
  readonly extent: number;
}

/** How often each is dealt in one round of the deck; with all of them dealt before the next round begins. */
const DECK: Readonly<Record<FaultKind, number>> = {
  'kill a consumer': 3,
  'terminate a consumer': 3,
  'stop a consumer past its lease': 3,
  'cut the connections of a child': 2,
  'lose the reply of a read': 2,
  'lose the reply of a script': 4,
  'lose the reply of a send': 2,
  'black hole for a child': 2,
  'five flaps for a child': 1,
  'flush the scripts': 1,
  'kill all clients': 1,
  'kill Redis': 2,
  'stop Redis': 1,
};

/** The same faults at the same times for the same seed: one every one to three seconds. */
export function planFaults(seed: string, forMs: number, killsRedis: boolean): PlannedFault[] {
  const random = randomOf(`${seed}/faults`);
  const deck = (Object.keys(DECK) as FaultKind[]).flatMap((kind) =>
    kind === 'kill Redis' && !killsRedis ? [] : Array<FaultKind>(DECK[kind]).fill(kind),
  );
  const faults: PlannedFault[] = [];
  let round: FaultKind[] = [];
  for (let atMs = between(random, 1_000, 3_000); atMs < forMs; atMs += between(random, 1_000, 3_000)) {
    if (round.length === 0) round = shuffled(random, deck);
    faults.push({ kind: round.pop()!, atMs, choice: random(), extent: random() });
  }
  return faults;
}

/** `choice` as an index among these. */
export function chosen<T>(choice: number, items: readonly T[]): T | undefined {
  return items.length === 0 ? undefined : pick(() => choice, items);
}
