/** Entry of a process that runs the rounds of one entry of one scenario, each when it is told to. */
import { inspect } from 'node:util';
import { findScenario } from '../scenarios/scenarios.js';
import type { FromWorker, RunRound, WorkerSettings } from './protocol.js';
import { Profiler } from './profiler.js';
import { Round } from './round.js';

const settings = JSON.parse(process.argv[2] ?? '') as WorkerSettings;
const scenario = findScenario(settings.scenario);
const entry = scenario.entries.find(({ name }) => name === settings.entry)!;
const profiler = settings.profile === undefined ? undefined : new Profiler(settings.profile);

// Ctrl-C reaches every process of the terminal; the parent ends this one by disconnecting.
process.on('SIGINT', () => undefined);
process.on('disconnect', () => process.exit());
// Clients of others may leave a promise behind when they are closed; ours may not.
process.on('unhandledRejection', (error) => {
  if (entry.contender === 'ours' || entry.contender === 'engine') throw error;
  console.error(`${settings.scenario} ${settings.entry}: a promise that nobody handles: ${inspect(error)}`);
});
process.on('message', (message: RunRound) => void answer(message));
tell({ type: 'ready' });

async function answer({ isWarmUp }: RunRound): Promise<void> {
  try {
    globalThis.gc?.();
    tell({ type: 'figures', figures: await new Round(settings, entry, isWarmUp, profiler).run(scenario) });
  } catch (error) {
    tell({ type: 'failed', error: inspect(error) });
  }
}

function tell(message: FromWorker): void {
  process.send?.(message);
}
