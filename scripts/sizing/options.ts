import { parseArgs } from 'node:util';
import { MqInvalidOptionsError } from '../../libs/redis-streams-mq/src/core/errors.js';
import type { ResolvedMqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { resolveOptions } from '../../libs/redis-streams-mq/src/core/resolve-options.js';
import type { Load } from './plan.js';

export type Command =
  | { readonly do: 'help' }
  | { readonly do: 'measure' }
  | {
      readonly do: 'simulate';
      readonly members: number;
      readonly partitions: number;
      readonly masters: number;
      readonly options: ResolvedMqOptions;
    }
  | { readonly do: 'plan'; readonly load: Load; readonly options: ResolvedMqOptions };

export const USAGE = `npm run sizing -- --rate <n> [options]         what a load needs: one topic and its groups
npm run sizing -- --simulate [options]         many instances come and go in one group, in memory
npm run sizing -- --measure                    the costs it reckons with, on a Redis of its own: about 15 seconds

  --rate <n>               messages sent per second, at the peak
  --payload <size>         bytes of a payload: 300, 1KB, 2.5MB (1KB)
  --handler-ms <n>         how long a handler call takes (10)
  --cpu-ms <n>             processor time of a message in the instance, handler and library (0.2)
  --groups <n>             consumer groups, each a service of its own (1)
  --retention-hours <n>    how long messages are kept; without it retentionMaxLenPerPartition decides
  --hot-key-rate <n>       messages per second of the key that has most
  --producers <n>          processes that only send (0)
  --masters <n>            masters of a Redis Cluster; 0 is a single server or Sentinel (0)
  --utilization <n>        share of the places and the processor that may be taken at the peak (0.7)
  --partitions <n>         as they are, in place of what is needed; in a simulation 10000
  --instances <n>          the same, of each group
  --members <n>            instances of the group in a simulation (1000)

  Options of a handler and of the module, with their defaults:
  --concurrency <n>        messages of a partition at once (1)
  --worker-threads <n>     handlers at once in an instance (16)
  --batch-count <n>        consumerBatchCount (32)
  --lease-ttl <seconds>    leaseTtlSeconds (15)
  --renew-interval <seconds>
  --rebalance-interval <seconds>
  --max-len <n>            retentionMaxLenPerPartition (100000)
`;

/** What is wrong with the words of the command line. */
export class UsageError extends Error {}

const text = { type: 'string' } as const;
const flag = { type: 'boolean' } as const;
const WORDS = {
  help: flag,
  simulate: flag,
  measure: flag,
  rate: text,
  payload: text,
  'handler-ms': text,
  'cpu-ms': text,
  groups: text,
  'retention-hours': text,
  'hot-key-rate': text,
  producers: text,
  masters: text,
  utilization: text,
  partitions: text,
  instances: text,
  members: text,
  concurrency: text,
  'worker-threads': text,
  'batch-count': text,
  'lease-ttl': text,
  'renew-interval': text,
  'rebalance-interval': text,
  'max-len': text,
} as const;

type Words = Readonly<Record<string, string | boolean | undefined>>;

/** @throws UsageError naming the option and what it takes */
export function parseCommand(args: readonly string[]): Command {
  const words = parse(args);
  if (words.help === true) return { do: 'help' };
  if (words.measure === true) return { do: 'measure' };
  const options = resolve(words);
  const masters = whole(words, 'masters', 0, { least: 0, most: 1_000 });
  if (words.simulate === true) {
    return {
      do: 'simulate',
      members: whole(words, 'members', 1_000, { least: 1, most: 5_000 }),
      partitions: whole(words, 'partitions', 10_000, { least: 1, most: 50_000 }),
      masters,
      options,
    };
  }
  if (words.rate === undefined) throw new UsageError('--rate is needed: messages sent per second, at the peak');
  if (words.members !== undefined) throw new UsageError('--members is for --simulate; the load takes --instances');
  const utilization = amount(words, 'utilization', 0.7, { above: 0 });
  if (utilization >= 1) throw new UsageError('--utilization must be below 1');
  return {
    do: 'plan',
    options,
    load: {
      ratePerSec: amount(words, 'rate', 0, { above: 0 }),
      payloadBytes: size(words, 'payload', 1_024),
      handlerMs: amount(words, 'handler-ms', 10, { above: 0 }),
      cpuMs: amount(words, 'cpu-ms', 0.2, { above: 0 }),
      groups: whole(words, 'groups', 1, { least: 1, most: 10_000 }),
      retentionHours: amount(words, 'retention-hours', 0, { above: 0 }),
      concurrency: whole(words, 'concurrency', 1, { least: 1, most: 65_536 }),
      partitions: whole(words, 'partitions', 0, { least: 1, most: 1_000_000 }),
      instances: whole(words, 'instances', 0, { least: 1, most: 1_000_000 }),
      utilization,
      hotKeyRate: amount(words, 'hot-key-rate', 0, { above: 0 }),
      masters,
      producers: whole(words, 'producers', 0, { least: 0, most: 1_000_000 }),
    },
  };
}

function parse(args: readonly string[]): Words {
  try {
    return parseArgs({ args: [...args], options: WORDS, strict: true }).values;
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error });
  }
}

/** The library's own rules and defaults. */
function resolve(words: Words): ResolvedMqOptions {
  const given = {
    'worker-threads': words['worker-threads'],
    'consumer-batch-count': words['batch-count'],
    'lease-ttl-seconds': words['lease-ttl'],
    'renew-interval-sec': words['renew-interval'],
    'rebalance-interval-sec': words['rebalance-interval'],
    'retention-max-len-per-partition': words['max-len'],
  };
  const present = Object.entries(given).filter(([, value]) => value !== undefined);
  try {
    return resolveOptions(Object.fromEntries(present));
  } catch (error) {
    if (!(error instanceof MqInvalidOptionsError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

function amount(words: Words, name: string, absent: number, { above }: { readonly above: number }): number {
  const word = words[name];
  if (word === undefined) return absent;
  const value = toNumber(word);
  if (value > above && value <= Number.MAX_SAFE_INTEGER) return value;
  throw new UsageError(`--${name} must be a number above ${above}, not "${word}"`);
}

function whole(
  words: Words,
  name: string,
  absent: number,
  { least, most }: { readonly least: number; readonly most: number },
): number {
  const word = words[name];
  if (word === undefined) return absent;
  const value = toNumber(word);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UsageError(`--${name} must be a whole number from ${least} to ${most}, not "${word}"`);
}

function size(words: Words, name: string, absent: number): number {
  const word = words[name];
  if (word === undefined) return absent;
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?)(B|KB|MB)?$/i.exec(String(word)) ?? [];
  const bytes = Math.round(Number(digits) * { '': 1, B: 1, KB: 1_024, MB: 1_048_576 }[unit.toUpperCase()]!);
  if (bytes >= 1 && bytes <= 512 * 1_048_576) return bytes;
  throw new UsageError(`--${name} must be a size from 1 B to 512 MB, as in 300, 1KB or 2.5MB, not "${word}"`);
}

/** `Number` alone takes blanks and hexadecimal, too. */
function toNumber(word: string | boolean): number {
  return typeof word === 'string' && /^\d+(\.\d+)?$/.test(word) ? Number(word) : Number.NaN;
}
