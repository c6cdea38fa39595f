import type { ArgumentMetadata, PipeTransform } from '@nestjs/common';
import { batchOutcomes } from '../core/batch-results.js';
import { MqValidationError } from '../core/errors.js';
import type { BatchInvoker, HandlerOutcome, ReceivedMessage, StreamContext } from '../core/handler.js';
import { validateBy } from '../core/standard-schema.js';
import { outcomeOfPipeline } from './handler-invoker.js';
import { decide, deniedBy, enter, settle, type PipelineParts, type PipelineResult } from './stream-pipeline.js';

/** One argument of a handler of batches: the payloads, each of which goes through the pipes, or the contexts. */
export type BatchParam =
  | {
      readonly index: number;
      readonly of: 'payloads';
      readonly metadata: ArgumentMetadata;
      readonly pipes: readonly PipeTransform[];
    }
  | { readonly index: number; readonly of: 'contexts' };

export interface BatchPipelineParts extends Omit<PipelineParts, 'params'> {
  readonly params: readonly BatchParam[];
}

/** A message that the schema and the pipes have let through, with what they made of its payload for each argument. */
interface Passed {
  readonly message: ReceivedMessage;
  readonly values: readonly unknown[];
}

/**
 * Guards and interceptors once for a batch; schema and pipes for each of its messages, so that one that is not valid is
 * left out alone. Interceptors and the handler decide about those that are left.
 */
export function makeBatchInvoker(parts: BatchPipelineParts): BatchInvoker {
  return async (messages) => {
    const host = parts.hostOf([messages.map(({ payload }) => payload), messages.map(({ context }) => context)]);
    const denial = await deniedBy(parts, host);
    if (denial !== null) {
      await parts.showError(denial.error, host);
      return messages.map(() => outcomeOfPipeline({ stage: 'guard', error: denial.error }));
    }

    let inner: PipelineResult | undefined;
    let leftOut = new Map<ReceivedMessage, PipelineResult>();
    let settled: Promise<unknown> = Promise.resolve();
    const innermost = (): Promise<unknown> => {
      inner = undefined;
      leftOut = new Map();
      const running = runBatch(parts, messages, leftOut, (result) => (inner = result));
      settled = running.catch(() => undefined);
      return running;
    };
    const outer = await enter(parts.interceptors, host, innermost);
    await settled;
    if ('error' in outer) await parts.showError(outer.error, host);
    return outcomesOf(decide(inner, outer), messages, leftOut);
  };
}

async function runBatch(
  parts: BatchPipelineParts,
  messages: readonly ReceivedMessage[],
  leftOut: Map<ReceivedMessage, PipelineResult>,
  report: (result: PipelineResult) => void,
): Promise<unknown> {
  const passed: Passed[] = [];
  for (const message of messages) {
    const result = await validate(parts, message);
    if ('values' in result) {
      passed.push(result);
      continue;
    }
    leftOut.set(message, result);
    await parts.showError(result.error, parts.hostOf([message.payload, message.context]));
  }
  if (passed.length === 0) {
    report({ stage: 'handler', value: undefined });
    return undefined;
  }
  try {
    const value = await settle(parts.call(argumentsOf(parts, passed)));
    report({ stage: 'handler', value });
    return value;
  } catch (error) {
    report({ stage: 'handler', error });
    throw error;
  }
}

async function validate(
  { schema, params }: BatchPipelineParts,
  message: ReceivedMessage,
): Promise<Passed | Extract<PipelineResult, { error: unknown }>> {
  let payload = message.payload;
  try {
    if (schema !== undefined) payload = await validateBy(schema, payload);
  } catch (error) {
    return { stage: error instanceof MqValidationError ? 'pipe' : 'schema', error };
  }
  try {
    const values: unknown[] = [];
    for (const param of params) {
      let value = payload;
      if (param.of === 'payloads') for (const pipe of param.pipes) value = await pipe.transform(value, param.metadata);
      values.push(value);
    }
    return { message, values };
  } catch (error) {
    return { stage: 'pipe', error };
  }
}

function argumentsOf({ params }: BatchPipelineParts, passed: readonly Passed[]): unknown[] {
  const args: unknown[] = [];
  const contexts = (): StreamContext[] => passed.map(({ message }) => message.context);
  for (const [i, { index, of }] of params.entries()) {
    args[index] = of === 'contexts' ? contexts() : passed.map(({ values }) => values[i]);
  }
  return args;
}

function outcomesOf(
  result: PipelineResult,
  messages: readonly ReceivedMessage[],
  leftOut: ReadonlyMap<ReceivedMessage, PipelineResult>,
): readonly HandlerOutcome[] {
  const given = messages.filter((message) => !leftOut.has(message));
  const own = batchOutcomes('error' in result ? { error: result.error } : { value: result.value }, given);
  const later = 'error' in result ? undefined : result.laterError;
  // As for one message: an interceptor that fails after the handler may be the one that commits.
  const laterOutcomes = later && batchOutcomes(later, given);
  let next = 0;
  return messages.map((message) => {
    const reason = leftOut.get(message);
    if (reason !== undefined) return outcomeOfPipeline(reason);
    const at = next++;
    return own[at]!.type === 'success' && laterOutcomes !== undefined ? laterOutcomes[at]! : own[at]!;
  });
}
