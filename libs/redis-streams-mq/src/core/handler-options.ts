import type { ResolvedHandlerOptions } from './handler.js';
import { ownOptions, unknownOption } from './kebab-options.js';
import { integer, type OptionRule, problemOf } from './option-rules.js';
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
}

const rules: { readonly [K in keyof Required<StreamHandlerOptions>]: OptionRule<unknown> } = {
  batchCount: mqOptionRules.consumerBatchCount,
  pollTimeoutMs: mqOptionRules.consumerPollTimeoutMs,
  retryMaxAttempts: mqOptionRules.retryMaxAttempts,
  retryBaseBackoffMs: mqOptionRules.retryBaseBackoffMs,
  retryMaxBackoffMs: mqOptionRules.retryMaxBackoffMs,
  handlerTimeoutMs: mqOptionRules.handlerTimeoutMs,
  startFrom: mqOptionRules.startFrom,
  partitionModulo: integer(1, 1, MAX_PARTITION_COUNT),
  partitionRemainder: integer(0, 0, MAX_PARTITION_COUNT - 1),
};
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
    if (problem === null) values[name] = value;
    else problems.push(problem);
  }

  const given = values as StreamHandlerOptions;
  const resolved: ResolvedHandlerOptions = Object.freeze({
    batchCount: given.batchCount ?? moduleOptions.consumerBatchCount,
    pollTimeoutMs: given.pollTimeoutMs ?? moduleOptions.consumerPollTimeoutMs,
    retryMaxAttempts: given.retryMaxAttempts ?? moduleOptions.retryMaxAttempts,
    retryBaseBackoffMs: given.retryBaseBackoffMs ?? moduleOptions.retryBaseBackoffMs,
    retryMaxBackoffMs: given.retryMaxBackoffMs ?? moduleOptions.retryMaxBackoffMs,
    handlerTimeoutMs: given.handlerTimeoutMs ?? moduleOptions.handlerTimeoutMs,
    startFrom: given.startFrom ?? moduleOptions.startFrom,
    share: Object.freeze({ modulo: given.partitionModulo ?? 1, remainder: given.partitionRemainder ?? 0 }),
  });
  // Values that are wrong by themselves have been replaced, and would only lead to further, misleading problems.
  if (problems.length === 0) problems.push(...crossProblems(given, resolved, moduleOptions.leaseTtlMs));
  return { resolved, problems: problems.map((problem) => `${who}: ${problem}`) };
}
