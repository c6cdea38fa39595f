import { disturbancesIn, moveRefusedIn, outcomeTakenBackIn, SETTLING_MS } from './disturbances.js';
import { about, type Call, callsOf, type Evidence, failedAt, grouped, nameOf, recordsOf } from './evidence.js';
import type { Rule } from './rule.js';

const TAKEN_BACK = 'taken back';

export interface Repeat {
  readonly before: Call;
  readonly call: Call;
  /** What can have led to it. */
  readonly explained: readonly string[];
}

/**
 * Calls for a message that had been started for the same attempt before. What explains one was at work when the outcome
 * of the call before it should have come to Redis, or has taken it back.
 */
export function repeats(evidence: Evidence, calls: readonly Call[] = callsOf(evidence)): Repeat[] {
  const found: Repeat[] = [];
  const disturbances = disturbancesIn(evidence);
  const isTakenBack = outcomeTakenBackIn(evidence);
  const isRefused = moveRefusedIn(evidence);
  const byTry = grouped(calls, ({ group, eventId, id, attempt }) => `${group} ${eventId} ${id} ${attempt}`);
  for (const same of byTry.values()) {
    for (const [i, call] of same.entries()) {
      const before = same[i - 1];
      if (before === undefined) continue;
      const until = Math.min(call.from, before.to + SETTLING_MS);
      const explained = disturbances(before.process, before.from, until);
      if (isTakenBack(before)) explained.push(TAKEN_BACK);
      if (isRefused(before, call)) explained.push('full-redis');
      found.push({ before, call, explained });
    }
  }
  return found;
}

export const oneIdentity: Rule = {
  name: 'I4 a message keeps its event id',
  check({ records }, calls, report) {
    const eventIds = new Map(recordsOf(records, 'sending').map((sent) => [nameOf(sent), sent.eventId]));
    for (const call of calls) {
      if (eventIds.get(nameOf(call)) !== call.eventId) report(call.from, `${about(call)} came as ${call.eventId}`);
    }
  },
};

export const explainedRepeats: Rule = {
  name: 'I4 a message is handled twice only after a fault that may cost a lease',
  check(evidence, calls, report) {
    for (const { before, call, explained } of repeats(evidence, calls)) {
      const both = `${about(before)} (${before.outcome}) and again ${about(call)}`;
      const isOneOwnership = before.epoch === call.epoch && before.process === call.process;
      if (isOneOwnership) {
        // After a failover the same ownership may go on with what it had settled.
        if (!explained.includes(TAKEN_BACK)) report(call.from, `in one ownership: ${both}`);
      } else if (before.epoch <= call.epoch && explained.length === 0) report(call.from, `without a fault: ${both}`);
    }
  },
};

export const countedAttempts: Rule = {
  name: 'I4 a message keeps its count of attempts',
  check(evidence, calls, report) {
    const isTakenBack = outcomeTakenBackIn(evidence);
    for (const tries of grouped(calls, ({ group, eventId, id }) => `${group} ${eventId} ${id}`).values()) {
      let highest = tries[0]!;
      for (const call of tries) {
        const failures = tries.filter((one) => failedAt(one) <= call.from).length;
        if (call.attempt > failures + 1)
          report(call.from, `${about(call)} is attempt ${call.attempt} after ${failures} failures`);
        if (call.attempt < highest.attempt && !isTakenBack(highest) && !tries.some(isTakenBack))
          report(call.from, `${about(call)} is attempt ${call.attempt} after attempt ${highest.attempt}`);
        if (call.attempt > highest.attempt) highest = call;
      }
    }
  },
};
