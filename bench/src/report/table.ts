import type { MeasuredRow, ScenarioResult } from '../runner.js';

/** A scenario's rows for the terminal. */
export function formatScenario({ rows, skipped, rounds }: ScenarioResult): string {
  const lines = rows.flatMap((row) => formatRow(row));
  for (const [entry, reason] of skipped) lines.push(`  (${entry}: ${reason})`);
  return [...lines, `  (medians of ${rounds} rounds)`, ''].join('\n');
}

function formatRow({ row, summaries, ratios, met }: MeasuredRow): string[] {
  const lines = [
    `${row.name}, ${row.unit}${verdict(
      row.checks?.map(({ text }) => text),
      met,
    )}`,
  ];
  for (const [entry, { median, min, max }] of Object.entries(summaries)) {
    const ratio = ratios[entry] === undefined ? '' : `   ours is ${formatNumber(ratios[entry])} x`;
    lines.push(
      `  ${entry.padEnd(22)}${formatNumber(median).padStart(12)}   ${formatNumber(min)} .. ${formatNumber(max)}${ratio}`,
    );
  }
  return lines;
}

export function verdict(checks: readonly string[] | undefined, met: boolean | null): string {
  if (checks === undefined || checks.length === 0) return '';
  const judged = met === null ? 'not judged' : met ? 'met' : 'NOT met';
  return `   target ${checks.join('; ')}: ${judged}`;
}

/** Three figures that count, and no fraction from a thousand on. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(3)));
}
