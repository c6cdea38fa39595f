import { Inject, Injectable, type ExecutionContext, type PipeTransform, type Type } from '@nestjs/common';
import {
  EXCEPTION_FILTERS_METADATA,
  GUARDS_METADATA,
  INTERCEPTORS_METADATA,
  PIPES_METADATA,
  ROUTE_ARGS_METADATA,
} from '@nestjs/common/constants.js';
import { ApplicationConfig, ModuleRef, ModulesContainer } from '@nestjs/core';
import { ExternalExceptionFilterContext } from '@nestjs/core/exceptions/external-exception-filter-context.js';
import { GuardsContextCreator } from '@nestjs/core/guards/index.js';
import { ContextUtils } from '@nestjs/core/helpers/context-utils.js';
import { ExecutionContextHost } from '@nestjs/core/helpers/execution-context-host.js';
import { STATIC_CONTEXT } from '@nestjs/core/injector/constants.js';
import { Injector } from '@nestjs/core/injector/injector.js';
import { InterceptorsContextCreator } from '@nestjs/core/interceptors/index.js';
import { PipesContextCreator } from '@nestjs/core/pipes/index.js';
import type { BatchInvoker, BatchOptions } from '../core/handler.js';
import type { StandardSchema } from '../core/standard-schema.js';
import { makeBatchInvoker } from './batch-pipeline.js';
import { batchParams, handlerParams, type ParamDecoration, type ParamsInput } from './handler-params.js';
import { MessageScope, type EnteredScope, type InstanceWrapper } from './message-scope.js';
import { STREAM_CONTEXT_TYPE } from './stream-host.js';
import { makePipeline, type PipelineParts, type StreamPipeline } from './stream-pipeline.js';

/** A method that handles messages, and where its enhancers are to be looked up. */
export interface HandlerHost {
  /** The instance; of a class whose instances are made per message an object of its kind, to look at. */
  readonly instance: object;
  readonly wrapper: InstanceWrapper;
  readonly method: string;
  /** Key of the class's module in `ModulesContainer`. */
  readonly moduleKey: string;
  /** `Class.method`, for messages. */
  readonly name: string;
}

export interface StreamContextOptions {
  /** Whether `APP_GUARD` and the like, and `app.useGlobalPipes()` and the like, apply. */
  readonly globalEnhancers: boolean;
  /** Validates the payload, before the pipes. */
  readonly schema?: StandardSchema | undefined;
  /** The handler gets batches; `type` is the class of a payload, where it was named. */
  readonly batch?: BatchOptions | undefined;
  /** Told about an exception filter that threw while it was shown an error. */
  readonly onFilterError: (error: unknown) => void;
}

export interface StreamHandlerContext {
  readonly pipeline: StreamPipeline;
  /** Of a handler of batches, in place of `pipeline`. */
  readonly invokeBatch?: BatchInvoker | undefined;
  /** Why the pipeline must not be used: an enhancer that would be left out silently. */
  readonly problems: readonly string[];
}

type Method = (...args: unknown[]) => unknown;
type FilterTarget = Parameters<ExternalExceptionFilterContext['create']>[1];
type NestContainer = ConstructorParameters<typeof GuardsContextCreator>[0];
type Decorations = Readonly<Record<string, ParamDecoration>>;

interface ContextCreators {
  readonly guards: GuardsContextCreator;
  readonly interceptors: InterceptorsContextCreator;
  readonly pipes: PipesContextCreator;
  readonly filters: ExternalExceptionFilterContext;
}

const ENHANCERS = [
  [GUARDS_METADATA, 'guard', 'canActivate'],
  [INTERCEPTORS_METADATA, 'interceptor', 'intercept'],
  [PIPES_METADATA, 'pipe', 'transform'],
  [EXCEPTION_FILTERS_METADATA, 'filter', 'catch'],
] as const;

/**
 * Builds the pipeline around a handler from Nest's own parts, as its creator for RPC handlers does. The only file that
 * knows Nest's internals.
 *
 * `ExternalContextCreator` would do less: it drops guards given as classes to controllers, shows no undecorated parameter
 * to pipes, and does not tell what the handler did from what enhancers made of it.
 */
