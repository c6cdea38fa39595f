// `npm run torture`: see docs/reliability.md.
import { writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { check } from './checker/check.js';
import { listing, parseCommand, USAGE, UsageError, type Command } from './options.js';
import { describeRun } from './report/describe.js';
import { reportOf } from './report/report.js';
import { forgetEvidence, keepEvidence, torture } from './run.js';

// Servers and children go with this process, by their exit hooks.
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => process.exit(128 + constants.signals[signal]));
}

function commandOf(args: readonly string[]): Command | undefined {
  try {
    return parseCommand(args);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`${error.message}\n\n${USAGE}`);
    return undefined;
  }
}

async function execute(command: Command): Promise<number> {
  if (command.do === 'help') process.stdout.write(USAGE);
  if (command.do === 'list') process.stdout.write(listing());
  if (command.do !== 'torture') return 0;
  const { options, json, keep } = command;
  const { redis, seed, seconds } = options;
  process.stdout.write(`Torturing ${redis} with seed ${seed} for ${seconds} s ...\n`);
  // Here too: the faults know scripts by their digests.
  if (options.mutation !== undefined) await import(`./mutations/${options.mutation}.ts`);
  const run = await torture(options);
  const violations = check(run);
  const report = reportOf(run, violations);
  process.stdout.write(describeRun(report));
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(report, null, 2)}\n`);
  if (keep || violations.length > 0) {
    keepEvidence(run, violations);
    process.stdout.write(`records and evidence: ${run.folder}\n`);
  } else {
    forgetEvidence(run);
  }
  return violations.length > 0 ? 1 : 0;
}

const command = commandOf(process.argv.slice(2));
// Children that a fault has frozen, or a server that went wrong, must not keep it.
process.exit(command === undefined ? 2 : await execute(command));
