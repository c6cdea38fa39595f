import type { RecordOf, Witnessed } from '../programs/record.js';
import { disturbancesIn, firstAfterFreeze, heldAtOldMasterIn, takenBackIn } from './disturbances.js';
import { about, type Call, type Evidence, grouped, placeOf, recordsOf } from './evidence.js';
import type { Rule } from './rule.js';

type Acquired = Witnessed<RecordOf<'lease'>>;

/** In the order of their times. */
function acquiredByPlace({ records }: Evidence): Map<string, Acquired[]> {
  const acquired = recordsOf(records, 'lease').filter(({ change }) => change === 'acquired');
  return grouped(acquired, placeOf);
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

export const oneAtATime: Rule = {
  name: 'I3 one ownership handles one message at a time, and two only beside an owner that has lost its lease',
  check(evidence, calls, report) {
    const lost = new Set(
      recordsOf(evidence.records, 'lease')
        .filter(({ change }) => change === 'lost')
        .map((lease) => `${lease.process} ${placeOf(lease)} ${lease.epoch}`),
    );
    const disturbances = disturbancesIn(evidence);
    const heldAtOldMaster = heldAtOldMasterIn(evidence);
    const wasLost = (call: Call): boolean =>
      heldAtOldMaster(call) ||
      lost.has(`${call.process} ${placeOf(call)} ${call.epoch}`) ||
      disturbances(call.process, call.from, call.to).includes('stop-consumer');
    for (const [before, call] of overlaps(calls)) {
      const both = `${about(before)} until ${Math.round(before.to)} and ${about(call)}`;
      const isOne = before.epoch === call.epoch && before.process === call.process;
      if (isOne) report(call.from, `one ownership: ${both}`);
      else if (before.epoch <= call.epoch && !wasLost(before)) report(call.from, `no lease was lost: ${both}`);
    }
  },
};

export const fencedStarts: Rule = {
  name: 'I3 nothing is started under a lease when a later one has been given out',
  check(evidence, calls, report) {
    const disturbances = disturbancesIn(evidence);
    const takenBack = takenBackIn(evidence);
    for (const leases of acquiredByPlace(evidence).values()) {
      for (const [i, lease] of leases.entries()) {
        const before = leases[i - 1];
        if (before === undefined || before.epoch < lease.epoch) continue;
        // A process that was frozen meanwhile writes down late what it was given.
        const isLate = disturbances(lease.process, lease.at, lease.at).length > 0;
        if (before.epoch > lease.epoch && isLate) continue;
        // The new master did not know of the last ones.
        if (takenBack(before.partition, before.at).some(({ from }) => from <= lease.at)) continue;
        report(lease.at, `${placeOf(lease)}: epoch ${lease.epoch} was given out after ${before.epoch}`);
      }
    }
    const wasFrozen = firstAfterFreeze(evidence);
    // Redis ended the lease before its time.
    const jumps = evidence.faults.filter(({ kind }) => kind === 'clock-set');
    const wasSet = (at: number): boolean => jumps.some(({ from, to }) => from <= at && at <= to + evidence.leaseMs);
    const heldAtOldMaster = heldAtOldMasterIn(evidence);
    for (const [call, later] of startedTooLate(evidence, calls)) {
      if (wasFrozen(call) || wasSet(call.from) || heldAtOldMaster(call)) continue;
      if (takenBack(later.partition, later.at).some(({ from }) => from <= call.from)) continue;
      report(call.from, `${about(call)}, but ${later.process} had epoch ${later.epoch} since ${Math.round(later.at)}`);
    }
  },
};

export const leasesHold: Rule = {
  name: 'I3 a lease is lost only after a fault that may cost one',
  check(evidence, _, report) {
    const disturbances = disturbancesIn(evidence);
    for (const lease of recordsOf(evidence.records, 'lease')) {
      if (lease.change !== 'lost' || disturbances(lease.process, lease.at, lease.at).length > 0) continue;
      report(lease.at, `${lease.process} lost ${placeOf(lease)} (${lease.why}, epoch ${lease.epoch})`);
    }
  },
};
