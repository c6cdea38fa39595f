// `npm run sizing`: see docs/sizing.md.
import { describeMeasured, describePlan, describeSimulation } from './describe.js';
import { parseCommand, USAGE, UsageError } from './options.js';
import { planFor } from './plan.js';
import { simulate } from './simulation.js';

async function answer(args: readonly string[]): Promise<string> {
  const command = parseCommand(args);
  switch (command.do) {
    case 'help':
      return USAGE;
    case 'plan':
      return describePlan(command.load, planFor(command.load, command.options), command.options);
    case 'simulate':
      return describeSimulation(simulate(command.members, command.partitions), command.masters, command.options);
    case 'measure': {
      const { measure } = await import('./measure.js');
      return describeMeasured(await measure());
    }
  }
}

try {
  process.stdout.write(await answer(process.argv.slice(2)));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
}
