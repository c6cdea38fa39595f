import { ContextIdFactory, type ModuleRef } from '@nestjs/core';
import { Injector } from '@nestjs/core/injector/injector.js';
import { REQUEST_CONTEXT_ID } from '@nestjs/core/router/request/request-constants.js';
import type { StreamContext } from '../core/handler.js';

type Module = Parameters<Injector['loadPerContext']>[1];
type ContextId = ReturnType<typeof ContextIdFactory.create>;

/** A provider or controller as Nest keeps it: its scope, and what it depends on. */
export type InstanceWrapper = NonNullable<ReturnType<Module['providers']['get']>>;

/** What was made for one message. */
export interface EnteredScope {
  /** The object whose method handles the message. */
  readonly instance: object;
  readonly contextId: ContextId;
}

/**
 * Makes what has to be made anew for each message: handlers, dependencies and enhancers that are request-scoped. `REQUEST`
 * is the `StreamContext`, or for a durable handler the payload that the `ContextIdStrategy` gives.
 */
export class MessageScope {
  constructor(
    private readonly deps: {
      readonly moduleRef: ModuleRef;
      readonly injector: Injector;
      readonly wrapper: InstanceWrapper;
      /** Request-scoped and transient enhancers of the application: Nest hands them out per context only. */
      readonly globalEnhancers: readonly InstanceWrapper[];
    },
  ) {}

  /** Whether anything of the handler is not a singleton. */
  get isNeeded(): boolean {
    return !this.deps.wrapper.isDependencyTreeStatic() || this.deps.globalEnhancers.length > 0;
  }

  /** Rejects with what a constructor, a factory or the `ContextIdStrategy` of the application throws. */
  async enter(ctx: StreamContext): Promise<EnteredScope> {
    const { moduleRef, injector, wrapper, globalEnhancers } = this.deps;
    const contextId = ContextIdFactory.getByRequest(ctx);
    // As Nest does with its requests: `ContextIdFactory.getByRequest(ctx)` of the application then gives this one.
    Object.defineProperty(ctx, REQUEST_CONTEXT_ID, { value: contextId, enumerable: false });
    const request: unknown = wrapper.isDependencyTreeDurable() ? contextId.payload : ctx;
    moduleRef.registerRequestByContextId(request, contextId);
    const isSingleton = wrapper.isDependencyTreeStatic();
    const instance: unknown = isSingleton
      ? wrapper.instance
      : await injector.loadPerContext(wrapper.instance, hostOf(wrapper), collectionOf(wrapper), contextId, wrapper);
    if (globalEnhancers.length > 0) {
      // Loading a handler loads its own enhancers, too; the transient ones of a singleton are not there in this context yet.
      const enhancers = [...globalEnhancers, ...((isSingleton && wrapper.getEnhancersMetadata()) || [])];
      const all = { getEnhancersMetadata: () => enhancers } as unknown as InstanceWrapper;
      await injector.loadEnhancersPerContext(all, contextId, wrapper);
    }
    return { instance: instance as object, contextId };
  }
}

function hostOf({ host, name }: InstanceWrapper): Module {
  if (host === undefined) throw new Error(`${String(name)} belongs to no module`);
  return host;
}

function collectionOf(wrapper: InstanceWrapper): Module['providers'] {
  const { controllers, providers } = hostOf(wrapper);
  return controllers.get(wrapper.token) === wrapper ? controllers : providers;
}
