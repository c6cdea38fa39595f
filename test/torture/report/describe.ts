import { argumentsFor } from '../options.js';
import type { FaultRow, Report } from './report.js';

const COLUMNS: readonly [string, (row: FaultRow) => string | number][] = [
  ['fault', ({ fault }) => fault],
  ['times', ({ times, metNobody }) => (metNobody === 0 ? times : `${times} (+${metNobody} met nobody)`)],
  ['in flight', ({ inFlight }) => inFlight],
  ['lost', ({ lost }) => lost],
  ['duplicated', ({ duplicated }) => duplicated],
  ['out of order', ({ outOfOrder }) => outOfOrder],
  ['longest pause', ({ longestPauseMs }) => seconds(longestPauseMs)],
];
const MOST_VIOLATIONS = 20;

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** The run as a table and lines for a person; the table is Markdown. */
export function describeRun(report: Report): string {
  const { options, totals, counts, failovers, longestPauses, violations } = report;
  const lines = ['', ...table(report.faults), ''];
  const row = (name: string, value: string | number | undefined): void =>
    void lines.push(`${name.padEnd(24)} ${value}`);
  row('sent, accepted, stored', `${totals.sent}, ${totals.accepted}, ${totals.stored}`);
  row('refused', listed(counts.refused));
  row('handler calls', `${totals.handlerCalls}: ${listed(counts.outcomes)}`);
  row('dead letters', listed(counts.deadLetters));
  row('lost', totals.lost);
  if (options.redis !== 'standalone')
    row('taken by a failover', `${totals.takenByFailover} (were on no replica; not in "lost")`);
  for (const proof of failovers) row('', proof);
  row('duplicated', `${totals.duplicated}, near ${listed(counts.duplicatedNear)}`);
  row('unexplained duplicates', totals.unexplainedDuplicates);
  row('stored twice', totals.storedTwice);
  row('out of order', totals.outOfOrder);
  row('beside a new owner', totals.besideANewOwner);
  row('crashes', totals.crashes);
  row('leases', listed(counts.leases));
  row('engine', listed(counts.engine));
  for (const { place, atMs, ms } of longestPauses) row('longest pauses', `${place} ${seconds(ms)} at ${seconds(atMs)}`);
  row('drained after', seconds(totals.drainedInMs ?? 0));
  row('consumers known', `${totals.consumersKnown} to a group of a partition; ${options.consumers} live`);
  row('violations', listed(counts.broken));
  for (const { rule, at, what } of violations.slice(0, MOST_VIOLATIONS))
    lines.push(`  ${rule.slice(0, 2)} ${at > 0 ? seconds(at) : ''} ${what}`);
  if (violations.length > MOST_VIOLATIONS) lines.push(`  and ${violations.length - MOST_VIOLATIONS} more`);
  lines.push(`again: npm run torture -- ${argumentsFor(options)}`);
  return `${lines.join('\n')}\n`;
}

function table(rows: readonly FaultRow[]): string[] {
  const cells = [COLUMNS.map(([name]) => name), ...rows.map((row) => COLUMNS.map(([, cell]) => String(cell(row))))];
  const widths = COLUMNS.map((_, i) => Math.max(...cells.map((line) => line[i]!.length)));
  const drawn = cells.map((line) => `| ${line.map((cell, i) => padded(cell, i, widths[i]!)).join(' | ')} |`);
  const rule = `| ${widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`;
  return [drawn[0]!, rule, ...drawn.slice(1)];
}

const padded = (cell: string, column: number, width: number): string =>
  column === 0 ? cell.padEnd(width) : cell.padStart(width);

function listed(counts: Readonly<Record<string, number>> | undefined): string {
  const words = Object.entries(counts ?? {}).map(([word, times]) => `${word} ${times}`);
  return words.join(', ') || 'none';
}
