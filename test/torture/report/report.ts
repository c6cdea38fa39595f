import { isWithin, reachOf } from '../checker/disturbances.js';
import { type Call, callsOf, grouped, recordsOf } from '../checker/evidence.js';
import { overlaps } from '../checker/ownership-rules.js';
import { type Pause, pausesOf } from '../checker/pauses.js';
import { repeats } from '../checker/repeat-rules.js';
import type { Violation } from '../checker/rule.js';
import { takenByFailover } from '../checker/storage-rules.js';
import type { Fault } from '../faults/catalog.js';
import type { TortureOptions } from '../options.js';
import type { TortureRun } from '../run.js';
import { inFlightAt } from './in-flight.js';

/** What came of one kind of fault, counted by time: from the fault until its leases are over and everybody has noticed. */
export interface FaultRow {
  readonly fault: Fault['kind'];
  readonly times: number;
  /** Could not be done: nobody was there to be hit, or the command to be hit did not come. */
  readonly metNobody: number;
  /** Messages that were accepted and not yet settled in all groups when it came; the most of all times. */
  readonly inFlight: number;
  readonly lost: number;
  /** Calls for a message that had been called for, for the same attempt. */
  readonly duplicated: number;
  readonly outOfOrder: number;
  /** The longest time in which a partition had messages and no handler ran, in milliseconds. */
  readonly longestPauseMs: number;
}

export interface Report {
  readonly options: TortureOptions;
  readonly faults: readonly FaultRow[];
  readonly totals: Readonly<Record<string, number>>;
  /** How often each word was met: codes of refusals, outcomes of calls, reasons of dead letters, ... */
  readonly counts: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly failovers: readonly string[];
  readonly longestPauses: readonly { readonly place: string; readonly atMs: number; readonly ms: number }[];
  readonly violations: readonly Violation[];
  readonly records: string;
}

export function reportOf(run: TortureRun, violations: readonly Violation[]): Report {
  const { records, faults, from, to, stored, buried, options } = run;
  const calls = callsOf(run);
  const twice = repeats(run, calls);
  const pauses = pausesOf(run, calls).sort((a, b) => b.to - b.from - (a.to - a.from));
  const met = faults.filter(({ missed }) => !missed);
  const counted = (column: Violation['counts']): Violation[] => violations.filter(({ counts }) => counts === column);
  const columns = {
    lost: counted('lost').map(({ at }) => at),
    duplicated: twice.map(({ call }) => call.from),
    outOfOrder: counted('disorder').map(({ at }) => at),
  };
  const flying = inFlightAt(run, calls);
  const unexplained = violations.filter(({ rule }) => rule.startsWith('I4'));
  return {
    options,
    faults: [...grouped(faults, ({ kind }) => kind)]
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([, ofKind]) => rowOf(ofKind, run.leaseMs, columns, pauses, flying)),
    totals: {
      seconds: Math.round((to - from) / 1_000),
      faults: met.length,
      sent: recordsOf(records, 'sending').length,
      accepted: recordsOf(records, 'accepted').length,
      stored: stored.length,
      storedTwice: stored.length - new Set(stored.map(({ eventId }) => eventId)).size,
      handlerCalls: calls.length,
      lost: columns.lost.length,
      takenByFailover: takenByFailover(run).length,
      duplicated: twice.length,
      unexplainedDuplicates: unexplained.length,
      outOfOrder: columns.outOfOrder.length,
      besideANewOwner: new Set(overlaps(calls).map(([before]) => before)).size,
      crashes: violations.filter(({ rule }) => rule.startsWith('I5')).length,
      longestPauseMs: Math.round(pauses[0] === undefined ? 0 : pauses[0].to - pauses[0].from),
      drainedInMs: Math.round(run.drainedInMs),
      consumersKnown: run.consumersKnown,
      violations: violations.length,
    },
    counts: {
      refused: count(recordsOf(records, 'refused').map(({ code }) => code)),
      outcomes: count(calls.map(({ outcome }: Call) => outcome)),
      deadLetters: count(buried.map(({ reason }) => reason)),
      duplicatedNear: count(twice.flatMap(({ explained }) => explained)),
      leases: count(recordsOf(records, 'lease').map(({ change, why }) => `${change} ${why}`.trim())),
      engine: count(recordsOf(records, 'engine').map(({ event }) => event)),
      broken: count(violations.map(({ rule }) => rule)),
    },
    failovers: run.failovers.map(({ proof }) => proof),
    longestPauses: pauses
      .slice(0, 3)
      .map((pause) => ({ place: pause.place, atMs: Math.round(pause.from - from), ms: lengthOf(pause) })),
    violations: violations.map((violation) => ({
      ...violation,
      at: violation.at > 0 ? Math.round(violation.at - from) : 0,
    })),
    records: run.folder,
  };
}

const lengthOf = (pause: Pause): number => Math.round(pause.to - pause.from);

function rowOf(
  ofKind: readonly Fault[],
  leaseMs: number,
  columns: Readonly<Record<'lost' | 'duplicated' | 'outOfOrder', readonly number[]>>,
  pauses: readonly Pause[],
  flying: (at: number) => number,
): FaultRow {
  const met = ofKind.filter(({ missed }) => !missed);
  const reaches = met.map((fault) => reachOf(fault, leaseMs));
  const within = (times: readonly number[]): number =>
    times.filter((at) => reaches.some((reach) => isWithin(at, reach))).length;
  // Sorted by length, so that the first is the longest.
  const longest = pauses.find((pause) => reaches.some(({ from, to }) => pause.from <= to && pause.to >= from));
  return {
    fault: ofKind[0]!.kind,
    times: met.length,
    metNobody: ofKind.length - met.length,
    inFlight: Math.max(0, ...met.map(({ from }) => flying(from))),
    lost: within(columns.lost),
    duplicated: within(columns.duplicated),
    outOfOrder: within(columns.outOfOrder),
    longestPauseMs: longest === undefined ? 0 : lengthOf(longest),
  };
}

function count(words: Iterable<string>): Record<string, number> {
  const entries = [...grouped(words, (word) => word)].map(([word, all]): [string, number] => [word, all.length]);
  return Object.fromEntries(entries.sort(([a], [b]) => a.localeCompare(b)));
}
