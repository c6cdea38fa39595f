import { parseArgs, type ParseArgsConfig } from 'node:util';
import { CATALOG, type FaultName, faultsFor, isFaultName } from './faults/catalog.js';
import { isMutation, type Mutation, MUTATIONS } from './mutations/mutations.js';
import type { ServersKind } from './servers/servers.js';

export interface TortureOptions {
  readonly redis: ServersKind;
  /** Of traffic with faults; draining and checking come after. */
  readonly seconds: number;
  readonly seed: string;
  readonly faults: readonly FaultName[];
  readonly producers: number;
  readonly consumers: number;
  /** Messages a second, over all producers. */
  readonly rate: number;
  readonly mutation?: Mutation;
}

export type Command =
  | { readonly do: 'torture'; readonly options: TortureOptions; readonly json?: string; readonly keep: boolean }
  | { readonly do: 'list' }
  | { readonly do: 'help' };

/** Arguments that cannot be used, with what is wrong about them. */
export class UsageError extends Error {}

const KINDS: readonly ServersKind[] = ['standalone', 'sentinel', 'cluster'];

export const DEFAULTS = { redis: 'standalone', seconds: 60, producers: 2, consumers: 3, rate: 300 } as const;

export const USAGE = `Usage: npm run torture -- [options]

  --redis KIND      ${KINDS.join(', ')} (default ${DEFAULTS.redis})
  --seconds N       traffic with faults; each fault comes at least once from 60 on (default ${DEFAULTS.seconds})
  --seed TEXT       the same seed gives the same plan of faults and fates of messages (default: a random one)
  --faults A,B      only these (default: all that the servers have)
  --producers N     processes that send (default ${DEFAULTS.producers})
  --consumers N     processes that handle (default ${DEFAULTS.consumers})
  --rate N          messages a second, over all producers (default ${DEFAULTS.rate})
  --json FILE       writes the table and what broke as JSON
  --keep            keeps the records of all processes
  --mutation NAME   switches a protection of the engine off, to see torture fail
  --list            the faults, and the mutations
  --help            this text

Ends with 0 if every invariant held, 1 if one broke, 2 if these arguments cannot be used.
`;

const config = {
  strict: true,
  allowPositionals: false,
  options: {
    redis: { type: 'string' },
    seconds: { type: 'string' },
    seed: { type: 'string' },
    faults: { type: 'string' },
    producers: { type: 'string' },
    consumers: { type: 'string' },
    rate: { type: 'string' },
    mutation: { type: 'string' },
    json: { type: 'string' },
    keep: { type: 'boolean' },
    list: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  },
} as const satisfies ParseArgsConfig;

/** @throws UsageError */
export function parseCommand(args: readonly string[]): Command {
  const values = parsed(args);
  if (values.help) return { do: 'help' };
  if (values.list) return { do: 'list' };
  const redis = kindOf(values.redis ?? DEFAULTS.redis);
  const seed = values.seed ?? String(Math.floor(Math.random() * 1e6));
  if (!/^[\w.-]{1,64}$/.test(seed)) throw new UsageError('--seed takes letters, digits, dots, dashes and underscores');
  const options: TortureOptions = {
    redis,
    seed,
    seconds: numberOf('seconds', values.seconds, 5, 86_400),
    faults: faultsOf(values.faults, redis),
    producers: numberOf('producers', values.producers, 1, 32),
    consumers: numberOf('consumers', values.consumers, 1, 32),
    rate: numberOf('rate', values.rate, 1, 20_000),
    ...(values.mutation !== undefined && { mutation: mutationOf(values.mutation) }),
  };
  return { do: 'torture', options, keep: values.keep ?? false, ...(values.json && { json: values.json }) };
}

/** The arguments that lead to the same plan again. */
export function argumentsFor(options: TortureOptions): string {
  const { redis, seconds, seed, faults, producers, consumers, rate, mutation } = options;
  const args = ['--redis', redis, '--seconds', seconds, '--seed', seed];
  if (faults.length < faultsFor(redis).length) args.push('--faults', faults.join(','));
  if (producers !== DEFAULTS.producers) args.push('--producers', producers);
  if (consumers !== DEFAULTS.consumers) args.push('--consumers', consumers);
  if (rate !== DEFAULTS.rate) args.push('--rate', rate);
  if (mutation !== undefined) args.push('--mutation', mutation);
  return args.join(' ');
}

/** All that can be chosen from. */
export function listing(): string {
  const faults = (Object.keys(CATALOG) as FaultName[]).map((name): [string, string] => {
    const kinds = KINDS.filter((kind) => faultsFor(kind).includes(name));
    const only = kinds.length === KINDS.length ? '' : ` (${kinds.join(', ')})`;
    return [name, CATALOG[name].about + only];
  });
  const lines = (rows: readonly [string, string][]): string =>
    rows.map(([name, about]) => `  ${name.padEnd(16)} ${about}\n`).join('');
  return `faults\n${lines(faults)}mutations\n${lines(Object.entries(MUTATIONS))}`;
}

function parsed(args: readonly string[]): ReturnType<typeof parseArgs<typeof config>>['values'] {
  try {
    return parseArgs({ ...config, args: [...args] }).values;
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function kindOf(text: string): ServersKind {
  const kind = KINDS.find((one) => one === text);
  if (kind === undefined) throw new UsageError(`--redis is ${KINDS.join(', ')}, and not '${text}'`);
  return kind;
}

function numberOf(
  name: 'seconds' | 'producers' | 'consumers' | 'rate',
  text: string | undefined,
  min: number,
  max: number,
): number {
  const value = Number(text ?? DEFAULTS[name]);
  if (text?.trim() === '' || !Number.isInteger(value) || value < min || value > max)
    throw new UsageError(`--${name} takes a whole number from ${min} to ${max}, and not '${text}'`);
  return value;
}

function mutationOf(name: string): Mutation {
  if (!isMutation(name)) throw new UsageError(`there is no mutation '${name}' (--list shows them)`);
  return name;
}

function faultsOf(text: string | undefined, kind: ServersKind): FaultName[] {
  const possible = faultsFor(kind);
  if (text === undefined) return possible;
  const names = [...new Set(text.split(',').map((name) => name.trim()))];
  return names.map((name) => {
    if (!isFaultName(name)) throw new UsageError(`there is no fault '${name}' (--list shows them)`);
    if (!possible.includes(name)) throw new UsageError(`${kind} does not have the fault '${name}'`);
    return name;
  });
}
