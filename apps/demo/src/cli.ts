import { parseArgs } from 'node:util';

export const USAGE = `Usage: npm run demo -- [options]

Without options it publishes 20,000 flights, handles them in two processes, shows what happened, and then serves
/health and /metrics until Ctrl-C.

  --exit           end after the checks: 0 if all passed, 1 if one failed
  --rate <n>       publish n messages a second (default: as fast as Redis takes them)
  --port <n>       port for /health and /metrics (default 3000; 0 takes a free one)
  --logs           show what the consumer processes log (otherwise only if something goes wrong)
  --help           this text

Your own data, one JSON object a line:

  --file <path>    the file
  --topic <name>   the topic to publish to
  --key <field>    the field whose value is the message key: equal keys are handled in order

Example: npm run demo -- --exit --file orders.jsonl --topic orders --key customerId`;

/** What the person typed cannot work; the message says why and what to type. */
export class UsageError extends Error {}

export interface JsonLinesInput {
  readonly file: string;
  readonly topic: string;
  readonly keyField: string;
}

export interface DemoOptions {
  readonly exit: boolean;
  readonly logs: boolean;
  /** Messages a second; `null` is as fast as possible. */
  readonly rate: number | null;
  readonly port: number;
  /** The user's own file; `null` is the flights. */
  readonly input: JsonLinesInput | null;
}

/** @throws UsageError */
export function parseCli(args: readonly string[]): DemoOptions | 'help' {
  const { help, exit, logs, rate, port, file, topic, key } = readFlags(args);
  if (help) return 'help';
  return {
    exit: exit ?? false,
    logs: logs ?? false,
    rate: rate === undefined ? null : wholeNumber('--rate', rate, 1, 1_000_000),
    port: port === undefined ? 3000 : wholeNumber('--port', port, 0, 65_535),
    input: jsonLinesInput(file, topic, key),
  };
}

function readFlags(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      strict: true,
      allowPositionals: false,
      options: {
        help: { type: 'boolean', short: 'h' },
        exit: { type: 'boolean' },
        logs: { type: 'boolean' },
        rate: { type: 'string' },
        port: { type: 'string' },
        file: { type: 'string' },
        topic: { type: 'string' },
        key: { type: 'string' },
      },
    }).values;
  } catch (error) {
    throw usage(error instanceof Error ? error.message : String(error));
  }
}

function jsonLinesInput(file?: string, topic?: string, key?: string): JsonLinesInput | null {
  if (file === undefined && topic === undefined && key === undefined) return null;
  const missing = Object.entries({ '--file': file, '--topic': topic, '--key': key }).filter(([, value]) => !value);
  if (!file || !topic || !key) {
    throw usage(`--file, --topic and --key belong together; missing: ${missing.map(([flag]) => flag).join(', ')}`);
  }
  if (!/^[A-Za-z0-9._-]{1,249}$/.test(topic) || topic === '.' || topic === '..') {
    throw usage(`--topic "${topic}": a topic name has 1 to 249 of A-Z a-z 0-9 . _ - and is not "." or ".."`);
  }
  return { file, topic, keyField: key };
}

function wholeNumber(flag: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < min || value > max) {
    throw usage(`${flag} takes a whole number from ${min} to ${max}, not "${text}"`);
  }
  return value;
}

function usage(problem: string): UsageError {
  return new UsageError(`${problem}\n\n${USAGE}`);
}
