import { MqRedisError } from '../core/errors.js';
import type { Connection } from './connection.js';
import { needed, probeOf, type Use } from './needed-commands.js';
import { replyCode } from './redis-errors.js';
import type { Outcome, Reply } from './reply.js';

/** Two keys that nothing else uses, in one slot: one with each of the prefixes. They go by themselves. */
export interface ProbeKeys {
  readonly control: string;
  readonly data: string;
}

/** Code of the error that lists what is missing. */
export const NOT_ALLOWED = 'MQ_REDIS_NOT_ALLOWED';

const PROBE_TTL_MS = 1_000;

/**
 * Sends every command that is needed, each in a way that changes nothing: Redis looks at the rights of the user
 * before it looks at the key.
 *
 * @throws MqRedisError `MQ_REDIS_NOT_ALLOWED` with all that is missing: commands that this user may not run or that this
 * server does not have, and key patterns.
 */
export async function checkPermissions(connection: Connection, keys: ProbeKeys, use: Use): Promise<void> {
  const commands = needed(use);
  const [made, read, written, ...replies] = await connection.pipeline([
    ['SET', keys.control, 'probe', 'PX', PROBE_TTL_MS],
    ['XRANGE', keys.data, '-', '+', 'COUNT', 1],
    ['XADD', keys.data, 'NOMKSTREAM', '*', 'f', 'v'],
    ...commands.map((command) => probeOf(command, keys.control)),
  ]);
  if (made?.ok === false && replyCode(made.error) === 'NOAUTH') {
    throw new MqRedisError(NOT_ALLOWED, `Redis refuses the connection: ${made.error.message}`, { cause: made.error });
  }
  const missing = commands.flatMap(({ name }, i) => refusal(replies[i], name));
  const noControl = isKeyRefused(made);
  const noData = isKeyRefused(read) || isKeyRefused(written);
  if (noControl) missing.push(`access to the key ${keys.control}, and others with keyPrefix`);
  if (noData) missing.push(`access to the key ${keys.data}, and others with streamKeyPrefix`);
  if (missing.length === 0) return;
  throw new MqRedisError(
    NOT_ALLOWED,
    `this Redis does not let the queue work. Missing: ${missing.join('; ')}. docs/redis.md has the rights that are needed`,
    { context: { missing } },
  );
}

function refusal(outcome: Outcome<Reply> | undefined, name: string): string[] {
  if (outcome === undefined || outcome.ok || isKeyRefused(outcome)) return [];
  if (replyCode(outcome.error) === 'NOPERM') return [`the right to run ${name}`];
  return /^ERR unknown (sub)?command/i.test(outcome.error.message) ? [`the command ${name}`] : [];
}

function isKeyRefused(outcome: Outcome<Reply> | undefined): boolean {
  if (outcome === undefined || outcome.ok) return false;
  return replyCode(outcome.error) === 'NOPERM' && /\bkeys?\b/.test(outcome.error.message);
}
