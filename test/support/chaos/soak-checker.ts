import {
  callsOf,
  type Call,
  disturbancesIn,
  firstAfterFreeze,
  sentWhileRedisStood,
  type Evidence,
  grouped,
  nameOf,
  placeOf,
  recordsOf,
} from './soak-evidence.js';
import type { RecordOf, Witnessed } from './soak-record.js';

export interface Violation {
  readonly rule: string;
  readonly at: number;
  readonly what: string;
}

type Report = (at: number, what: string) => void;
type Rule = (evidence: Evidence, calls: readonly Call[], report: Report) => void;

/** Refusals that say for certain that the message was not stored. */
const NOT_STORED = new Set(['MQ_SEND_TIMEOUT', 'MQ_SEND_REFUSED', 'MQ_CLOSED', 'MQ_SEND_BUFFER_FULL']);

/** Refusals that a Redis which comes and goes can lead to. */
const EXPECTED_REFUSALS = new Set(['MQ_SEND_TIMEOUT', 'MQ_SEND_OUTCOME_UNKNOWN']);

const rules: Readonly<Record<string, Rule>> = {
  'I0 most of what was sent was accepted, and nothing was refused but for want of time'({ records }, _, report) {
    const sent = recordsOf(records, 'sending').length;
    const accepted = recordsOf(records, 'accepted').length;
    if (sent === 0 || accepted < sent / 2) report(0, `of ${sent} messages ${accepted} were accepted`);
    for (const { at, code, why, ...message } of recordsOf(records, 'refused')) {
      if (!EXPECTED_REFUSALS.has(code)) report(at, `${nameOf(message)} was refused (${code}): ${why}`);
    }
  },

  'I1 a message that was accepted is stored, once, and one that was refused is not'(evidence, _, report) {
    const byEventId = grouped(evidence.stored, ({ eventId }) => eventId);
    for (const { at, id, partition, eventId, ...message } of recordsOf(evidence.records, 'accepted')) {
      const entries = byEventId.get(eventId) ?? [];
      const places = entries.map((entry) => `${entry.partition}/${entry.id}`);
      if (entries.length === 0) report(at, `${nameOf(message)} was accepted and is not in the streams`);
      else if (!places.includes(`${partition}/${id}`))
        report(at, `${nameOf(message)} was accepted as ${partition}/${id} and is ${places.join(', ')}`);
    }
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

  'I1 every stored message was handled, or is a dead letter, in every group'(evidence, calls, report) {
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

  'I1 a dead letter has its reason, and there is one of it'({ buried, stored, maxAttempts }, calls, report) {
    const copies = grouped(stored, ({ eventId }) => eventId);
    const tries = grouped(calls, ({ group, eventId }) => `${group} ${eventId}`);
    for (const [key, letters] of grouped(buried, ({ group, eventId }) => `${group} ${eventId}`)) {
      const letter = letters[0]!;
      const what = `${nameOf(letter)} in ${letter.group} (${letter.reason}, ${letter.attempts} attempts)`;
      if (letters.length > (copies.get(letter.eventId)?.length ?? 1))
        report(0, `${what} is there ${letters.length} times`);
      const outcomes = (tries.get(key) ?? []).map(({ outcome }) => outcome);
      const count = (outcome: Call['outcome']): number => outcomes.filter((one) => one === outcome).length;
      const isEarned =
        (letter.reason === 'rejected' && count('rejected') > 0) ||
        (letter.reason === 'exhausted' && count('failed') >= maxAttempts && letter.attempts === maxAttempts) ||
        letter.reason === 'crash-loop';
      if (!isEarned) report(0, `${what} has not earned it: ${outcomes.join(', ')}`);
      if (letter.reason !== 'crash-loop' && count('success') > 0) report(0, `${what} was handled as well`);
    }
  },

  'I2 messages of a key are stored in the order of their sends'({ stored }, _, report) {
    for (const [key, messages] of grouped(stored, (message) => message.key)) {
      const first = new Map<string, number>();
      for (const { eventId, seq } of messages) if (!first.has(eventId)) first.set(eventId, seq);
      let last = 0;
      for (const seq of first.values()) {
        if (seq < last) report(0, `${key}#${seq} is stored behind #${last}`);
        last = Math.max(last, seq);
      }
    }
  },

  'I2 messages of a key are started in order, in every group'({ stored }, calls, report) {
    // The order of the stream, which the rule above compares with the order of the sends.
    const rank = new Map<string, number>();
    for (const [i, { eventId }] of stored.entries()) if (!rank.has(eventId)) rank.set(eventId, i);
    for (const ofKey of grouped(calls, ({ group, key }) => `${group} ${key}`).values()) {
      const seen = new Set<string>();
      let last: Call | undefined;
      for (const call of ofKey) {
        if (seen.has(call.eventId) || !rank.has(call.eventId)) continue;
        seen.add(call.eventId);
        const isBehind = last !== undefined && rank.get(call.eventId)! < rank.get(last.eventId)!;
        if (isBehind) report(call.from, `${about(call)} first started after ${about(last!)}`);
        else last = call;
      }
    }
  },

  'I3 one ownership handles one message at a time, and two only beside an owner that has lost its lease'(
    evidence,
    calls,
    report,
  ) {
    const lost = new Set(
      recordsOf(evidence.records, 'lease')
        .filter(({ change }) => change === 'lost')
        .map((lease) => `${lease.process} ${placeOf(lease)} ${lease.epoch}`),
    );
    const disturbances = disturbancesIn(evidence);
    const wasLost = (call: Call): boolean =>
      lost.has(`${call.process} ${placeOf(call)} ${call.epoch}`) ||
      disturbances(call.process, call.from, call.to).includes('stop a consumer past its lease');
    for (const [before, call] of overlaps(calls)) {
      const both = `${about(before)} until ${Math.round(before.to)} and ${about(call)}`;
      if (before.epoch === call.epoch) report(call.from, `one ownership: ${both}`);
      else if (before.epoch < call.epoch && !wasLost(before)) report(call.from, `no lease was lost: ${both}`);
    }
  },

  'I3 nothing is started under a lease when a later one has been given out'(evidence, calls, report) {
    const disturbances = disturbancesIn(evidence);
    for (const leases of acquiredByPlace(evidence).values()) {
      for (const [i, lease] of leases.entries()) {
        const before = leases[i - 1];
        if (before === undefined || before.epoch < lease.epoch) continue;
        // A process that was frozen meanwhile writes down late what it was given.
        const isLate = disturbances(lease.process, lease.at, lease.at).length > 0;
        if (before.epoch > lease.epoch && isLate) continue;
        report(lease.at, `${placeOf(lease)}: epoch ${lease.epoch} was given out after ${before.epoch}`);
      }
    }
    const wasFrozen = firstAfterFreeze(evidence);
    // Redis ended the lease before its time.
    const jumps = evidence.faults.filter(({ kind }) => kind === 'the clock was set');
    const wasSet = (at: number): boolean => jumps.some(({ from, to }) => from <= at && at <= to + evidence.leaseMs);
    for (const [call, later] of startedTooLate(evidence, calls)) {
      if (wasFrozen(call) || wasSet(call.from)) continue;
      report(call.from, `${about(call)}, but ${later.process} had epoch ${later.epoch} since ${Math.round(later.at)}`);
    }
  },

  'I3 a lease is lost only after a fault'(evidence, _, report) {
    const disturbances = disturbancesIn(evidence);
    for (const lease of recordsOf(evidence.records, 'lease')) {
      if (lease.change !== 'lost' || disturbances(lease.process, lease.at, lease.at).length > 0) continue;
      report(lease.at, `${lease.process} lost ${placeOf(lease)} (${lease.why}, epoch ${lease.epoch})`);
    }
  },

  'I4 a message keeps its event id and its attempt, and is handled twice only after a fault'(evidence, calls, report) {
    const eventIds = new Map(recordsOf(evidence.records, 'sending').map((sent) => [nameOf(sent), sent.eventId]));
    for (const call of calls) {
      if (eventIds.get(nameOf(call)) !== call.eventId) report(call.from, `${about(call)} came as ${call.eventId}`);
    }
    for (const { before, call, explained } of repeats(evidence, calls)) {
      const both = `${about(before)} (${before.outcome}) and again ${about(call)}`;
      if (before.epoch === call.epoch) report(call.from, `in one ownership: ${both}`);
      else if (before.epoch < call.epoch && explained.length === 0) report(call.from, `without a fault: ${both}`);
    }
    for (const tries of grouped(calls, ({ group, eventId, id }) => `${group} ${eventId} ${id}`).values()) {
      let failures = 0;
      let highest = 1;
      for (const call of tries) {
        failures = tries.filter(({ outcome, to }) => outcome === 'failed' && to <= call.from).length;
        if (call.attempt > failures + 1)
          report(call.from, `${about(call)} is attempt ${call.attempt} after ${failures} failures`);
        if (call.attempt < highest)
          report(call.from, `${about(call)} is attempt ${call.attempt} after attempt ${highest}`);
        highest = Math.max(highest, call.attempt);
      }
    }
  },

  'I5 no process ended by itself, and nothing was thrown that nobody caught'({ records, lives }, _, report) {
    for (const { at, process, detail } of recordsOf(records, 'crash')) report(at, `${process}: ${detail}`);
    for (const { process, wish, end = 'still runs', output, to } of lives) {
      const isRight = wish === 'be killed' ? end === 'SIGKILL' : wish === 'end' && /^(SIGTERM|exit code 0)$/.test(end);
      if (!isRight) report(to, `${process} should ${wish}: ${end} ${output}`);
      if (/unhandled|uncaught/i.test(output)) report(to, `${process} said: ${output}`);
    }
  },

  'I6 everything recovered by itself in time'({ mishaps }, calls, report) {
    for (const mishap of mishaps) report(0, mishap);
    for (const call of calls) if (call.outcome === 'endless') report(call.from, `${about(call)} has not ended`);
  },
};

/** What a run has done that the guarantees do not allow. Empty is what it should be. */
export function check(evidence: Evidence): Violation[] {
  const calls = callsOf(evidence);
  const violations: Violation[] = [];
  for (const [rule, holds] of Object.entries(rules)) {
    holds(evidence, calls, (at, what) => void violations.push({ rule, at, what }));
  }
  return violations;
}

export interface Repeat {
  readonly before: Call;
  readonly call: Call;
  /** What can have led to it. */
  readonly explained: readonly string[];
}

/** Calls for a message that had been started for the same attempt before. */
export function repeats(evidence: Evidence, calls: readonly Call[] = callsOf(evidence)): Repeat[] {
  const found: Repeat[] = [];
  const disturbances = disturbancesIn(evidence);
  const byTry = grouped(calls, ({ group, eventId, id, attempt }) => `${group} ${eventId} ${id} ${attempt}`);
  for (const same of byTry.values()) {
    for (const [i, call] of same.entries()) {
      const before = same[i - 1];
      if (before === undefined) continue;
      const explained = disturbances(before.process, before.from, call.from);
      found.push({ before, call, explained });
    }
  }
  return found;
}

type Acquired = Witnessed<RecordOf<'lease'>>;

/** In the order of their times. */
function acquiredByPlace({ records }: Evidence): Map<string, Acquired[]> {
  const acquired = recordsOf(records, 'lease').filter(({ change }) => change === 'acquired');
  return grouped(
    acquired.sort((a, b) => a.at - b.at),
    placeOf,
  );
}

/** Calls that began when somebody had a later lease, with that lease. */
export function startedTooLate(evidence: Evidence, calls: readonly Call[]): [Call, Acquired][] {
  const byPlace = acquiredByPlace(evidence);
  const found: [Call, Acquired][] = [];
  for (const call of calls) {
    const later = byPlace.get(placeOf(call))?.find(({ at, epoch }) => epoch > call.epoch && at < call.from);
    if (later !== undefined) found.push([call, later]);
  }
  return found;
}

/** Pairs of calls of one group and partition that ran at the same time, the earlier one first. */
export function overlaps(calls: readonly Call[]): [Call, Call][] {
  const found: [Call, Call][] = [];
  for (const ofPlace of grouped(calls, placeOf).values()) {
    let running: Call[] = [];
    for (const call of ofPlace) {
      running = running.filter(({ to }) => to > call.from);
      for (const before of running) found.push([before, call]);
      running.push(call);
    }
  }
  return found;
}

function about(call: Call): string {
  return `${nameOf(call)} ${call.id} attempt ${call.attempt} of ${placeOf(call)} in ${call.process} at ${Math.round(call.from)} under ${call.epoch}`;
}
