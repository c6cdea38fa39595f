import type { BatchOptions, Ordering, RateLimit, RetryOrdering, ResolvedHandlerOptions } from './handler.js';
import {
  type HandlerBackoff,
  type HandlerRetry,
  keepsRules,
  retryProblems,
  twinProblems,
} from './handler-retry-options.js';
import { ownOptions, unknownOption } from './kebab-options.js';
import { integer, milliseconds, oneOf, type OptionRule, problemOf } from './option-rules.js';
import { MAX_PARTITION_COUNT, type ResolvedMqOptions } from './options.js';
import { mqOptionRules } from './resolve-options.js';

/** Options of one subscription. All are optional; what is absent or `undefined` is taken from the module's options. */
export interface StreamHandlerOptions {
  /**
   * How many messages one read may bring per partition.
   * @defaultValue the module's `consumerBatchCount`
   */
  readonly batchCount?: number;

  /**
   * How long a read waits in Redis for messages, in ms; less than half of the lease.
   * @defaultValue the module's `consumerPollTimeoutMs`
   */
  readonly pollTimeoutMs?: number;

  /**
   * How many times the handler is called for a message, the first included, before it becomes a dead letter.
   * @defaultValue the module's `retryMaxAttempts`
   */
  readonly retryMaxAttempts?: number;

  /**
   * Wait before the first retry, in ms; it doubles with each further one.
   * @defaultValue the module's `retryBaseBackoffMs`
   */
  readonly retryBaseBackoffMs?: number;

  /**
   * Longest wait between retries, in ms.
   * @defaultValue the module's `retryMaxBackoffMs`
   */
  readonly retryMaxBackoffMs?: number;

  /**
   * How long one call may take, in ms; 0 means no limit.
   * @defaultValue the module's `handlerTimeoutMs`
   */
  readonly handlerTimeoutMs?: number;

  /** The same as `handlerTimeoutMs`; only one of the two may be given. */
  readonly timeoutMs?: number;

  /**
   * Attempts, back-off, and which errors are worth another try. What it says must not be said by `retryMaxAttempts`,
   * `retryBaseBackoffMs` or `retryMaxBackoffMs` as well.
   */
  readonly retry?: HandlerRetry;

  /**
   * At most `count` messages for the handler in any `perMs` ms, over all its topics and partitions **in one process**: with
   * three instances it is three times as many. Waiting takes no slot of `workerThreads` and keeps the lease.
   *
   * Hazard: what waits is not read further, so the lag grows when more comes than the limit lets through; and what has
   * been read counts into `maxInFlight`.
   * @defaultValue no limit
   */
  readonly rateLimit?: RateLimit;

  /**
   * The method gets several messages of one partition at once: `(payloads[], contexts[])`. A batch is handed over with
   * `size` messages, or `waitMs` after the first was there and the handler free, or with what is there once `maxInFlight` lets no
   * more be read. It says by its return value or by `BatchFailure` which of them failed; each keeps its own attempts. With
   * `concurrency` above 1 only with `ordering: 'none'`; with `retryOrdering: 'key'` a batch has at most one message of each key.
   *
   * Hazard: a crash repeats the whole batch, and guards and interceptors run once for all of it.
   * @defaultValue one message
   */
  readonly batch?: BatchOptions;

  /**
   * A message that was published longer than this ago, in ms, becomes a dead letter (`expired`) in place of being
   * handled, retries included; 0 means never. The shorter of this and the message's own `ttlMs` counts.
   *
   * Hazard: a replayed dead letter keeps its age, and so expires again.
   * @defaultValue 0
   */
  readonly ttlMs?: number;

  /**
   * Where the group begins when it is new.
   * @defaultValue the module's `startFrom`
   */
  readonly startFrom?: 'earliest' | 'latest';

  /**
   * With `partitionRemainder`: this subscription takes only the partitions with
   * `index % partitionModulo === partitionRemainder`.
   *
   * Hazard: partitions that no running instance's share covers are not read.
   * @defaultValue 1, which is every partition
   */
  readonly partitionModulo?: number;

  /**
   * From 0 to `partitionModulo - 1`; required when that is more than 1.
   * @defaultValue 0
   */
  readonly partitionRemainder?: number;

  /**
   * How many messages of one partition may be handled at once; `workerThreads` bounds all partitions together. Raise it
   * for handlers that wait for something else (a database, an HTTP call).
   *
   * Hazard: a crash repeats as many messages as were running. A key that has most of the messages fills the partition's
   * buffer, and the others wait; raise `batchCount` too.
   * @defaultValue 1
   */
  readonly concurrency?: number;

  /**
   * What keeps its order when `concurrency` is more than 1. `key`: messages of different keys run at once, those of one
   * key one after the other; messages without a key have no order among each other. `none`: whatever is there runs.
   * `partition`: one message after the other, which is what `concurrency` 1 means, and goes with no other.
   *
   * Hazard: with `none` two messages of one key run at once and end in any order.
   * @defaultValue 'key'
   */
  readonly ordering?: Ordering;