@Injectable()
export class StreamContextCreator {
  private readonly utils = new ContextUtils();
  private readonly injector = new Injector();
  private readonly withGlobals: ContextCreators;
  private readonly withoutGlobals: ContextCreators;
  /** Where no context of a message could be made: only what needs none. */
  private readonly singletonsAlone: ContextCreators;

  constructor(
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
    @Inject(ApplicationConfig) private readonly config: ApplicationConfig,
    @Inject(ModuleRef) private readonly moduleRef: ModuleRef,
  ) {
    this.withGlobals = this.creators(config);
    this.withoutGlobals = this.creators(new ApplicationConfig());
    this.singletonsAlone = this.creators(config, (wrapper) => wrapper.isDependencyTreeStatic());
  }

  create(host: HandlerHost, options: StreamContextOptions): StreamHandlerContext {
    const decorations = this.decorations(host);
    const scope = new MessageScope({
      moduleRef: this.moduleRef,
      injector: this.injector,
      wrapper: host.wrapper,
      globalEnhancers: options.globalEnhancers ? this.scopedGlobals() : [],
    });
    const shared = { instance: host.instance, contextId: STATIC_CONTEXT };
    // Also for a handler whose instances are made per message: what is wrong with it is found at the boot.
    const { pipeline, invokeBatch, problems } = this.build(host, options, decorations, shared);
    const isScopedBatch = options.batch !== undefined && scope.isNeeded;
    return {
      pipeline: scope.isNeeded ? this.perMessage(host, options, decorations, scope) : pipeline,
      invokeBatch,
      problems: [
        ...this.missingEnhancers(host, decorations),
        ...problems,
        ...(isScopedBatch
          ? ['batch needs a singleton, and the handler, a dependency or an enhancer is made for each message']
          : []),
      ],
    };
  }

  private perMessage(
    host: HandlerHost,
    options: StreamContextOptions,
    decorations: Decorations,
    scope: MessageScope,
  ): StreamPipeline {
    const { filters } = options.globalEnhancers ? this.singletonsAlone : this.withoutGlobals;
    return async (payload, ctx) => {
      let entered: EnteredScope;
      try {
        entered = await scope.enter(ctx);
      } catch (error) {
        const callback = methodOf(host.instance, host.method);
        const showError = this.showing(
          filters.create(host.instance, callback as FilterTarget, host.moduleKey),
          options,
        );
        await showError(error, this.hostOf([payload, ctx], host.instance, callback));
        return { stage: 'scope', error };
      }
      return this.build(host, options, decorations, entered).pipeline(payload, ctx);
    };
  }

  /** The pipeline around `instance`, with the enhancers that belong to this context. */
  private build(
    { method, moduleKey, name, wrapper }: HandlerHost,
    options: StreamContextOptions,
    decorations: Decorations,
    { instance, contextId }: EnteredScope,
  ): StreamHandlerContext {
    const callback = methodOf(instance, method);
    const creators = options.globalEnhancers ? this.withGlobals : this.withoutGlobals;
    const place = [moduleKey, contextId, wrapper.id] as const;
    const handlerPipes = creators.pipes.create(instance, callback, ...place);
    const input: ParamsInput = {
      decorations,
      paramTypes: (this.utils.reflectCallbackParamtypes(instance, method) as unknown[] | undefined) ?? [],
      handlerPipes,
      resolvePipes: (pipes) =>
        creators.pipes.createConcreteContext<unknown[], PipeTransform[]>([...pipes], contextId, wrapper.id),
    };
    const { batch, schema } = options;
    const parts: Omit<PipelineParts, 'params'> = {
      name,
      // Looked up at each call: a method that a test or a tracer has replaced meanwhile is the one to call.
      call: (args) => methodOf(instance, method).apply(instance, args as unknown[]),
      hostOf: (args) => this.hostOf(args, instance, callback),
      guards: creators.guards.create(instance, callback, ...place),
      interceptors: creators.interceptors.create(instance, callback, ...place),
      schema,
      showError: this.showing(creators.filters.create(instance, callback as FilterTarget, ...place), options),
    };
    const { params, problems } = batch === undefined ? handlerParams(input) : { params: [], problems: [] };
    const pipeline = makePipeline({ ...parts, params });
    if (batch === undefined) return { pipeline, problems };
    const ofBatch = batchParams(input, batch.type, schema !== undefined);
    return {
      pipeline,
      invokeBatch: makeBatchInvoker({ ...parts, params: ofBatch.params }),
      problems: ofBatch.problems,
    };
  }

