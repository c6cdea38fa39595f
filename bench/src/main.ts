import { mkdirSync, writeFileSync } from 'node:fs';
import { parseOptions, usage } from './options.js';
import { selectScenarios } from './selection.js';
import { assertRatios, recordRatios } from './guard.js';
import { describeMachine, findVersions } from './report/machine.js';
import { toJson } from './report/json.js';
import { writeDocs } from './report/docs.js';
import { summarizeProfiles } from './report/profile.js';
import { formatScenario } from './report/table.js';
import { runScenario, type ScenarioResult } from './runner.js';
import { scenarios } from './scenarios/scenarios.js';

async function main(args: readonly string[]): Promise<number> {
  if (args.includes('--help')) {
    console.log(usage);
    return 0;
  }
  const options = parseOptions(args);
  if (options.list) {
    for (const { name, description } of scenarios) console.log(`${name.padEnd(24)}${description}`);
    return 0;
  }
  if (options.profile !== undefined) mkdirSync(options.profile, { recursive: true });
  const results: ScenarioResult[] = [];
  const failed: string[] = [];
  const versions = findVersions();
  for (const scenario of selectScenarios(options)) {
    console.log(`${scenario.name}: ${scenario.description}`);
    try {
      const result = await runScenario(scenario, options);
      results.push(result);
      console.log(formatScenario(result));
    } catch (error) {
      // Hours of a long run are not thrown away for one of its parts.
      failed.push(scenario.name);
      console.error(error);
    }
    const machine = describeMachine();
    if (options.json !== undefined)
      writeFileSync(options.json, `${JSON.stringify(toJson(machine, versions, results), null, 2)}\n`);
    if (options.docs) await writeDocs(machine, versions, results, failed);
  }
  if (failed.length > 0) {
    console.error(`failed: ${failed.join(', ')}`);
    return 1;
  }
  if (options.profile !== undefined) console.log(summarizeProfiles(options.profile));
  if (options.record) recordRatios(results);
  return options.assert ? assertRatios(results, options) : 0;
}

// What was started goes with this process, whose `exit` listeners a signal alone would skip.
process.on('SIGTERM', () => process.exit(143)).on('SIGINT', () => process.exit(130));

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
