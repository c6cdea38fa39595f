import type { Scenario } from '../scenario.js';
import { consumeScenarios } from './consume.js';
import { sendScenarios } from './send.js';

export const scenarios: readonly Scenario[] = [...sendScenarios, ...consumeScenarios];

export function findScenario(name: string): Scenario {
  const found = scenarios.find((scenario) => scenario.name === name);
  if (found === undefined)
    throw new Error(`there is no scenario ${name}; there are ${scenarios.map((s) => s.name).join(', ')}`);
  return found;
}
