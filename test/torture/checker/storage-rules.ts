import { isFaultName } from '../faults/catalog.js';
import { isWithin, reachOf, sentWhileRedisStood, takenBackIn } from './disturbances.js';
import { type Call, type Evidence, failedAt, grouped, nameOf, recordsOf } from './evidence.js';
import type { Rule } from './rule.js';

/** Refusals that say for certain that the message was not stored. */
const NOT_STORED = new Set(['MQ_SEND_TIMEOUT', 'MQ_SEND_REFUSED', 'MQ_CLOSED', 'MQ_SEND_BUFFER_FULL']);

/** Refusals that a Redis which comes and goes can lead to. */
const EXPECTED_REFUSALS = new Set(['MQ_SEND_TIMEOUT', 'MQ_SEND_OUTCOME_UNKNOWN']);

/** Messages that a failover took from the old master before the new one had them; proven, so no violation. */
export function takenByFailover(evidence: Evidence): { readonly eventId: string; readonly at: number }[] {
  const { records, failovers, stored } = evidence;
  if (failovers.length === 0) return [];
  const there = new Set(stored.map(({ eventId }) => eventId));
  const takenBack = takenBackIn(evidence);
  return recordsOf(records, 'accepted').filter(
    ({ eventId, partition, at }) => !there.has(eventId) && takenBack(partition, at).length > 0,
  );
}

export const refusals: Rule = {
  name: 'I0 most of what was sent was accepted, and nothing was refused without a reason',
  check({ records, faults, lives, leaseMs }, _, report) {
    const ended = new Set(lives.filter(({ wish }) => wish === 'end').map(({ process }) => process));
    const wasFull = (at: number): boolean =>
      faults.some((fault) => fault.kind === 'full-redis' && isWithin(at, reachOf(fault, leaseMs)));
    let hopeful = recordsOf(records, 'sending').length;
    for (const { at, code, why, process, ...message } of recordsOf(records, 'refused')) {
      if (EXPECTED_REFUSALS.has(code) || (code === 'MQ_CLOSED' && ended.has(process))) continue;
      if (code === 'MQ_SEND_REFUSED' && / OOM /.test(why) && wasFull(at)) hopeful--;
      else report(at, `${nameOf(message)} was refused (${code}): ${why}`);
    }
    const accepted = recordsOf(records, 'accepted').length;
    if (hopeful === 0 || accepted < hopeful / 2) report(0, `of ${hopeful} messages ${accepted} were accepted`);
  },
};

export const acceptedIsStored: Rule = {
  name: 'I1 a message that was accepted is stored',
  counts: 'lost',
  check(evidence, _, report) {
    const byEventId = grouped(evidence.stored, ({ eventId }) => eventId);
    const taken = new Set(takenByFailover(evidence).map(({ eventId }) => eventId));
    for (const { at, id, partition, eventId, ...message } of recordsOf(evidence.records, 'accepted')) {
      const entries = byEventId.get(eventId) ?? [];
      const places = entries.map((entry) => `${entry.partition}/${entry.id}`);
      if (entries.length === 0 && !taken.has(eventId))
        report(at, `${nameOf(message)} was accepted as ${partition}/${id} and is not in the streams`);
      else if (entries.length > 0 && !places.includes(`${partition}/${id}`))
        report(at, `${nameOf(message)} was accepted as ${partition}/${id} and is ${places.join(', ')}`);
    }
  },
};

export const storedOnce: Rule = {
  name: 'I1 a message is stored once, and one that was refused is not',
  check(evidence, _, report) {
    const byEventId = grouped(evidence.stored, ({ eventId }) => eventId);
    for (const { at, code, eventId, ...message } of recordsOf(evidence.records, 'refused')) {
      if (NOT_STORED.has(code) && byEventId.has(eventId))
        report(at, `${nameOf(message)} was refused (${code}) and is stored`);
    }
    const mayBeStoredTwice = sentWhileRedisStood(evidence);
    for (const [first, ...more] of byEventId.values()) {
      if (more.length === 0 || mayBeStoredTwice(first!.eventId)) continue;
      const ids = [first!, ...more].map(({ id }) => id).join(', ');
      report(0, `${nameOf(first!)} is stored ${more.length + 1} times, as ${ids}`);
    }
  },
};

export const storedIsHandled: Rule = {
  name: 'I1 every stored message was handled, or is a dead letter, in every group',
  counts: 'lost',
  check(evidence, calls, report) {
    const tries = grouped(calls, ({ group, eventId }) => `${group} ${eventId}`);
    const dead = new Set(evidence.buried.map(({ group, eventId }) => `${group} ${eventId}`));
    for (const message of evidence.stored) {
      for (const group of evidence.groups) {
        const key = `${group} ${message.eventId}`;
        const ofIt = tries.get(key) ?? [];
        if (dead.has(key) || ofIt.some(({ outcome }) => outcome === 'success')) continue;
        const fate = ofIt.map((call) => `${call.outcome} in ${call.process} at ${Math.round(call.from)}`).join(', ');
        const what = `${nameOf(message)} (${message.partition}/${message.id}) in ${group}`;
        report(ofIt.at(-1)?.from ?? 0, `${what}: ${fate || 'never started'}`);
      }
    }
  },
};

export const deadLetters: Rule = {
  name: 'I1 a dead letter has its reason, and there is one of it',
  check(evidence, calls, report) {
    const { buried, stored, maxAttempts, failovers } = evidence;
    const copies = grouped(stored, ({ eventId }) => eventId);
    const tries = grouped(calls, ({ group, eventId }) => `${group} ${eventId}`);
    for (const [key, letters] of grouped(buried, ({ group, eventId }) => `${group} ${eventId}`)) {
      const letter = letters[0]!;
      const what = `${nameOf(letter)} in ${letter.group} (${letter.reason}, ${letter.attempts} attempts)`;
      if (letters.length > (copies.get(letter.eventId)?.length ?? 1))
        report(0, `${what} is there ${letters.length} times`);
      const ofIt = tries.get(key) ?? [];
      const failures = ofIt.filter((call) => failedAt(call) < Infinity).length;
      const has = (outcome: Call['outcome']): boolean => ofIt.some((call) => call.outcome === outcome);
      const isEarned =
        (letter.reason === 'rejected' && has('rejected')) ||
        (letter.reason === 'exhausted' && failures >= maxAttempts && letter.attempts === maxAttempts) ||
        letter.reason === 'crash-loop';
      if (!isEarned) report(0, `${what} has not earned it: ${ofIt.map(({ outcome }) => outcome).join(', ')}`);
      // What a failover took back may end another way the second time.
      const isOnlyDead = letter.reason === 'crash-loop' || failovers.length > 0;
      if (!isOnlyDead && has('success')) report(0, `${what} was handled as well`);
    }
  },
};

export const everyFault: Rule = {
  name: 'I0 every fault that was asked for was injected',
  check({ faults, mishaps }, _, report) {
    const met = new Set(faults.filter(({ missed }) => !missed).map(({ kind }) => kind));
    for (const { kind, from } of faults) {
      if (isFaultName(kind) && !met.has(kind) && !mishaps.some((mishap) => mishap.startsWith(kind)))
        report(from, `${kind} met nobody`);
    }
  },
};