  /**
   * What waits behind a message that failed until it succeeds or is a dead letter. `relaxed`: nothing, later messages
   * pass it. `key`: the later messages of its key. `partition`: all later messages of its partition. What waits, and how
   * often the failing one was tried, survives a crash.
   *
   * Hazard: messages that wait are pending in Redis, so that retention keeps everything behind them. A message that can
   * never succeed holds up its key until its attempts are used up.
   * @defaultValue 'relaxed'
   */
  readonly retryOrdering?: RetryOrdering;

  /**
   * With `retryOrdering` `key` or `partition`: how many messages of one partition may wait because of failing ones, these
   * included. They take no payload's memory, only an id's. Then the partition reads nothing more until some of them are
   * settled, and readiness says so.
   *
   * Hazard: the other keys of the partition wait then as well.
   * @defaultValue 1000
   */
  readonly maxHeldPerPartition?: number;
}

/** Each start within the window is remembered. */
const MAX_RATE = 100_000;
const MAX_CONCURRENCY = 10_000;
const MAX_BATCH = 10_000;
const MAX_HELD = 100_000;

const payloadClass: OptionRule<unknown> = {
  kind: 'other',
  defaultValue: undefined,
  expected: 'a class',
  accepts: (value) => value === undefined || typeof value === 'function',
};

const rules = {
  batchCount: mqOptionRules.consumerBatchCount,
  pollTimeoutMs: mqOptionRules.consumerPollTimeoutMs,
  retryMaxAttempts: mqOptionRules.retryMaxAttempts,
  retryBaseBackoffMs: mqOptionRules.retryBaseBackoffMs,
  retryMaxBackoffMs: mqOptionRules.retryMaxBackoffMs,
  handlerTimeoutMs: mqOptionRules.handlerTimeoutMs,
  timeoutMs: mqOptionRules.handlerTimeoutMs,
  retry: {
    kind: 'other',
    defaultValue: undefined,
    expected: 'an object with any of maxAttempts, backoff and retryIf',
    // What is wrong inside is said by its own rule, see retryProblems.
    accepts: (value) => typeof ownOptions(value) !== 'string',
  },
  rateLimit: {
    kind: 'other',
    defaultValue: undefined,
    expected: '{ count, perMs } with integers, count from 1 to 100000 and perMs from 1',
    accepts: (value) => keepsRules(value, { count: integer(1, 1, MAX_RATE), perMs: milliseconds(1, 1) }),
  },
  batch: {
    kind: 'other',
    defaultValue: undefined,
    expected: '{ size, waitMs } with integers, size from 1 to 10000 and waitMs from 0, and a class as type if need be',
    accepts: (value) =>
      keepsRules(value, { size: integer(1, 1, MAX_BATCH), waitMs: milliseconds(0, 0), type: payloadClass }),
  },
  ttlMs: milliseconds(0, 0),
  startFrom: mqOptionRules.startFrom,
  partitionModulo: integer(1, 1, MAX_PARTITION_COUNT),
  partitionRemainder: integer(0, 0, MAX_PARTITION_COUNT - 1),
  concurrency: integer(1, 1, MAX_CONCURRENCY),
  ordering: oneOf<Ordering>('key', ['key', 'partition', 'none']),
  retryOrdering: oneOf<RetryOrdering>('relaxed', ['relaxed', 'key', 'partition']),
  maxHeldPerPartition: integer(1_000, 1, MAX_HELD),
} satisfies { readonly [K in keyof Required<StreamHandlerOptions>]: OptionRule<unknown> };
const known: ReadonlyMap<string, OptionRule<unknown>> = new Map(Object.entries(rules));

