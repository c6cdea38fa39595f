import type { ResolvedMqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { figuresOf } from './figures.js';
import type { Measured } from './measure.js';
import type { Load, Plan } from './plan.js';
import type { Simulation } from './simulation.js';
import { emptyReadMs, upkeepOf } from './upkeep.js';
import { warningsOf } from './warnings.js';

/** Those who hear of it look: when the first partition is released, when it has left, when the new one joins, and when that has got its share. */
const LOOKS_OF_A_RESTART = 4;

export function describePlan(load: Load, plan: Plan, options: ResolvedMqOptions): string {
  const rows = figuresOf(load, plan, options).map(({ name, value, why }) => [name, value, why]);
  const warnings = warningsOf(load, plan, options).map((warning) => `- ${warning}\n`);
  return `${table(rows)}${warnings.length > 0 ? `\n${warnings.join('')}` : ''}`;
}

export function describeSimulation(simulation: Simulation, masters: number, options: ResolvedMqOptions): string {
  const { members, partitions, topics, steps } = simulation;
  const upkeep = upkeepOf({ instances: members, partitions, topics, masters }, options);
  const { commandsPerSec: commands, look } = upkeep;
  const head = ['', 'slowest call', 'moved', 'needed', 'most - least owned'];
  const rows = steps.map((step) => [
    step.name,
    `${step.slowestMs.toFixed(0)} ms`,
    String(step.moved),
    String(step.neededToMove),
    String(step.spread),
  ]);
  const perSec = (value: number): string => `${Math.round(value).toLocaleString('en-US')}/s`;
  const load = [
    [
      'leases renewed',
      perSec(upkeep.leaseRenewalsPerSec),
      `each every ${options.renewIntervalMs / 1_000} s, by ${perSec(commands.renewals)} commands`,
    ],
    [
      'heartbeats',
      perSec(commands.heartbeats),
      `each instance every ${upkeep.lookEveryMs / 1_000} s, with the list of all members`,
    ],
    [
      'leases looked at',
      perSec(upkeep.leasesSeenPerSec),
      `each instance sees all ${partitions}, by ${perSec(commands.looksAtOwners)} commands`,
    ],
    ['empty reads', perSec(commands.reads), `every ${emptyReadMs(options, masters) / 1_000} s`],
    ['looks for what is due', perSec(commands.looksForDue), `every ${options.retryMoverIntervalMs / 1_000} s`],
    ['commands, all', perSec(commands.total), 'without messages'],
    ['one look', `${look.redisMs.toFixed(1)} ms`, `of Redis, and ${look.nodeMs.toFixed(0)} ms of the instance`],
    [
      'Redis',
      `${(100 * upkeep.redisLoad).toFixed(0)} %`,
      `of one core${masters > 0 ? `, over ${masters} masters` : ''}`,
    ],
    [
      'one instance restarts',
      `${((LOOKS_OF_A_RESTART * members * look.redisMs) / 1_000).toFixed(1)} s`,
      `of Redis: its leaving, its joining and the hand-overs have all others look about ${LOOKS_OF_A_RESTART} times`,
    ],
  ];
  return `${members} instances, ${partitions} partitions of ${topics} topic(s), one group

${table([head, ...rows])}
What Redis is asked for, by the intervals of the options and the costs of --measure:

${table(load)}`;
}

export function describeMeasured(measured: readonly Measured[]): string {
  return table(measured.map(({ name, value, unit }) => [name, `${value.toFixed(unit === 'B' ? 0 : 2)} ${unit}`]));
}

/** Columns as wide as their longest cell. */
function table(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]): string => row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ');
  return rows.map((row) => `${line(row).trimEnd()}\n`).join('');
}
