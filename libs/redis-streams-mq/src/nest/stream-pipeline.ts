import { AsyncResource } from 'node:async_hooks';
import {
  ForbiddenException,
  type ArgumentMetadata,
  type CanActivate,
  type ExecutionContext,
  type NestInterceptor,
  type PipeTransform,
} from '@nestjs/common';
import { defer, isObservable, lastValueFrom, mergeMap, of, type Observable } from 'rxjs';
import { MqValidationError } from '../core/errors.js';
import type { StreamContext } from '../core/handler.js';
import { validateBy, type StandardSchema } from '../core/standard-schema.js';

/** The part of the pipeline that decided; `scope` makes what is made for each message, and `schema` is one that threw. */
export type PipelineStage = 'scope' | 'guard' | 'schema' | 'pipe' | 'interceptor' | 'handler';

/** How a message went through, by the stage that decides and not by what enhancers made of it afterwards. */
export type PipelineResult =
  | {
      readonly stage: PipelineStage;
      readonly value: unknown;
      /** What an interceptor threw after the handler had returned. */
      readonly laterError?: { readonly error: unknown };
    }
  | { readonly stage: PipelineStage; readonly error: unknown };

export type StreamPipeline = (payload: unknown, ctx: StreamContext) => Promise<PipelineResult>;

/** One argument of the handler that is not the payload or the context by its position, or that pipes have to see. */
export interface HandlerParam {
  readonly index: number;
  readonly read: (host: ExecutionContext, payload: unknown, ctx: StreamContext) => unknown;
  readonly metadata: ArgumentMetadata;
  readonly pipes: readonly PipeTransform[];
}

export interface PipelineParts {
  /** `Class.method`, for messages. */
  readonly name: string;
  readonly call: (args: readonly unknown[]) => unknown;
  readonly hostOf: (args: readonly unknown[]) => ExecutionContext;
  readonly guards: readonly CanActivate[];
  readonly interceptors: readonly NestInterceptor[];
  readonly schema?: StandardSchema | undefined;
  readonly params: readonly HandlerParam[];
  /** Shows an error to the exception filters; never rejects, and what they make of it changes nothing. */
  readonly showError: (error: unknown, host: ExecutionContext) => Promise<void>;
}

/** Guards, interceptors, pipes, handler and filters in Nest's order. The pipeline never rejects. */
export function makePipeline(parts: PipelineParts): StreamPipeline {
  const { guards, interceptors, params, schema } = parts;
  const isBare = guards.length === 0 && interceptors.length === 0 && params.length === 0 && schema === undefined;
  return isBare ? barePipeline(parts) : fullPipeline(parts);
}

function barePipeline({ call, hostOf, showError }: PipelineParts): StreamPipeline {
  return async (payload, ctx) => {
    try {
      const value = await call([payload, ctx]);
      return { stage: 'handler', value: isObservable(value) ? await lastOf(value) : value };
    } catch (error) {
      await showError(error, hostOf([payload, ctx]));
      return { stage: 'handler', error };
    }
  };
}

function fullPipeline(parts: PipelineParts): StreamPipeline {
  return async (payload, ctx) => {
    const host = parts.hostOf([payload, ctx]);
    const denial = parts.guards.length === 0 ? null : await deniedBy(parts, host);
    if (denial !== null) {
      await parts.showError(denial.error, host);
      return { stage: 'guard', error: denial.error };
    }

    let inner: PipelineResult | undefined;
    let running: Promise<unknown> | undefined;
    const innermost = (): Promise<unknown> => {
      inner = undefined;
      running = runHandler(parts, host, payload, ctx, (result) => (inner = result));
      return running;
    };

    const outer = await enter(parts.interceptors, host, innermost);
    // An interceptor may give up on the handler, as a timeout does; while it runs, the message is not free.
    if (inner === undefined) await running?.catch(() => undefined);
    if ('error' in outer) await parts.showError(outer.error, host);
    return decide(inner, outer);
  };
}

export function decide(inner: PipelineResult | undefined, outer: PipelineResult): PipelineResult {
  // Never reached: an interceptor that answers by itself (a cache, a deduplication) or fails before.
  if (inner === undefined) return outer;
  if ('error' in inner || !('error' in outer)) return inner;
  return { ...inner, laterError: { error: outer.error } };
}

export async function deniedBy(
  parts: Pick<PipelineParts, 'guards' | 'name'>,
  host: ExecutionContext,
): Promise<{ readonly error: unknown } | null> {
  try {
    for (const guard of parts.guards) {
      const answer = await guard.canActivate(host);
      const allowed = isObservable(answer) ? await lastValueFrom(answer) : answer;
      if (!allowed) return { error: new ForbiddenException(`a guard of ${parts.name} denied the message`) };
    }
    return null;
  } catch (error) {
    return { error };
  }
}

async function runHandler(
  { params, call, schema }: PipelineParts,
  host: ExecutionContext,
  received: unknown,
  ctx: StreamContext,
  report: (result: PipelineResult) => void,
): Promise<unknown> {
  let payload = received;
  try {
    if (schema !== undefined) payload = await validateBy(schema, received);
  } catch (error) {
    // A schema that throws has not judged the payload.
    report({ stage: error instanceof MqValidationError ? 'pipe' : 'schema', error });
    throw error;
  }
  const args: unknown[] = [payload, ctx];
  try {
    for (const param of params) {
      let value = param.read(host, payload, ctx);
      // A factory of the user's may be async, and pipes expect what it resolves to.
      if (value instanceof Promise) value = await value;
      for (const pipe of param.pipes) {
        value = pipe.transform(value, param.metadata);
        if (isThenable(value)) value = await value;
      }
      args[param.index] = value;
    }
  } catch (error) {
    report({ stage: 'pipe', error });
    throw error;
  }
  try {
    let value = await call(args);
    if (isObservable(value)) value = await lastOf(value);
    report({ stage: 'handler', value });
    return value;
  } catch (error) {
    report({ stage: 'handler', error });
    throw error;
  }
}

/** A handler may return a value, a promise or an Observable, whose last value counts. */
export async function settle(returned: unknown): Promise<unknown> {
  const value = await returned;
  return isObservable(value) ? lastOf(value) : value;
}

function lastOf(values: Observable<unknown>): Promise<unknown> {
  return lastValueFrom(values, { defaultValue: undefined });
}

/** To wait for what is there already costs as much as a pipe. */
function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { readonly then?: unknown } | null | undefined)?.then === 'function';
}

export async function enter(
  interceptors: readonly NestInterceptor[],
  host: ExecutionContext,
  innermost: () => Promise<unknown>,
): Promise<PipelineResult> {
  const step = async (index: number): Promise<unknown> => {
    const interceptor = interceptors[index];
    if (interceptor === undefined) return innermost();
    return interceptor.intercept(host, { handle: () => next(index + 1) });
  };
  const next = (index: number): Observable<unknown> => {
    // Made when `handle()` is called and used when its result is subscribed to, which may be outside of the interceptor's
    // AsyncLocalStorage: `als.run(store, () => next.handle())`. Nest 11's own chain does it 25 times slower on Node 20.
    const scope = new AsyncResource('StreamHandler');
    const values = defer(() => scope.runInAsyncScope(step, undefined, index));
    // What the handler gave is a value.
    return index === interceptors.length ? values : values.pipe(mergeMap(flatten));
  };
  try {
    return { stage: 'interceptor', value: await settle(step(0)) };
  } catch (error) {
    return { stage: 'interceptor', error };
  }
}

function flatten(value: unknown): Observable<unknown> {
  return isObservable(value) ? value : of(value);
}
