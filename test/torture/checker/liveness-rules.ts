import { reachOf, type Span, starvationsIn } from './disturbances.js';
import { about, recordsOf } from './evidence.js';
import { type Pause, pausesOf } from './pauses.js';
import type { Rule } from './rule.js';

/** Without any fault, on a machine that has other things to do. */
const LONGEST_PAUSE_MS = 2_000;
/** Whatever happens, beside what the faults themselves took. */
const LONGEST_RECOVERY_MS = 15_000;

export const noCrash: Rule = {
  name: 'I5 no process ended by itself, and nothing was thrown that nobody caught',
  check({ records, lives }, _, report) {
    for (const { at, process, detail } of recordsOf(records, 'crash')) report(at, `${process}: ${detail}`);
    for (const { process, wish, end = 'still runs', output, to } of lives) {
      const isRight = wish === 'be killed' ? end === 'SIGKILL' : wish === 'end' && /^(SIGTERM|exit code 0)$/.test(end);
      if (!isRight) report(to, `${process} should ${wish}: ${end} ${output}`);
      if (/unhandled|uncaught/i.test(output)) report(to, `${process} said: ${output}`);
    }
  },
};

export const recovers: Rule = {
  name: 'I6 everything recovered by itself in time',
  check({ mishaps }, calls, report) {
    for (const mishap of mishaps) report(0, mishap);
    for (const call of calls) if (call.outcome === 'endless') report(call.from, `${about(call)} has not ended`);
  },
};

export const neverSilent: Rule = {
  name: 'I6 no partition was silent for longer than the faults explain',
  check(evidence, calls, report) {
    const faults = evidence.faults.filter(({ missed }) => !missed);
    const stalls = [...starvationsIn(evidence).values()].flat();
    const reaches = [...faults, ...stalls].map((span) => reachOf(span, evidence.leaseMs));
    for (const pause of pausesOf(evidence, calls)) {
      const unexplained = uncovered(pause, reaches);
      const recovery = uncovered(pause, [...faults, ...stalls]);
      if (unexplained > LONGEST_PAUSE_MS)
        report(pause.from, `${pause.place} was silent for ${Math.round(unexplained)} ms without a fault`);
      else if (recovery > LONGEST_RECOVERY_MS)
        report(pause.from, `${pause.place} was silent for ${Math.round(recovery)} ms beside the faults`);
    }
  },
};

/** How much of a pause no span explains, in milliseconds. */
function uncovered(pause: Pause, spans: readonly Span[]): number {
  let at = pause.from;
  let open = 0;
  for (const { from, to } of spans.toSorted((a, b) => a.from - b.from)) {
    if (from > pause.to) break;
    if (from > at) open += from - at;
    at = Math.max(at, to);
  }
  return open + Math.max(0, pause.to - at);
}
