import { callsOf, type Call, disturbancesIn, firstAfterFreeze, grouped, placeOf, recordsOf } from './soak-evidence.js';
import { overlaps, repeats, startedTooLate, type Violation } from './soak-checker.js';
import type { SoakRun } from './soak-run.js';
import { CONSUMERS } from './soak-setup.js';

/** The longest time without a handler's start on one partition of one group. */
export interface Pause {
  readonly place: string;
  readonly from: number;
  readonly ms: number;
}

/** Of each place while there was traffic, longest first. */
export function pausesOf(calls: readonly Call[], from: number, to: number): Pause[] {
  const pauses: Pause[] = [];
  for (const [place, ofPlace] of grouped(calls, placeOf)) {
    const times = [from, ...ofPlace.map((call) => call.from).filter((at) => at > from && at < to), to];
    let longest: Pause = { place, from, ms: 0 };
    for (const [i, at] of times.slice(1).entries()) {
      const ms = at - times[i]!;
      if (ms > longest.ms) longest = { place, from: times[i]!, ms };
    }
    pauses.push(longest);
  }
  return pauses.sort((a, b) => b.ms - a.ms);
}

/** The run in numbers, as lines for a person. */
export function describeRun(run: SoakRun, violations: readonly Violation[]): string {
  const { records, faults, from, to, stored, buried } = run;
  const calls = callsOf(run);
  const disturbances = disturbancesIn(run);
  const since = (at: number): string => `${((at - from) / 1_000).toFixed(1)} s`;
  const lines: string[] = [
    `soak: seed ${run.seed}, ${since(to)}, ${run.rate} messages/s, Redis ${run.killsRedis ? 'is killed (appendfsync always)' : 'is not killed (appendfsync everysec)'}`,
  ];
  const row = (name: string, value: string | number): void => void lines.push(`  ${name.padEnd(34)} ${value}`);
  const counted = (items: Iterable<string>): string =>
    [...grouped(items, (item) => item)]
      .map(([item, all]) => `${item} ${all.length}`)
      .sort()
      .join(', ') || 'none';

  row('sent', recordsOf(records, 'sending').length);
  row('accepted', recordsOf(records, 'accepted').length);
  row('refused', counted(recordsOf(records, 'refused').map(({ code }) => code)));
  row('stored', stored.length);
  row('stored more than once', stored.length - new Set(stored.map(({ eventId }) => eventId)).size);
  row('handler calls', calls.length);
  row('by outcome', counted(calls.map(({ outcome }) => outcome)));
  row('dead letters', counted(buried.map(({ reason }) => reason)));
  const twice = repeats(run, calls);
  row('handled again', `${twice.length} calls, near ${counted(twice.flatMap(({ explained }) => explained))}`);
  const beside = [...new Set(overlaps(calls).map(([before]) => before))];
  const why = beside.flatMap((call) => disturbances(call.process, call.from, call.to));
  row('ran on beside a new owner', `${beside.length} calls, near ${counted(why)}`);
  const late = startedTooLate(run, calls).map(([call]) => call);
  row('begun right after a freeze', late.filter(firstAfterFreeze(run)).length);
  const leases = recordsOf(records, 'lease');
  row('leases', counted(leases.map(({ change, why }) => `${change} ${why}`.trim())));
  row('engine', counted(recordsOf(records, 'engine').map(({ event }) => event)));
  row('faults', counted(faults.filter(({ missed }) => !missed).map(({ kind }) => kind)));
  row('faults that met nobody', counted(faults.filter(({ missed }) => missed).map(({ kind }) => kind)));
  for (const pause of pausesOf(calls, from, to).slice(0, 3)) {
    const during = faults.filter(
      (fault) => !fault.missed && fault.from < pause.from + pause.ms && fault.to > pause.from - run.leaseMs,
    );
    row(
      'longest pauses',
      `${pause.place} ${(pause.ms / 1_000).toFixed(1)} s from ${since(pause.from)}, beside ${counted(during.map(({ kind }) => kind))}`,
    );
  }
  row('drained after', `${(run.drainedInMs / 1_000).toFixed(1)} s`);
  row('consumers known to a group', `${run.consumersKnown}, of which ${CONSUMERS} live`);
  row('violations', counted(violations.map(({ rule }) => rule)));
  for (const { rule, at, what } of violations.slice(0, 20))
    lines.push(`    ${rule.slice(0, 2)} ${at > 0 ? since(at) : ''} ${what}`);
  if (violations.length > 0) lines.push(`  records and evidence: ${run.folder}`);
  return `${lines.join('\n')}\n`;
}
