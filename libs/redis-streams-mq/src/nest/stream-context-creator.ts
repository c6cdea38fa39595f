import { Inject, Injectable, type ExecutionContext, type PipeTransform, type Type } from '@nestjs/common';
import {
  EXCEPTION_FILTERS_METADATA,
  GUARDS_METADATA,
  INTERCEPTORS_METADATA,
  PIPES_METADATA,
  ROUTE_ARGS_METADATA,
} from '@nestjs/common/constants.js';
import { ApplicationConfig, ModulesContainer } from '@nestjs/core';
import { ExternalExceptionFilterContext } from '@nestjs/core/exceptions/external-exception-filter-context.js';
import { GuardsContextCreator } from '@nestjs/core/guards/index.js';
import { ContextUtils } from '@nestjs/core/helpers/context-utils.js';
import { ExecutionContextHost } from '@nestjs/core/helpers/execution-context-host.js';
import { InterceptorsContextCreator } from '@nestjs/core/interceptors/index.js';
import { PipesContextCreator } from '@nestjs/core/pipes/index.js';
import { handlerParams, type ParamDecoration } from './handler-params.js';
import { STREAM_CONTEXT_TYPE } from './stream-host.js';
import { makePipeline, type StreamPipeline } from './stream-pipeline.js';

/** A method that handles messages, and where its enhancers are to be looked up. */
export interface HandlerHost {
  readonly instance: object;
  readonly method: string;
  /** Key of the class's module in `ModulesContainer`. */
  readonly moduleKey: string;
  /** `Class.method`, for messages. */
  readonly name: string;
}

export interface StreamContextOptions {
  /** Whether `APP_GUARD` and the like, and `app.useGlobalPipes()` and the like, apply. */
  readonly globalEnhancers: boolean;
  /** Told about an exception filter that threw while it was shown an error. */
  readonly onFilterError: (error: unknown) => void;
}

export interface StreamHandlerContext {
  readonly pipeline: StreamPipeline;
  /** Why the pipeline must not be used: an enhancer that would be left out silently. */
  readonly problems: readonly string[];
}

type Method = (...args: unknown[]) => unknown;
type NestContainer = ConstructorParameters<typeof GuardsContextCreator>[0];
type EnhancerWrapper = NonNullable<ReturnType<GuardsContextCreator['getInstanceByMetatype']>>;

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
  private readonly withGlobals: ContextCreators;
  private readonly withoutGlobals: ContextCreators;

  constructor(
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
    @Inject(ApplicationConfig) private readonly config: ApplicationConfig,
  ) {
    this.withGlobals = this.creators(config);
    this.withoutGlobals = this.creators(new ApplicationConfig());
  }

  create(host: HandlerHost, options: StreamContextOptions): StreamHandlerContext {
    const { instance, method, moduleKey, name } = host;
    const callback = Reflect.get(instance, method) as Method;
    const creators = options.globalEnhancers ? this.withGlobals : this.withoutGlobals;
    const decorations = this.decorations(host);
    const problems = [
      ...this.missingEnhancers(host, callback, decorations),
      ...(options.globalEnhancers ? this.scopedGlobals() : []),
    ];

    const handlerPipes = creators.pipes.create(instance, callback, moduleKey);
    const { params, problems: paramProblems } = handlerParams({
      decorations,
      paramTypes: (this.utils.reflectCallbackParamtypes(instance, method) as unknown[] | undefined) ?? [],
      handlerPipes,
      resolvePipes: (pipes) => creators.pipes.createConcreteContext<unknown[], PipeTransform[]>([...pipes]),
    });
    const filters = creators.filters.create(
      instance,
      callback as Parameters<typeof creators.filters.create>[1],
      moduleKey,
    );

    const pipeline = makePipeline({
      name,
      // Looked up at each call: a method that a test or a tracer has replaced meanwhile is the one to call.
      call: (args) => (Reflect.get(instance, method) as Method).apply(instance, args as unknown[]),
      hostOf: (args) => this.hostOf(args, instance, callback),
      guards: creators.guards.create(instance, callback, moduleKey),
      interceptors: creators.interceptors.create(instance, callback, moduleKey),
      params,
      showError: async (error, executionHost) => {
        try {
          await filters.invokeCustomFilters(error, executionHost);
        } catch (thrown) {
          // Filters of the RPC kind rethrow what they were shown.
          if (thrown !== error) options.onFilterError(thrown);
        }
      },
    });
    return { pipeline, problems: [...problems, ...paramProblems] };
  }

  private creators(config: ApplicationConfig): ContextCreators {
    const container = {
      getModules: () => ({ get: (key: string) => this.enhancersOf(key) }),
    } as unknown as NestContainer;
    return {
      guards: new GuardsContextCreator(container, config),
      interceptors: new InterceptorsContextCreator(container, config),
      pipes: new PipesContextCreator(container, config),
      filters: new ExternalExceptionFilterContext(container, config),
    };
  }

  /** Nest registers as `injectables` only the enhancers of classes that it makes itself, not those of `useFactory`. */
  private enhancersOf(moduleKey: string): { injectables: { get(metatype: Type): EnhancerWrapper | undefined } } {
    const module = this.modules.get(moduleKey);
    return { injectables: { get: (type) => module?.injectables.get(type) ?? module?.providers.get(type) } };
  }

  private decorations({ instance, method }: HandlerHost): Readonly<Record<string, ParamDecoration>> {
    return this.utils.reflectCallbackMetadata(instance, method, ROUTE_ARGS_METADATA) ?? {};
  }

  private hostOf(args: readonly unknown[], instance: object, callback: Method): ExecutionContext {
    const host = new ExecutionContextHost([...args], instance.constructor as Type, callback);
    host.setType(STREAM_CONTEXT_TYPE);
    return host;
  }

  /** A guard that cannot be found must stop the boot: Nest would let every message through. */
  private missingEnhancers(
    { instance, moduleKey }: HandlerHost,
    callback: Method,
    decorations: Readonly<Record<string, ParamDecoration>>,
  ): string[] {
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
        return wrapper.isDependencyTreeStatic()
          ? []
          : [`${kind} ${type.name} is request-scoped; a message has no request`];
      });
    });
  }

  /** Nest keeps those apart and hands them out per request only: without a request they would be left out. */
  private scopedGlobals(): string[] {
    const scoped = [
      ['APP_GUARD', this.config.getGlobalRequestGuards()],
      ['APP_INTERCEPTOR', this.config.getGlobalRequestInterceptors()],
      ['APP_PIPE', this.config.getGlobalRequestPipes()],
      ['APP_FILTER', this.config.getGlobalRequestFilters()],
    ] as const;
    return scoped
      .filter(([, wrappers]) => wrappers.length > 0)
      .map(
        ([token]) =>
          `the app has an ${token} that is request-scoped, and a message has no request; ` +
          'make it a singleton, or leave such enhancers out with globalEnhancers: false',
      );
  }
}
