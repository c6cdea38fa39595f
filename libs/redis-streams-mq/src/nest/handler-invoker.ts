import type { HandlerInvoker, HandlerOutcome } from '../core/handler.js';
import { isDeadLetter, isRetryLater, outcomeOf } from '../core/results.js';
import { withIssues } from './validation-issues.js';
import type { PipelineResult, StreamPipeline } from './stream-pipeline.js';

/** What the engine calls for each message: the pipeline, and what its end means. */
export function makeInvoker(pipeline: StreamPipeline): HandlerInvoker {
  return ({ payload, context }) => pipeline(payload, context).then(outcomeOfPipeline);
}

/**
 * The stage decides the class of a failure, whatever exception it throws: a guard's is `rejected`, a pipe's `validation`,
 * the handler's, an interceptor's or a constructor's a retry. `RetryLater` and `DeadLetter` mean the same in every stage.
 */
export function outcomeOfPipeline(result: PipelineResult): HandlerOutcome {
  if (!('error' in result)) {
    const outcome = outcomeOf({ value: result.value });
    // An interceptor that fails after the handler may be the one that commits: not acknowledged is the safe side.
    return outcome.type === 'success' && result.laterError !== undefined ? outcomeOf(result.laterError) : outcome;
  }
  const { stage, error } = result;
  if (isRetryLater(error) || isDeadLetter(error)) return outcomeOf({ error });
  switch (stage) {
    case 'guard':
      return { type: 'dead', reason: 'rejected', error };
    case 'pipe':
      return { type: 'dead', reason: 'validation', error: withIssues(error) };
    case 'scope':
    case 'schema':
    case 'interceptor':
    case 'handler':
      return outcomeOf({ error });
  }
}
