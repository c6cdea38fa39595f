import type { FaultClass } from '../core/events.js';
import { MqRedisError, thrownText } from '../core/errors.js';

const TRANSIENT_REPLIES = new Set([
  'LOADING',
  'READONLY',
  'UNBLOCKED',
  'TRYAGAIN',
  'CLUSTERDOWN',
  'MASTERDOWN',
  'BUSY',
  'OOM',
  'NOREPLICAS',
  'MISCONF',
  'MOVED',
  'ASK',
  'NOSCRIPT',
]);
const KEY_REPLIES = new Set(['WRONGTYPE', 'NOGROUP']);
const CONFIGURATION_REPLIES = new Set(['NOAUTH', 'NOPERM', 'WRONGPASS', 'CROSSSLOT', 'DENIED']);
/** What an ACL refuses inside a script has no code of its own since Redis 7. */
const SCRIPT_REFUSED = /^ERR (The user executing the script can't|ACL failure in script)/;

/** The first word of an error reply, such as `WRONGTYPE`; empty for errors that are not Redis' own. */
export function replyCode(error: unknown): string {
  if (!(error instanceof Error) || error.name !== 'ReplyError') return '';
  if (SCRIPT_REFUSED.test(error.message)) return 'NOPERM';
  // An error inside a script arrives as `ERR ... -WRONGTYPE ...` before Redis 7.
  const nested = /(?:-|: )(OOM|WRONGTYPE|NOGROUP|READONLY|NOPERM|MISCONF|NOREPLICAS) /.exec(error.message);
  const first = /^-?([A-Z]+)\b/.exec(error.message)?.[1] ?? '';
  return first === 'ERR' || first === '' ? (nested?.[1] ?? first) : first;
}

/**
 * One classification for every loop: `transient` passes by itself, `key` concerns one partition alone,
 * `configuration` needs a person, `unexpected` is anything else (treated like transient, but said loudly).
 */
export function classifyRedisError(error: unknown): FaultClass {
  const code = replyCode(error);
  if (TRANSIENT_REPLIES.has(code)) return 'transient';
  if (KEY_REPLIES.has(code)) return 'key';
  if (CONFIGURATION_REPLIES.has(code)) return 'configuration';
  if (code === 'ERR') {
    const message = (error as Error).message;
    if (/unknown (redis )?(command|subcommand)/i.test(message)) return 'configuration';
    if (/max number of clients/i.test(message)) return 'transient';
    return 'unexpected';
  }
  if (error instanceof MqRedisError) return error.retryable ? 'transient' : 'unexpected';
  return isConnectionError(error) ? 'transient' : 'unexpected';
}

/** The connection failed: whether a command that was sent has run is unknown. */
export function isConnectionError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error.name === 'MaxRetriesPerRequestError' || error.name === 'ClusterAllFailedError') return true;
  if (error.name === 'AbortError') return true;
  const code = (error as NodeJS.ErrnoException).code;
  if (code !== undefined && /^(E(CONN|PIPE|HOST|NET|TIMEDOUT|AI_AGAIN|NOTFOUND)|MQ_REDIS_(AWAY|TIMEOUT))/.test(code))
    return true;
  return /Connection is closed|Socket timeout|Stream isn't writeable|None of startup nodes|Failed to refresh slots|Cluster isn't ready|Too many Cluster redirections|All sentinels are unreachable|Command queue state|Connection in subscriber mode|connect ETIMEDOUT/i.test(
    error.message,
  );
}

/** The command was refused before it left this process. */
export function wasNotSent(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return (
    (error as MqRedisError).code === 'MQ_REDIS_AWAY' || /Stream isn't writeable|Cluster isn't ready/.test(error.message)
  );
}

export function redisAway(name: string): MqRedisError {
  return new MqRedisError('MQ_REDIS_AWAY', `Redis is not connected (${name})`, { retryable: true });
}

export function redisTimeout(name: string, ms: number): MqRedisError {
  return new MqRedisError('MQ_REDIS_TIMEOUT', `Redis did not answer within ${ms} ms (${name})`, { retryable: true });
}

export function isRedisTimeout(error: unknown): boolean {
  return error instanceof MqRedisError && error.code === 'MQ_REDIS_TIMEOUT';
}

const TLS_CODE = /^(ERR_SSL|ERR_TLS|EPROTO|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO|HOSTNAME_MISMATCH)/;

/** Why there is no connection, for people: the last error of a client that does not get ready. */
export function connectionFailureText(error: unknown): string {
  const hint = 'do both sides speak TLS, or neither?';
  if (error === undefined) return `the server closes each connection at once; ${hint}`;
  const cause = failureOfNode(error);
  const { code = '' } = cause as NodeJS.ErrnoException;
  if (code === 'ECONNRESET') return `${thrownText(cause)}; ${hint}`;
  if (/unknown command.*\binfo\b/i.test(thrownText(cause))) {
    return `${thrownText(cause)}; with ioredis' enableReadyCheck: false the queue does without it`;
  }
  return TLS_CODE.test(code) ? `TLS failed: ${thrownText(cause)} (${code})` : thrownText(cause);
}

/** The server is there, and does not want this user, password or database number. */
export function isConnectionRefusal(error: unknown): boolean {
  const cause = failureOfNode(error);
  return classifyRedisError(cause) === 'configuration' || /DB index is out of range/.test(thrownText(cause));
}

/** In Cluster the reason is inside. */
function failureOfNode(error: unknown): unknown {
  return (error as { lastNodeError?: unknown } | undefined)?.lastNodeError ?? error;
}
