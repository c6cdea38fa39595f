import { types } from 'node:util';

/** What an error says beside its code and its message. */
export interface MqErrorOptions {
  readonly cause?: unknown;
  /** Whether the same call may succeed later without a change by the caller. */
  readonly retryable?: boolean;
  /** Fields for logs and for code; never a payload, never a credential. */
  readonly context?: Readonly<Record<string, unknown>>;
}

/** Root of every error this library throws. `code` is stable; the message is for people. */
export class MqError extends Error {
  readonly retryable: boolean;
  readonly context: Readonly<Record<string, unknown>>;

  constructor(
    readonly code: string,
    message: string,
    options: MqErrorOptions = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.retryable = options.retryable ?? false;
    this.context = options.context ?? {};
  }
}

/** Options that cannot work; lists every problem at once. Code `MQ_INVALID_OPTIONS`. */
export class MqInvalidOptionsError extends MqError {
  constructor(readonly problems: readonly string[]) {
    super(
      'MQ_INVALID_OPTIONS',
      `redis-streams-mq options are invalid:\n${problems.map((p) => `  - ${p}`).join('\n')}`,
      {
        context: { problems },
      },
    );
  }
}

/** A handler that cannot be registered: duplicate, unsupported scope, bad name. Code `MQ_INVALID_HANDLER`. */
export class MqInvalidHandlerError extends MqError {
  constructor(readonly problems: readonly string[]) {
    super('MQ_INVALID_HANDLER', `stream handlers are invalid:\n${problems.map((p) => `  - ${p}`).join('\n')}`, {
      context: { problems },
    });
  }
}

/** A topic, group or instance name that breaks the naming rule. Code `MQ_INVALID_NAME`. */
export class MqInvalidNameError extends MqError {
  constructor(message: string, context: Readonly<Record<string, unknown>>) {
    super('MQ_INVALID_NAME', message, { context });
  }
}

/**
 * A message that was refused before anything was sent. Codes: `MQ_UNSERIALIZABLE`, `MQ_PAYLOAD_TOO_LARGE`, `MQ_INVALID_PAYLOAD`,
 * `MQ_INVALID_MESSAGE`, `MQ_INVALID_PARTITION`.
 */
export class MqInvalidMessageError extends MqError {}

/**
 * A send that did not succeed. Codes: `MQ_SEND_TIMEOUT` (never sent: safe to send again), `MQ_SEND_OUTCOME_UNKNOWN`
 * (sent, no answer: it may be stored; send again with the same `eventId` and handlers can deduplicate),
 * `MQ_SEND_REFUSED` (Redis refused it: full, no permission, wrong type of key), `MQ_SEND_NOT_REPLICATED` (stored, but on
 * fewer replicas than `waitReplicas`), `MQ_SEND_BUFFER_FULL` (`sendBufferLimit` messages wait already),
 * `MQ_TOPIC_NOT_FOUND`, `MQ_TOPIC_DELETED` (deleted on purpose), `MQ_DISABLED`, `MQ_CLOSED`.
 */
export class MqSendError extends MqError {
  constructor(
    code: string,
    message: string,
    /** The event id the message has, or would have had. */
    readonly eventId: string,
    options: MqErrorOptions = {},
  ) {
    super(code, message, { ...options, context: { ...options.context, eventId } });
  }
}

/** The lease of a partition is gone: what the holder still does will be refused. Code `MQ_LEASE_LOST`. */
export class MqLeaseLostError extends MqError {
  constructor(context: Readonly<Record<string, unknown>>) {
    super('MQ_LEASE_LOST', 'the lease of this partition is lost; another instance may own it', { context });
  }
}

/** A handler ran longer than its `timeoutMs`. Code `MQ_HANDLER_TIMEOUT`. */
export class MqHandlerTimeoutError extends MqError {
  constructor(timeoutMs: number, context: Readonly<Record<string, unknown>>) {
    super('MQ_HANDLER_TIMEOUT', `the handler did not settle within ${timeoutMs} ms`, { context, retryable: true });
  }
}

/** One thing that is wrong with a payload. */
export interface ValidationIssue {
  /** Where, such as `items.0.price`; empty for the payload as a whole. */
  readonly path: string;
  readonly message: string;
}

const MAX_LISTED_ISSUES = 20;

/** A payload that a pipe or a schema refused. The message lists what is wrong. Code `MQ_VALIDATION`. */
export class MqValidationError extends MqError {
  constructor(
    readonly issues: readonly ValidationIssue[],
    options: { readonly cause?: unknown } = {},
  ) {
    const texts = issues
      .slice(0, MAX_LISTED_ISSUES)
      .map(({ path, message }) => (path === '' ? message : `${path}: ${message}`));
    const more = issues.length - texts.length;
    super('MQ_VALIDATION', `the payload is not valid: ${texts.join('; ')}${more > 0 ? `; and ${more} more` : ''}`, {
      cause: options.cause,
      context: { issues: issues.length },
    });
  }
}

/** Redis could not be used: away, refusing or answering something unexpected. Codes `MQ_REDIS_*`. */
export class MqRedisError extends MqError {}

/** An admin or dead-letter operation that was refused, with the reason. */
export class MqAdminError extends MqError {}

/** What can be said of something that was thrown, whatever it is. */
export interface ThrownDescription extends ThrownName {
  readonly stack: string | null;
}

export interface ThrownName {
  readonly name: string;
  readonly message: string;
}

/** Never throws: anything may be thrown, also a revoked proxy or an object whose getters throw. */
export function describeThrown(thrown: unknown): ThrownDescription {
  return { ...nameThrown(thrown), stack: stackOf(thrown) };
}

/** The same without the stack, whose text V8 makes when it is first read: most of what a failure costs. */
export function nameThrown(thrown: unknown): ThrownName {
  try {
    if (!isErrorLike(thrown)) return { name: typeof thrown, message: plainText(thrown) };
    const { name, message } = thrown as { name: unknown; message: unknown };
    return {
      name: typeof name === 'string' ? name : 'Error',
      message: typeof message === 'string' ? message : '',
    };
  } catch {
    return { name: typeof thrown, message: '(the error cannot be read)' };
  }
}

export function thrownText(thrown: unknown): string {
  return nameThrown(thrown).message;
}

function stackOf(thrown: unknown): string | null {
  try {
    if (!isErrorLike(thrown)) return null;
    const { stack } = thrown as { stack?: unknown };
    return typeof stack === 'string' ? stack : null;
  } catch {
    return null;
  }
}

function isErrorLike(thrown: unknown): boolean {
  return thrown instanceof Error || types.isNativeError(thrown);
}

function plainText(value: unknown): string {
  return typeof value === 'object' && value !== null ? Object.prototype.toString.call(value) : String(value);
}
