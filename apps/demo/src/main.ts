import 'reflect-metadata';
import { parseCli, USAGE, UsageError, type DemoOptions } from './cli.js';
import { runDemo } from './coordinator.js';
import { FlightsScenario } from './flights/flights.scenario.js';
import { JsonLinesScenario } from './json-lines/json-lines.scenario.js';
import { RunError } from './run-error.js';
import type { Scenario } from './scenario.js';

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
const EXIT_INTERRUPTED = 130;

async function prepare(): Promise<{ options: DemoOptions; scenario: Scenario } | undefined> {
  const options = parseCli(process.argv.slice(2));
  if (options === 'help') {
    console.log(USAGE);
    return undefined;
  }
  if (!process.env['REDIS_URL']) {
    throw new UsageError('REDIS_URL is not set. `npm run demo` finds or starts a Redis by itself; use that.');
  }
  const { input } = options;
  return { options, scenario: input ? await JsonLinesScenario.open(input) : await FlightsScenario.open() };
}

const interrupt = new AbortController();
// Once only: a second Ctrl-C finds no listener and ends the process at once.
process.once('SIGINT', () => interrupt.abort());
process.once('SIGTERM', () => interrupt.abort());

try {
  const prepared = await prepare();
  if (prepared) {
    const passed = await runDemo(prepared.scenario, prepared.options, interrupt.signal);
    process.exitCode = passed ? 0 : EXIT_FAILED;
  }
} catch (error) {
  if (error instanceof UsageError) {
    console.error(error.message);
    process.exitCode = EXIT_USAGE;
  } else if (interrupt.signal.aborted) {
    console.error('Interrupted.');
    process.exitCode = EXIT_INTERRUPTED;
  } else {
    console.error(error instanceof RunError ? error.message : error);
    process.exitCode = EXIT_FAILED;
  }
}
