import { ValidationPipe, type ArgumentMetadata, type ExecutionContext, type PipeTransform } from '@nestjs/common';
import type { BatchParam } from './batch-pipeline.js';
import { isContextParam, isStreamParam } from './payload.decorators.js';
import type { HandlerParam } from './stream-pipeline.js';

/** What Nest's parameter decorators leave for one parameter, under `<type>:<index>`. */
export interface ParamDecoration {
  readonly index: number;
  readonly data?: unknown;
  readonly pipes?: readonly unknown[];
  /** Standard schema of Nest 12. */
  readonly schema?: unknown;
  readonly factory?: (data: unknown, host: ExecutionContext) => unknown;
}

/** Nest's numbers, the same in all its packages: `Body` and the `Payload` of microservices, `Query` and their `Ctx`. */
const PAYLOAD = 3;
const CONTEXT = 4;
const HEADERS = 6;

export interface ParamsInput {
  readonly decorations: Readonly<Record<string, ParamDecoration>>;
  readonly paramTypes: readonly unknown[];
  /** Pipes of the app, the class and the method. */
  readonly handlerPipes: readonly PipeTransform[];
  /** Instances of the pipes that a decoration names. */
  readonly resolvePipes: (pipes: readonly unknown[]) => readonly PipeTransform[];
}

/**
 * How each argument is made. Parameters without a decorator are `(payload, ctx)` by position. Pipes of the handler see
 * the payload and what the user's own parameter decorators read, never the context, the key, the headers or the event id.
 */
export function handlerParams(input: ParamsInput): { params: HandlerParam[]; problems: string[] } {
  const problems: string[] = [];
  const params: HandlerParam[] = [];
  for (const [key, decoration] of Object.entries(input.decorations)) {
    const param = decoratedParam(key, decoration, input);
    if (param !== null) params.push(param);
    else problems.push(`parameter ${decoration.index} has a decorator that means nothing for a message`);
  }
  const isDecorated = params.some(({ index }) => index === 0);
  if (!isDecorated && input.handlerPipes.length > 0) {
    params.push({
      index: 0,
      read: (_host, payload) => payload,
      metadata: metadataOf('body', undefined, undefined, input.paramTypes[0]),
      pipes: input.handlerPipes,
    });
  }
  return { params, problems };
}

/**
 * As `handlerParams`, of a handler of batches: `(payloads, contexts)`, by position or by `@Payload()` and `@StreamCtx()`.
 * Pipes see one payload after the other. What the array is made of is known by `itemType` alone.
 */
export function batchParams(
  input: ParamsInput,
  itemType: unknown,
  isValidatedBySchema: boolean,
): { params: BatchParam[]; problems: string[] } {
  const problems: string[] = [];
  const params: BatchParam[] = [];
  const payloads = (index: number, own: readonly PipeTransform[], data?: unknown, schema?: unknown): void => {
    const pipes = [...input.handlerPipes, ...own];
    params.push({ index, of: 'payloads', metadata: metadataOf('body', data, schema, itemType ?? Object), pipes });
    if (itemType !== undefined || isValidatedBySchema || !pipes.some((pipe) => pipe instanceof ValidationPipe)) return;
    problems.push(
      'a ValidationPipe is in force, and of which class the payloads of a batch are is not known; name the class as ' +
        'batch.type, or Object to leave them as they are',
    );
  };
  for (const [key, { index, data, schema, factory, pipes = [] }] of Object.entries(input.decorations)) {
    const type = factory === undefined ? Number.parseInt(key, 10) : null;
    const isContext = factory === undefined ? type === CONTEXT : isContextParam(factory);
    if (isContext && pipes.length === 0) params.push({ index, of: 'contexts' });
    else if (type === PAYLOAD && data === undefined) payloads(index, input.resolvePipes(pipes), data, schema);
    else problems.push(`parameter ${index} has a decorator that cannot be used with batch: ${BATCH_DECORATORS}`);
  }
  const isTaken = (index: number): boolean =>
    Object.values(input.decorations).some((decoration) => decoration.index === index);
  if (!isTaken(0)) payloads(0, []);
  if (!isTaken(1)) params.push({ index: 1, of: 'contexts' });
  return { params, problems };
}

const BATCH_DECORATORS = 'the method gets arrays, by @Payload() without a property and by @StreamCtx() without pipes';

function decoratedParam(key: string, decoration: ParamDecoration, input: ParamsInput): HandlerParam | null {
  const { index, data, schema, factory } = decoration;
  const own = input.resolvePipes(decoration.pipes ?? []);
  const of = (type: 'body' | 'custom', read: HandlerParam['read'], pipes: readonly PipeTransform[]): HandlerParam => ({
    index,
    read,
    metadata: metadataOf(type, data, schema, input.paramTypes[index]),
    pipes,
  });
  if (factory !== undefined) {
    const pipes = isStreamParam(factory) ? own : [...input.handlerPipes, ...own];
    return of('custom', (host) => factory(data, host), pipes);
  }
  const name = typeof data === 'string' ? data : undefined;
  switch (Number.parseInt(key, 10)) {
    case PAYLOAD:
      return of('body', (_host, payload) => propertyOf(payload, name), [...input.handlerPipes, ...own]);
    case CONTEXT:
      return of('custom', (_host, _payload, ctx) => ctx, own);
    case HEADERS:
      return of('custom', (_host, _payload, ctx) => (name === undefined ? ctx.headers : ctx.headers[name]), own);
    default:
      return null;
  }
}

/** Own properties only: a payload without the property must not yield one of `Object.prototype`. */
function propertyOf(payload: unknown, name: string | undefined): unknown {
  if (name === undefined) return payload;
  if (payload === null || payload === undefined || !Object.hasOwn(Object(payload) as object, name)) return undefined;
  return (payload as Record<string, unknown>)[name];
}

function metadataOf(type: 'body' | 'custom', data: unknown, schema: unknown, metatype: unknown): ArgumentMetadata {
  return { type, data, metatype, ...(schema === undefined ? undefined : { schema }) } as ArgumentMetadata;
}
