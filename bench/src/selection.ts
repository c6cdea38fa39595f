import type { BenchOptions } from './options.js';
import type { Scenario } from './scenario.js';
import { scenarios } from './scenarios/scenarios.js';

/** @throws Error when a name fits none */
export function selectScenarios({ only, quick, assert }: Pick<BenchOptions, 'only' | 'quick' | 'assert'>): Scenario[] {
  if (only.length === 0) {
    return scenarios.filter(
      ({ inQuick, rows }) => (!quick || inQuick) && (!assert || rows.some(({ guarded }) => guarded)),
    );
  }
  return only.flatMap((name) => {
    const found = scenarios.filter((scenario) => fits(scenario.name, name));
    if (found.length === 0)
      throw new Error(`no scenario fits ${name}; there are ${scenarios.map((s) => s.name).join(', ')}`);
    return found;
  });
}

function fits(name: string, pattern: string): boolean {
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}
