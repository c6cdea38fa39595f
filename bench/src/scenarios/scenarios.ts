import type { Scenario } from '../scenario.js';
import { consumeScenarios } from './consume.js';
import { assignmentScenarios } from './assignment.js';
import { clusterScenarios } from './cluster.js';
import { durabilityScenarios } from './durability.js';
import { failureScenarios } from './failures.js';
import { idleScenarios } from './idle.js';
import { latencyScenarios } from './latency.js';
import { memoryScenarios } from './memory.js';
import { mixedScenarios } from './mixed.js';
import { pipelineScenarios } from './pipeline.js';
import { scalingScenarios } from './scaling.js';
import { takeoverScenarios } from './takeover.js';
import { sendScenarios } from './send.js';

export const scenarios: readonly Scenario[] = [
  ...sendScenarios,
  ...consumeScenarios,
  ...mixedScenarios,
  ...latencyScenarios,
  ...failureScenarios,
  ...takeoverScenarios,
  ...pipelineScenarios,
  ...scalingScenarios,
  ...idleScenarios,
  ...memoryScenarios,
  ...durabilityScenarios,
  ...clusterScenarios,
  ...assignmentScenarios,
];

export function findScenario(name: string): Scenario {
  const found = scenarios.find((scenario) => scenario.name === name);
  if (found === undefined)
    throw new Error(`there is no scenario ${name}; there are ${scenarios.map((s) => s.name).join(', ')}`);
  return found;
}
