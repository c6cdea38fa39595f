import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BenchOptions } from './options.js';
import { benchFolder } from './folders.js';
import { runScenario, type MeasuredRow, type ScenarioResult } from './runner.js';
import { formatNumber, formatScenario } from './report/table.js';

/** A ratio may be that much below the recorded one: what machines and their load do to a ratio. */
const TOLERATED = 0.8;
const RECORDED = join(benchFolder, 'recorded.json');

/** Row to entry to ratio. */
type Ratios = Readonly<Record<string, Readonly<Record<string, number>>>>;

interface Fall {
  readonly row: MeasuredRow;
  readonly text: string;
}

export function recordRatios(results: readonly ScenarioResult[]): void {
  const recorded: Record<string, Record<string, number>> = { ...readRecorded() } as Record<
    string,
    Record<string, number>
  >;
  for (const { row, ratios } of guardedRows(results)) {
    recorded[row.name] = Object.fromEntries(
      Object.entries(ratios).map(([entry, ratio]) => [entry, Number(ratio.toPrecision(3))]),
    );
  }
  writeFileSync(RECORDED, `${JSON.stringify(recorded, null, 2)}\n`);
  console.log(`recorded in ${RECORDED}`);
}

/** Exit code of `--assert`. What fell is measured once more with twice the rounds before it is believed. */
export async function assertRatios(results: readonly ScenarioResult[], options: BenchOptions): Promise<number> {
  const suspects = new Set(falls(results).map(({ row }) => row.scenario));
  const again: ScenarioResult[] = [];
  for (const scenario of suspects) {
    console.log(`${scenario.name}: once more, with twice the rounds`);
    const result = await runScenario(scenario, {
      ...options,
      rounds: 2 * (results.find(({ rows }) => rows[0]?.scenario === scenario)?.rounds ?? 3),
    });
    console.log(formatScenario(result));
    again.push(result);
  }
  const fallen = falls(again);
  for (const { text } of fallen) console.error(text);
  if (fallen.length === 0) console.log('no ratio has fallen more than 20 % below the recorded ones');
  return fallen.length === 0 ? 0 : 1;
}

function falls(results: readonly ScenarioResult[]): Fall[] {
  const recorded = readRecorded();
  return guardedRows(results).flatMap((row) =>
    Object.entries(recorded[row.row.name] ?? {}).flatMap(([entry, before]): Fall[] => {
      const ratio = row.ratios[entry];
      if (ratio === undefined || ratio >= TOLERATED * before) return [];
      return [{ row, text: `${row.row.name}: ${formatNumber(ratio)} x ${entry}, recorded ${formatNumber(before)}` }];
    }),
  );
}

function guardedRows(results: readonly ScenarioResult[]): MeasuredRow[] {
  return results.flatMap(({ rows }) => rows.filter(({ row }) => row.guarded === true));
}

function readRecorded(): Ratios {
  return existsSync(RECORDED) ? (JSON.parse(readFileSync(RECORDED, 'utf8')) as Ratios) : {};
}