function crossProblems(given: StreamHandlerOptions, resolved: ResolvedHandlerOptions, leaseTtlMs: number): string[] {
  const problems: string[] = [];
  if (resolved.pollTimeoutMs >= leaseTtlMs / 2) {
    problems.push(
      `pollTimeoutMs (${resolved.pollTimeoutMs}) must be less than half of the lease (${leaseTtlMs} ms), ` +
        'so that a read does not outlive the lease',
    );
  }
  if (resolved.retryMaxBackoffMs < resolved.retryBaseBackoffMs) {
    problems.push(
      `retryMaxBackoffMs (${resolved.retryMaxBackoffMs}) must not be less than ` +
        `retryBaseBackoffMs (${resolved.retryBaseBackoffMs})`,
    );
  }
  const { modulo, remainder } = resolved.share;
  if (given.partitionRemainder === undefined && modulo > 1) {
    problems.push(`partitionModulo (${modulo}) needs a partitionRemainder from 0 to ${modulo - 1}`);
  } else if (given.partitionModulo === undefined && given.partitionRemainder !== undefined) {
    problems.push(`partitionRemainder (${remainder}) needs a partitionModulo`);
  } else if (remainder >= modulo) {
    problems.push(`partitionRemainder (${remainder}) must be less than partitionModulo (${modulo})`);
  }
  if (resolved.ordering === 'partition' && resolved.concurrency > 1) {
    problems.push(
      `ordering "partition" handles one message after the other, so concurrency (${resolved.concurrency}) must be 1; ` +
        'with ordering "key" different keys are handled at once',
    );
  }
  if (resolved.ordering === 'none' && resolved.retryOrdering !== 'relaxed') {
    problems.push(
      `ordering "none" keeps no order, so retryOrdering must be "relaxed"; got "${resolved.retryOrdering}"`,
    );
  }
  if (resolved.batch !== undefined && resolved.concurrency > 1 && resolved.ordering !== 'none') {
    problems.push(
      `batches of one partition that run at once keep no order, so with concurrency (${resolved.concurrency}) ordering must be "none"; ` +
        `got "${resolved.ordering}"`,
    );
  }
  if (resolved.batch !== undefined && resolved.retryOrdering === 'partition') {
    problems.push(
      'retryOrdering "partition" handles one message after the other, so it goes with no batch; ' +
        'with retryOrdering "key" a batch has one message of each key',
    );
  }
  if (resolved.retryOrdering === 'partition' && resolved.concurrency > 1) {
    problems.push(
      `retryOrdering "partition" lets nothing pass a message that fails, so concurrency (${resolved.concurrency}) must be 1; ` +
        'retryOrdering "key" lets other keys pass',
    );
  }
  return problems;
}

/**
 * Checks a subscription's options and sets the missing ones from the module's. Never throws: problems of many handlers
 * are reported together.
 *
 * @param who - the handler, as the beginning of each problem, such as `OrderService.onOrder`.
 * @returns frozen options, to be used only when there are no problems.
 */
export function resolveHandlerOptions(
  options: StreamHandlerOptions | undefined,
  moduleOptions: ResolvedMqOptions,
  who: string,
): { readonly resolved: ResolvedHandlerOptions; readonly problems: readonly string[] } {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  const entries = ownOptions(options === undefined ? {} : options);
  if (typeof entries === 'string') problems.push(entries);
  for (const [name, value] of typeof entries === 'string' ? [] : entries) {
    const rule = known.get(name);
    if (rule === undefined) {
      problems.push(unknownOption(name, known.keys()));
      continue;
    }
    if (value === undefined) continue;
    const problem = problemOf(rule, name, value);
    const inner = problem === null && name === 'retry' ? retryProblems(value) : [];
    if (problem === null && inner.length === 0) values[name] = value;
    else problems.push(...(problem === null ? inner : [problem]));
  }

  const given = values as StreamHandlerOptions;
  problems.push(...twinProblems(given));
  const { maxAttempts, backoff, retryIf } = given.retry ?? {};
  const bounds: HandlerBackoff = typeof backoff === 'object' ? backoff : {};
  const resolved: ResolvedHandlerOptions = Object.freeze({
    batchCount: given.batchCount ?? moduleOptions.consumerBatchCount,
    pollTimeoutMs: given.pollTimeoutMs ?? moduleOptions.consumerPollTimeoutMs,
    retryMaxAttempts: maxAttempts ?? given.retryMaxAttempts ?? moduleOptions.retryMaxAttempts,
    retryBaseBackoffMs: bounds.baseMs ?? given.retryBaseBackoffMs ?? moduleOptions.retryBaseBackoffMs,
    retryMaxBackoffMs: bounds.maxMs ?? given.retryMaxBackoffMs ?? moduleOptions.retryMaxBackoffMs,
    retryBackoff: typeof backoff === 'function' ? backoff : undefined,
    retryIf,
    handlerTimeoutMs: given.timeoutMs ?? given.handlerTimeoutMs ?? moduleOptions.handlerTimeoutMs,
    ttlMs: given.ttlMs ?? 0,
    rateLimit: given.rateLimit && Object.freeze({ ...given.rateLimit }),
    batch: given.batch && Object.freeze({ ...given.batch }),
    startFrom: given.startFrom ?? moduleOptions.startFrom,
    share: Object.freeze({ modulo: given.partitionModulo ?? 1, remainder: given.partitionRemainder ?? 0 }),
    concurrency: given.concurrency ?? rules.concurrency.defaultValue,
    ordering: given.ordering ?? rules.ordering.defaultValue,
    retryOrdering: given.retryOrdering ?? rules.retryOrdering.defaultValue,
    maxHeldPerPartition: given.maxHeldPerPartition ?? rules.maxHeldPerPartition.defaultValue,
  });
  // Values that are wrong by themselves have been replaced, and would only lead to further, misleading problems.
  if (problems.length === 0) problems.push(...crossProblems(given, resolved, moduleOptions.leaseTtlMs));
  return { resolved, problems: problems.map((problem) => `${who}: ${problem}`) };
}
