import { join } from 'node:path';
import type { BenchOptions } from './options.js';
import type { Durability } from './environment.js';
import type { Entry, Figures, Row, Scenario } from './scenario.js';
import { Servers } from './servers/servers.js';
import { median, summarize, type Summary } from './statistics.js';
import type { WorkerSettings } from './worker/protocol.js';
import { Worker } from './worker/worker.js';

const ROUNDS = { full: 5, quick: 3 };

/** A row with what was measured. */
export interface MeasuredRow {
  readonly row: Row;
  readonly scenario: Scenario;
  readonly durability: Durability;
  /** By entry, in the scenario's order; those that did not take part are missing. */
  readonly summaries: Readonly<Record<string, Summary>>;
  readonly medians: Readonly<Record<string, number>>;
  /** First entry to each other: the median of the ratios of each round. Above 1 the first is better, whatever the unit. */
  readonly ratios: Readonly<Record<string, number>>;
  /** `null` without a target, and where those that the target names did not take part. */
  readonly met: boolean | null;
}

export interface ScenarioResult {
  readonly rows: readonly MeasuredRow[];
  /** Entry to why it did not take part. */
  readonly skipped: ReadonlyMap<string, string>;
  readonly rounds: number;
}

/** Runs a scenario: a process for each entry, and rounds in which all of them take their turn. */
export async function runScenario(scenario: Scenario, options: BenchOptions): Promise<ScenarioResult> {
  const durability = scenario.durability ?? options.durability;
  const rounds =
    options.rounds ??
    (options.quick ? Math.min(ROUNDS.quick, scenario.rounds ?? ROUNDS.quick) : (scenario.rounds ?? ROUNDS.full));
  const skipped = new Map<string, string>();
  const wanted = scenario.entries.filter((entry) => isWanted(entry, options, skipped));
  const servers = await Servers.start(scenario.server, new Set(wanted.map(({ contender }) => contender)), durability);
  const workers = new Map<Entry, Worker>();
  try {
    for (const entry of wanted) {
      const reason = servers.missing.get(entry.contender);
      if (reason !== undefined) skipped.set(entry.name, reason);
      else workers.set(entry, await startWorker(scenario, entry, servers, durability, options));
    }
    const figures = await runRounds(scenario, workers, servers, rounds);
    return { rows: scenario.rows.map((row) => measured(row, scenario, durability, figures)), skipped, rounds };
  } finally {
    await Promise.all([...workers.values()].map((worker) => worker.stop()));
    await servers.stop();
  }
}

function isWanted(
  { name, contender, fullOnly = false }: Entry,
  options: BenchOptions,
  skipped: Map<string, string>,
): boolean {
  if (options.without.includes(contender)) skipped.set(name, 'left out by --without');
  else if (fullOnly && options.quick) skipped.set(name, 'not part of a quick run');
  return !skipped.has(name);
}

function startWorker(
  scenario: Scenario,
  entry: Entry,
  servers: Servers,
  durability: Durability,
  { quick, profile }: BenchOptions,
): Promise<Worker> {
  const { urls, pids } = servers.of(entry.contender);
  const settings: WorkerSettings = {
    scenario: scenario.name,
    entry: entry.name,
    urls,
    serverPids: pids,
    durability,
    quick,
    ...(profile !== undefined && { profile: join(profile, `${scenario.name}-${entry.name}.cpuprofile`) }),
  };
  return Worker.start(settings, scenario.timeoutMs);
}

/** Each round begins with another entry, so that none always follows the same one. */
async function runRounds(
  { warmUps = 1 }: Scenario,
  workers: ReadonlyMap<Entry, Worker>,
  servers: Servers,
  rounds: number,
): Promise<Map<string, Figures[]>> {
  const figures = new Map<string, Figures[]>([...workers.keys()].map(({ name }) => [name, []]));
  for (let round = -warmUps; round < rounds; round++) {
    const turn = Math.max(0, round) % workers.size;
    const order = [...workers];
    for (const [entry, worker] of [...order.slice(turn), ...order.slice(0, turn)]) {
      await servers.of(entry.contender).empty();
      const result = await worker.round(round < 0);
      if (round >= 0) figures.get(entry.name)!.push(result);
    }
  }
  return figures;
}

export function measured(
  row: Row,
  scenario: Scenario,
  durability: Durability,
  figures: ReadonlyMap<string, readonly Figures[]>,
): MeasuredRow {
  const values = new Map<string, number[]>();
  for (const [name, rounds] of figures) {
    const ofRow = rounds.map((round) => round[row.figure]).filter((value) => value !== undefined);
    if (ofRow.length > 0) values.set(name, ofRow);
  }
  const summaries = Object.fromEntries([...values].map(([name, ofEntry]) => [name, summarize(ofEntry)]));
  const medians = Object.fromEntries(Object.entries(summaries).map(([name, summary]) => [name, summary.median]));
  const [judged] = scenario.entries;
  const first = values.get(judged!.name);
  const others = first === undefined ? [] : [...values].filter(([name]) => name !== judged!.name);
  const ratios = Object.fromEntries(others.map(([name, ofOther]) => [name, pairedRatio(first!, ofOther, row.better)]));
  const checks = first === undefined ? [] : (row.checks ?? []).map((check) => check.met({ medians, ratios }));
  const known = checks.filter((met) => met !== undefined);
  return {
    row,
    scenario,
    durability,
    summaries,
    medians,
    ratios,
    met: known.length === 0 ? null : known.every(Boolean),
  };
}

/** Of values measured next to each other, so that what slows a machine down for a while slows both. */
function pairedRatio(first: readonly number[], other: readonly number[], better: Row['better']): number {
  return median(first.map((value, round) => (better === 'higher' ? value / other[round]! : other[round]! / value)));
}