  private showing(
    filters: ReturnType<ExternalExceptionFilterContext['create']>,
    { onFilterError }: StreamContextOptions,
  ): PipelineParts['showError'] {
    return async (error, host) => {
      try {
        await filters.invokeCustomFilters(error, host);
      } catch (thrown) {
        // Filters of the RPC kind rethrow what they were shown.
        if (thrown !== error) onFilterError(thrown);
      }
    };
  }

  private creators(config: ApplicationConfig, isUsable?: (wrapper: InstanceWrapper) => boolean): ContextCreators {
    const container = {
      getModules: () => ({ get: (key: string) => this.enhancersOf(key, isUsable) }),
    } as unknown as NestContainer;
    return {
      guards: new GuardsContextCreator(container, config),
      interceptors: new InterceptorsContextCreator(container, config),
      pipes: new PipesContextCreator(container, config),
      filters: new ExternalExceptionFilterContext(container, config),
    };
  }

  /** Nest registers as `injectables` only the enhancers of classes that it makes itself, not those of `useFactory`. */
  private enhancersOf(
    moduleKey: string,
    isUsable: (wrapper: InstanceWrapper) => boolean = () => true,
  ): { injectables: { get(metatype: Type): InstanceWrapper | undefined } } {
    const module = this.modules.get(moduleKey);
    const find = (type: Type): InstanceWrapper | undefined => {
      const wrapper = module?.injectables.get(type) ?? module?.providers.get(type);
      return wrapper !== undefined && isUsable(wrapper) ? wrapper : undefined;
    };
    return { injectables: { get: find } };
  }

  private decorations({ instance, method }: HandlerHost): Decorations {
    return this.utils.reflectCallbackMetadata(instance, method, ROUTE_ARGS_METADATA) ?? {};
  }

  private hostOf(args: readonly unknown[], instance: object, callback: Method): ExecutionContext {
    const host = new ExecutionContextHost([...args], instance.constructor as Type, callback);
    host.setType(STREAM_CONTEXT_TYPE);
    return host;
  }

  /** A guard that cannot be found must stop the boot: Nest would let every message through. */
  private missingEnhancers(
    { instance, method, moduleKey, wrapper: own }: HandlerHost,
    decorations: Decorations,
  ): string[] {
    const callback = methodOf(instance, method);
    const loaded = own.getEnhancersMetadata() ?? [];
    const { injectables } = this.enhancersOf(moduleKey);
    const ofParams = Object.values(decorations).flatMap(({ pipes }) => pipes ?? []);
    return ENHANCERS.flatMap(([key, kind, hook]) => {
      const given = [instance.constructor, callback].flatMap(
        (target) => (Reflect.getMetadata(key, target) as unknown[] | undefined) ?? [],
      );
      const classes = [...given, ...(kind === 'pipe' ? ofParams : [])].filter((item) => typeof item === 'function');
      return classes.flatMap((type) => {
        if (typeof Reflect.get(type, hook) === 'function') return [];
        const wrapper = injectables.get(type as Type);
        if (wrapper === undefined) {
          return [
            `${kind} ${type.name} has no instance in its module; add it to the module's providers, or pass an instance`,
          ];
        }
        return wrapper.isDependencyTreeStatic() || loaded.includes(wrapper)
          ? []
          : [`${kind} ${type.name} is request-scoped, which works only on a class that Nest makes itself`];
      });
    });
  }

  private scopedGlobals(): InstanceWrapper[] {
    const { config } = this;
    return [
      ...config.getGlobalRequestGuards(),
      ...config.getGlobalRequestInterceptors(),
      ...config.getGlobalRequestPipes(),
      ...config.getGlobalRequestFilters(),
    ];
  }
}

function methodOf(instance: object, method: string): Method {
  return Reflect.get(instance, method) as Method;
}
