import { costsLeases, delayOf } from '../faults/catalog.js';
import type { Failover } from '../servers/servers.js';
import { type Call, type Evidence, grouped, recordsOf } from './evidence.js';

/** After a fault, until everybody has noticed what it has cost. */
export const SETTLING_MS = 1_000;

const childOf = (process: string): string => process.slice(0, process.lastIndexOf('#'));

export interface Span {
  readonly from: number;
  readonly to: number;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);

export const isWithin = (at: number, { from, to }: Span): boolean => from <= at && at <= to;

/** How long a fault may be felt. */
export function reachOf(fault: Span, leaseMs: number): Span {
  return { from: fault.from, to: fault.to + leaseMs + SETTLING_MS };
}

/** So much time a process, the proxies and the server must have been without together before a lease can be lost for it. */
const STARVED_MS = 1_000;

/** Times without any, of one process or, without a name, of everybody. */
export function starvationsIn({ records, faults }: Evidence): Map<string, readonly Span[]> {
  const ofProcess = recordsOf(records, 'stall').map(({ process, at, ms }) => ({ of: process, from: at - ms, to: at }));
  const ofAll = faults
    .filter(({ kind }) => kind === 'starved-driver' || kind === 'starved-redis')
    .map(({ from, to }) => ({ of: '', from, to }));
  return grouped([...ofProcess, ...ofAll], (stall) => stall.of);
}

/** What may have cost a process leases (or everybody, through the servers or the proxies) between two times, by its kind. */
export function disturbancesIn(evidence: Evidence): (process: string, from: number, to: number) => string[] {
  const stalls = starvationsIn(evidence);
  const faults = evidence.faults.filter((fault) => !fault.missed && costsLeases(fault));
  const delays = evidence.faults.map(({ kind, from, to }) => ({ from, to, ms: delayOf(kind) }));
  return (process, from, to) => {
    // The lease that a fault has cost ends some time after it.
    const before = from - evidence.leaseMs - SETTLING_MS;
    const kinds = faults
      .filter(({ target }) => target === 'redis' || target === childOf(process))
      .filter((fault) => fault.from <= to && fault.to >= before)
      .map(({ kind }): string => kind);
    const isNear = (span: Span): boolean => span.from <= to && span.to >= before;
    const starved = [...(stalls.get(process) ?? []), ...(stalls.get('') ?? [])].filter(isNear);
    const delayed = delays.filter(isNear);
    const starvedMs = sum(starved.map((stall) => stall.to - stall.from)) + sum(delayed.map(({ ms }) => ms));
    return [...new Set(starvedMs >= STARVED_MS ? [...kinds, 'a starved machine'] : kinds)];
  };
}

const AWAKE_MS = 200;
const ASLEEP_MS = 50;

/**
 * Calls that were the first thing a process did after it had been frozen: it had looked at its lease before, and no
 * process can look and act in one step.
 */
export function firstAfterFreeze({ records, faults }: Evidence): (call: Call) => boolean {
  const freezes = recordsOf(records, 'stall').map(({ process, at, ms }) => ({ process, from: at - ms, to: at }));
  for (const { kind, target, from, to } of faults) {
    if (kind === 'stop-consumer') freezes.push({ process: `${target}#`, from, to });
  }
  const byProcess = grouped(records, ({ process }) => process);
  return ({ process, from }) => {
    const before = byProcess.get(process)!.findLast(({ at }) => at < from)?.at ?? 0;
    return freezes.some(
      (freeze) =>
        process.startsWith(freeze.process) &&
        before <= freeze.from + ASLEEP_MS &&
        from >= freeze.from &&
        from <= freeze.to + AWAKE_MS,
    );
  };
}

/**
 * Messages that were on their way while Redis did not run: it may take them from the old connection after it has taken
 * them from the new one, and nobody can see that coming.
 */
export function sentWhileRedisStood({ records, faults }: Evidence): (eventId: string) => boolean {
  const stands = faults.filter(
    ({ kind }) => kind === 'stop-redis' || kind === 'starved-driver' || kind === 'starved-redis',
  );
  const sent = new Map(recordsOf(records, 'sending').map(({ eventId, at }) => [eventId, at]));
  const settled = [...recordsOf(records, 'accepted'), ...recordsOf(records, 'refused')];
  const until = new Map(settled.map(({ eventId, at }) => [eventId, at]));
  return (eventId) => {
    const from = sent.get(eventId) ?? 0;
    const to = until.get(eventId) ?? Infinity;
    return stands.some((stand) => stand.from <= to && stand.to >= from);
  };
}

/**
 * Calls whose retry or dead letter a full Redis refused, until the partition had another owner: that one begins with the
 * same attempt again.
 */
export function moveRefusedIn({ faults }: Evidence): (before: Call, call: Call) => boolean {
  const full = faults.filter(({ kind, missed }) => kind === 'full-redis' && !missed);
  return (before, call) =>
    before.outcome !== 'success' &&
    before.epoch !== call.epoch &&
    full.some(({ from, to }) => from <= call.from && to >= before.from);
}

/** An outcome is on its way to Redis for so long at most, unless a fault holds it up. */
const SETTLED_WITHIN_MS = 1_000;

/**
 * The failovers that may have taken back what was written for a partition at a time, or shortly after it: a message that
 * was accepted, or the outcome of one that was handled.
 */
export function takenBackIn({
  failovers,
  streamKey,
}: Evidence): (partition: number, at: number, within?: number) => readonly Failover[] {
  return (partition, at, within = 0) =>
    failovers.filter((failover) => {
      if (at > failover.to) return false;
      const times = [at, Math.min(at + within, failover.to)];
      return times.some((time) => failover.mayHaveLost(streamKey(partition), time));
    });
}

export const outcomeTakenBackIn = (evidence: Evidence): ((call: Call) => boolean) => {
  const takenBack = takenBackIn(evidence);
  return ({ partition, from, to }) => takenBack(partition, Math.min(to, from + 60_000), SETTLED_WITHIN_MS).length > 0;
};

/**
 * Calls under a lease that only the old master of a failover knew: it goes on until that master's reign has ended, and
 * then as long as a lease lasts at most. The new master cannot know of it, and gives out the next one meanwhile.
 */
export const heldAtOldMasterIn = ({ failovers, streamKey, leaseMs }: Evidence): ((call: Call) => boolean) => {
  return ({ partition, from }) =>
    failovers.some(
      (failover) =>
        isWithin(from, { from: failover.from, to: failover.to + leaseMs }) &&
        failover.mayHaveLost(streamKey(partition), Math.min(from, failover.to)),
    );
};
