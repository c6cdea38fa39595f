import type { ScenarioResult } from '../runner.js';
import type { Machine, Versions } from './machine.js';

export interface BenchJson {
  readonly machine: Machine;
  readonly versions: Versions;
  readonly scenarios: readonly {
    readonly name: string;
    readonly unit: string;
    readonly medians: Readonly<Record<string, number>>;
    readonly ratios: Readonly<Record<string, number>>;
    readonly target: string | null;
    readonly met: boolean | null;
  }[];
}

export function toJson(machine: Machine, versions: Versions, results: readonly ScenarioResult[]): BenchJson {
  const rows = results.flatMap(({ rows: ofScenario }) => ofScenario);
  return {
    machine,
    versions,
    scenarios: rows.map(({ row, medians, ratios, met }) => ({
      name: row.name,
      unit: row.unit,
      medians,
      ratios,
      target: row.checks?.map(({ text }) => text).join('; ') || null,
      met,
    })),
  };
}
