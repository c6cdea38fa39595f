import { callsOf, type Evidence } from './evidence.js';
import { neverSilent, noCrash, recovers } from './liveness-rules.js';
import { startedInOrder, storedInOrder } from './order-rules.js';
import { fencedStarts, leasesHold, oneAtATime } from './ownership-rules.js';
import { countedAttempts, explainedRepeats, oneIdentity } from './repeat-rules.js';
import type { Rule, Violation } from './rule.js';
import { acceptedIsStored, deadLetters, everyFault, refusals, storedIsHandled, storedOnce } from './storage-rules.js';

const rules: readonly Rule[] = [
  everyFault,
  refusals,
  acceptedIsStored,
  storedOnce,
  storedIsHandled,
  deadLetters,
  storedInOrder,
  startedInOrder,
  oneAtATime,
  fencedStarts,
  leasesHold,
  oneIdentity,
  explainedRepeats,
  countedAttempts,
  noCrash,
  recovers,
  neverSilent,
];

/** What a run has done that the guarantees do not allow. Empty is what it should be. */
export function check(evidence: Evidence): Violation[] {
  const calls = callsOf(evidence);
  const violations: Violation[] = [];
  for (const rule of rules) {
    const { name, counts } = rule;
    rule.check(evidence, calls, (at, what) => void violations.push({ rule: name, counts, at, what }));
  }
  return violations;
}
