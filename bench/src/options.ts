import { parseArgs } from 'node:util';
import type { Durability } from './environment.js';

export interface BenchOptions {
  /** Fewer messages, rounds and scenarios: about a minute. */
  readonly quick: boolean;
  /** Names of scenarios; one that ends in `*` means all that begin so. */
  readonly only: readonly string[];
  /** File for the results. */
  readonly json: string | undefined;
  /** Folder for CPU profiles of each process. */
  readonly profile: string | undefined;
  /** Fails when a ratio has fallen 20 % below the recorded one. */
  readonly assert: boolean;
  /** Writes the ratios as the recorded ones. */
  readonly record: boolean;
  /** Writes docs/benchmarks.md. */
  readonly docs: boolean;
  readonly rounds: number | undefined;
  readonly durability: Durability;
  readonly list: boolean;
  /** Contenders to leave out. */
  readonly without: readonly string[];
}

export const usage = `npm run bench -- [options]

  --quick              fewer messages and rounds, and the scenarios that fit: about a minute and a half
  --only <name>        one scenario; may be repeated; send* means all that begin so
  --without <name>     leaves a contender out (bullmq, nats, rabbitmq ...); may be repeated
  --rounds <n>         rounds that count (5; quick: 3)
  --durability <how>   append-only file: everysec (default), off, always
  --json <file>        writes the results
  --assert             fails when a guarded ratio is 20 % below the recorded one
  --record             writes the guarded ratios as the recorded ones (bench/recorded.json)
  --docs               writes docs/benchmarks.md (a full run does)
  --profile [folder]   writes CPU profiles and prints where the time goes
  --list               names the scenarios
`;

const DURABILITIES: readonly string[] = ['off', 'everysec', 'always'];

/** @throws Error with what is wrong and the usage */
export function parseOptions(args: readonly string[]): BenchOptions {
  const { values, positionals } = parse(args);
  const { quick = false, only = [], durability = 'everysec', rounds } = values;
  if (!DURABILITIES.includes(durability))
    throw new Error(`--durability must be one of ${DURABILITIES.join(', ')}\n\n${usage}`);
  if (rounds !== undefined && !/^[1-9]\d*$/.test(rounds))
    throw new Error(`--rounds must be a number from 1\n\n${usage}`);
  if (positionals.length > (values.profile ? 1 : 0)) throw new Error(`unexpected ${positionals.join(' ')}\n\n${usage}`);
  return {
    quick,
    only,
    json: values.json,
    profile: values.profile ? (positionals[0] ?? 'bench-profiles') : undefined,
    assert: values.assert ?? false,
    record: values.record ?? false,
    docs: values.docs ?? (!quick && only.length === 0),
    rounds: rounds === undefined ? undefined : Number(rounds),
    durability: durability as Durability,
    list: values.list ?? false,
    without: values.without ?? [],
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        quick: { type: 'boolean' },
        only: { type: 'string', multiple: true },
        without: { type: 'string', multiple: true },
        rounds: { type: 'string' },
        durability: { type: 'string' },
        json: { type: 'string' },
        assert: { type: 'boolean' },
        record: { type: 'boolean' },
        docs: { type: 'boolean' },
        profile: { type: 'boolean' },
        list: { type: 'boolean' },
      },
    });
  } catch (error) {
    throw new Error(`${(error as Error).message}\n\n${usage}`, { cause: error });
  }
}
