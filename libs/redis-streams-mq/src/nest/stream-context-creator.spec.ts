import { AsyncLocalStorage } from 'node:async_hooks';
import {
  Body,
  Catch,
  Controller,
  createParamDecorator,
  Headers,
  Injectable,
  Module,
  ParseIntPipe,
  Query,
  Req,
  Scope,
  UseFilters,
  UseGuards,
  UseInterceptors,
  UsePipes,
  ValidationPipe,
  type ArgumentsHost,
  type CallHandler,
  type CanActivate,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import { APP_GUARD, ApplicationConfig, ModuleRef, ModulesContainer } from '@nestjs/core';
import { Test, type TestingModule } from '@nestjs/testing';
import { IsInt } from 'class-validator';
import { catchError, concat, map, mergeMap, of, retry, throwError, timeout, type Observable } from 'rxjs';
import { streamContext } from '../../../../test/support/nest-fakes.js';
import type { HandlerOutcome, StreamContext } from '../core/handler.js';
import { DeadLetter, MessageHandleResult, RetryLater } from '../core/results.js';
import { makeInvoker } from './handler-invoker.js';
import { EventId, MessageHeaders, MessageKey, Payload, StreamCtx } from './payload.decorators.js';
import { StreamContextCreator, type StreamHandlerContext } from './stream-context-creator.js';
import { isStreamContext } from './stream-host.js';

let testing: TestingModule | undefined;
afterEach(async () => {
  await testing?.close();
  testing = undefined;
});

interface Created extends StreamHandlerContext {
  readonly handle: (payload: unknown, ctx?: Partial<StreamContext>) => Promise<HandlerOutcome>;
  readonly filterErrors: unknown[];
}

/** The pipeline around `type.handle`, which is a provider or controller of `AppModule`. */
async function create(
  type: Type<object>,
  { globalEnhancers = true, ...app }: { globalEnhancers?: boolean; providers?: unknown[]; controllers?: Type[] } = {},
): Promise<Created> {
  @Module({ providers: (app.providers as Type[] | undefined) ?? [type], controllers: app.controllers })
  class AppModule {}
  testing = await Test.createTestingModule({ imports: [AppModule] }).compile();
  const modules = testing.get(ModulesContainer);
  const [moduleKey] = [...modules].find(([, { metatype }]) => metatype === AppModule) ?? [''];
  const filterErrors: unknown[] = [];
  const creator = new StreamContextCreator(modules, testing.get(ApplicationConfig), testing.get(ModuleRef));
  const instance = testing.get(type, { strict: false });
  const module = modules.get(moduleKey);
  const wrapper = module?.providers.get(type) ?? module?.controllers.get(type);
  if (wrapper === undefined) throw new Error(`${type.name} is not provided`);
  const context = creator.create(
    { instance, wrapper, method: 'handle', moduleKey, name: `${type.name}.handle` },
    { globalEnhancers, onFilterError: (error) => filterErrors.push(error) },
  );
  const invoke = makeInvoker(context.pipeline);
  return {
    ...context,
    filterErrors,
    handle: (payload, ctx) => invoke({ payload, payloadBytes: Buffer.alloc(0), context: streamContext(ctx) }),
  };
}

const success: HandlerOutcome = { type: 'success' };
type Next = CallHandler<unknown>;

@Injectable()
class Dependency {}

/** Denies when the payload says so, by itself or by an exception. */
@Injectable()
class DenyingGuard implements CanActivate {
  constructor(readonly dependency: Dependency) {}
  canActivate(host: ExecutionContext): boolean {
    if (!(this.dependency instanceof Dependency)) throw new Error('the guard was made without its dependency');
    const { deny } = host.switchToRpc().getData<{ deny?: boolean | Error }>();
    if (deny instanceof Error) throw deny;
    return deny !== true;
  }
}

@Injectable()
class WrappingInterceptor implements NestInterceptor {
  intercept(_host: ExecutionContext, next: Next): Observable<unknown> {
    return next.handle().pipe(map((data) => ({ data })));
  }
}

class OrderDto {
  @IsInt()
  id!: number;
}

describe('guards', () => {
  @Controller()
  @UseGuards(DenyingGuard)
  class GuardedController {
    calls = 0;
    handle(): void {
      this.calls += 1;
    }
  }

  it('given as a class on a controller, denies', async () => {
    const { handle, problems } = await create(GuardedController, {
      providers: [Dependency],
      controllers: [GuardedController],
    });
    expect(problems).toEqual([]);
    await expect(handle({})).resolves.toEqual(success);
    await expect(handle({ deny: true })).resolves.toMatchObject({
      type: 'dead',
      reason: 'rejected',
      error: { status: 403 },
    });
    expect(testing?.get(GuardedController).calls).toBe(1);
  });

  it('decides the class of what it throws, unless that is a control class', async () => {
    const { handle } = await create(GuardedController, { providers: [Dependency], controllers: [GuardedController] });
    const error = new Error('no token');
    await expect(handle({ deny: error })).resolves.toEqual({ type: 'dead', reason: 'rejected', error });
    const later = new RetryLater(5);
    await expect(handle({ deny: later })).resolves.toEqual({ type: 'retry', delayMs: 5, error: later });
  });

  it('given as a class to what a factory makes, denies when it is a provider, and is refused when it is not', async () => {
    const provided = { provide: GuardedController, useFactory: () => new GuardedController() };
    const found = await create(GuardedController, { providers: [Dependency, DenyingGuard, provided] });
    expect(found.problems).toEqual([]);
    await expect(found.handle({ deny: true })).resolves.toMatchObject({ reason: 'rejected' });
    await testing?.close();

    const missing = await create(GuardedController, { providers: [provided] });
    expect(missing.problems).toEqual([expect.stringMatching(/^guard DenyingGuard has no instance/)]);
  });

  it('of the application apply, and can be left out', async () => {
    @Injectable()
    class Plain {
      handle(): void {}
    }
    const types: string[] = [];
    const guard: CanActivate = {
      canActivate: (host) => {
        types.push(`${host.getType()} ${isStreamContext(host)} ${host.getClass().name} ${host.getHandler().name}`);
        return false;
      },
    };
    const providers = [Plain, { provide: APP_GUARD, useValue: guard }];
    const applied = await create(Plain, { providers });
    await expect(applied.handle({})).resolves.toMatchObject({ reason: 'rejected' });
    expect(types).toEqual(['redis-streams-mq true Plain handle']);
    await testing?.close();
    const leftOut = await create(Plain, { providers, globalEnhancers: false });
    await expect(leftOut.handle({})).resolves.toEqual(success);
  });

  it('of the application that are request-scoped apply', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Scoped implements CanActivate {
      canActivate(): boolean {
        return false;
      }
    }
    @Injectable()
    class Plain {
      handle(): void {}
    }
    const providers = [Plain, { provide: APP_GUARD, useClass: Scoped }];
    const { handle, problems } = await create(Plain, { providers });
    expect(problems).toEqual([]);
    await expect(handle({})).resolves.toMatchObject({ type: 'dead', reason: 'rejected' });
    await testing?.close();
    const leftOut = await create(Plain, { providers, globalEnhancers: false });
    await expect(leftOut.handle({})).resolves.toEqual(success);
  });
});

describe('pipes and parameters', () => {
  it('validate a DTO that has no decorator', async () => {
    @Injectable()
    class Svc {
      seen: unknown[] = [];
      @UsePipes(new ValidationPipe({ transform: true }))
      handle(order: OrderDto, ctx: StreamContext): void {
        this.seen.push(order instanceof OrderDto, ctx.eventId);
      }
    }
    const { handle } = await create(Svc);
    await expect(handle({ id: 1 })).resolves.toEqual(success);
    expect(testing?.get(Svc).seen).toEqual([true, streamContext().eventId]);
    await expect(handle({ id: 'x' })).resolves.toMatchObject({
      type: 'dead',
      reason: 'validation',
      error: { code: 'MQ_VALIDATION', cause: { status: 400 } },
    });
  });

  it('validate a decorated DTO, whichever package the decorator comes from', async () => {
    @Injectable()
    @UsePipes(ValidationPipe)
    class Svc {
      handle(@Payload() _order: OrderDto): void {}
    }
    @Injectable()
    class WithBody {
      handle(@Body(ValidationPipe) _order: OrderDto): void {}
    }
    for (const type of [Svc, WithBody]) {
      const { handle, problems } = await create(type);
      expect(problems).toEqual([]);
      await expect(handle({ id: 1 })).resolves.toEqual(success);
      await expect(handle({})).resolves.toMatchObject({ reason: 'validation' });
      await testing?.close();
    }
  });

  it('inject what the decorators ask for', async () => {
    const Attempt = createParamDecorator(
      (_: unknown, host: ExecutionContext) => host.switchToRpc().getContext<StreamContext>().attempt,
    );
    @Injectable()
    class Svc {
      seen: unknown[] = [];
      handle(
        @StreamCtx() ctx: StreamContext,
        @Payload('id') id: unknown,
        @MessageKey() key: unknown,
        @MessageHeaders() headers: unknown,
        @MessageHeaders('tenant') tenant: unknown,
        @EventId() eventId: unknown,
        @Attempt() attempt: unknown,
        @Query() foreignCtx: unknown,
        @Headers('tenant') foreignHeader: unknown,
        @Payload('constructor') absent: unknown,
      ): void {
        this.seen = [ctx.topic, id, key, headers, tenant, eventId, attempt, foreignCtx === ctx, foreignHeader, absent];
      }
    }
    const { handle } = await create(Svc);
    await handle({ id: 5 });
    const { headers, eventId } = streamContext();
    expect(testing?.get(Svc).seen).toEqual([
      'orders', 5, 'customer-1', headers, 'acme', eventId, 1, true, 'acme', undefined,
    ]); // prettier-ignore
  });

  it('of the handler leave context, key and headers alone; those of a parameter apply to it', async () => {
    @Injectable()
    class Svc {
      seen: unknown[] = [];
      @UsePipes(ParseIntPipe)
      handle(@Payload() payload: number, @StreamCtx() ctx: StreamContext, @MessageKey(ParseIntPipe) key: number): void {
        this.seen = [payload, ctx.topic, key];
      }
    }
    const { handle } = await create(Svc);
    await expect(handle('41', { key: '7' })).resolves.toEqual(success);
    expect(testing?.get(Svc).seen).toEqual([41, 'orders', 7]);
    await expect(handle('41', { key: 'x' })).resolves.toMatchObject({ reason: 'validation' });
  });

  it('decide the class of what they throw, unless that is a control class', async () => {
    @Injectable()
    class Lookup implements PipeTransform {
      transform(): never {
        throw new RetryLater(9);
      }
    }
    @Injectable()
    class Svc {
      handle(@Payload(Lookup) _payload: unknown): void {}
    }
    const { handle } = await create(Svc);
    await expect(handle(1)).resolves.toMatchObject({ type: 'retry', delayMs: 9 });
  });

  it('refuse a decorator that means nothing for a message', async () => {
    @Injectable()
    class Svc {
      handle(@Req() _request: unknown): void {}
    }
    const { problems } = await create(Svc);
    expect(problems).toEqual(['parameter 0 has a decorator that means nothing for a message']);
  });
});

describe('the handler decides', () => {
  /** A handler that does what the payload, a function, says; in a class with these enhancers. */
  function handlerWith(...enhancers: ClassDecorator[]): Type<object> {
    @Injectable()
    class Svc {
      async handle(act: () => unknown): Promise<unknown> {
        return act();
      }
    }
    for (const enhance of enhancers) enhance(Svc);
    return Svc;
  }
  const throwing = (error: Error) => (): never => {
    throw error;
  };

  it.each([
    ['nothing around it', []],
    ['an interceptor that wraps', [UseInterceptors(WrappingInterceptor)]],
    [
      'one that swallows errors',
      [UseInterceptors({ intercept: (_h, next) => next.handle().pipe(catchError(() => of('fine'))) })],
    ],
  ] satisfies [string, ClassDecorator[]][])('with %s', async (_what, enhancers) => {
    const { handle } = await create(handlerWith(...enhancers));
    const error = new Error('no');
    await expect(handle(() => 'RETRY')).resolves.toEqual(success);
    await expect(handle(() => MessageHandleResult.RETRY)).resolves.toEqual({ type: 'retry' });
    await expect(handle(() => MessageHandleResult.FAIL)).resolves.toEqual({ type: 'dead', reason: 'rejected' });
    await expect(handle(throwing(error))).resolves.toEqual({ type: 'retry', error });
    await expect(handle(throwing(new DeadLetter('bad')))).resolves.toMatchObject({ type: 'dead', reason: 'rejected' });
    await expect(handle(() => concat(of(1), of(MessageHandleResult.RETRY)))).resolves.toEqual({ type: 'retry' });
    await expect(handle(() => throwError(() => error))).resolves.toEqual({ type: 'retry', error });
  });

  it('with a filter, which sees the error and changes nothing', async () => {
    const seen: unknown[] = [];
    @Catch()
    class Swallowing implements ExceptionFilter {
      catch(error: unknown, host: ArgumentsHost): unknown {
        seen.push(error, isStreamContext(host));
        return { ok: true };
      }
    }
    const { handle, filterErrors } = await create(handlerWith(UseFilters(Swallowing)));
    const error = new Error('real cause');
    await expect(handle(throwing(error))).resolves.toEqual({ type: 'retry', error });
    expect(seen).toEqual([error, true]);
    expect(filterErrors).toEqual([]);
  });

  it('with a filter made for HTTP, which fails', async () => {
    @Catch()
    class ForHttp implements ExceptionFilter {
      async catch(_error: unknown, host: ArgumentsHost): Promise<void> {
        host.switchToHttp().getResponse<{ status(code: number): void }>().status(500);
      }
    }
    const { handle, filterErrors } = await create(handlerWith(UseFilters(ForHttp)));
    const error = new Error('real cause');
    await expect(handle(throwing(error))).resolves.toEqual({ type: 'retry', error });
    expect(filterErrors).toEqual([expect.any(TypeError)]);
  });

  it('an interceptor that fails before it is a retry', async () => {
    const error = new Error('no tenant');
    const { handle } = await create(handlerWith(UseInterceptors({ intercept: throwing(error) })));
    const act = jest.fn();
    await expect(handle(act)).resolves.toEqual({ type: 'retry', error });
    expect(act).not.toHaveBeenCalled();
  });

  it('an interceptor that answers in its place has handled the message', async () => {
    const { handle } = await create(handlerWith(UseInterceptors({ intercept: () => of('seen before') })));
    const act = jest.fn();
    await expect(handle(act)).resolves.toEqual(success);
    expect(act).not.toHaveBeenCalled();
  });

  it('an interceptor that fails after its success is a retry, as when it could not commit', async () => {
    const error = new Error('commit failed');
    const commit: NestInterceptor = {
      intercept: (_h, next) => next.handle().pipe(mergeMap(() => throwError(() => error))),
    };
    const { handle } = await create(handlerWith(UseInterceptors(commit)));
    await expect(handle(() => 1)).resolves.toEqual({ type: 'retry', error });
    await expect(handle(() => MessageHandleResult.FAIL)).resolves.toEqual({ type: 'dead', reason: 'rejected' });
  });

  it('its last run counts when an interceptor repeats it', async () => {
    const { handle } = await create(
      handlerWith(UseInterceptors({ intercept: (_h, next) => next.handle().pipe(retry(2)) })),
    );
    const act = jest.fn().mockRejectedValueOnce(new Error('once')).mockResolvedValue('done');
    await expect(handle(act)).resolves.toEqual(success);
    expect(act).toHaveBeenCalledTimes(2);
  });

  it('is waited for when an interceptor gives up on it', async () => {
    const { handle } = await create(
      handlerWith(UseInterceptors({ intercept: (_h, next) => next.handle().pipe(timeout(5)) })),
    );
    let finish = (): void => {};
    const running = new Promise<void>((resolve) => (finish = resolve));
    let settled = false;
    const outcome = handle(() => running).finally(() => (settled = true));
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(settled).toBe(false);
    finish();
    await expect(outcome).resolves.toMatchObject({ type: 'retry', error: { name: 'TimeoutError' } });
  });

  it('a method that was replaced after the boot is the one that is called', async () => {
    const type = handlerWith();
    const { handle } = await create(type);
    const spy = jest
      .spyOn(testing?.get(type) as { handle(): unknown }, 'handle')
      .mockReturnValue(MessageHandleResult.RETRY);
    await expect(handle(1)).resolves.toEqual({ type: 'retry' });
    expect(spy).toHaveBeenCalledTimes(1);
  });
});

describe('AsyncLocalStorage', () => {
  const storage = new AsyncLocalStorage<string>();
  /** As the interceptor of nestjs-cls: the store is there when `handle()` is called, and not when it is subscribed to. */
  const cls: NestInterceptor = { intercept: (_host, next) => storage.run('store', () => next.handle()) };

  it('of an interceptor reaches the handler and the interceptors after it', async () => {
    const seen: unknown[] = [];
    const looking: NestInterceptor = {
      intercept: (_host, next) => {
        seen.push(storage.getStore());
        return next.handle();
      },
    };
    @Injectable()
    @UseInterceptors(cls, looking)
    class Svc {
      async handle(): Promise<void> {
        await Promise.resolve();
        seen.push(storage.getStore());
      }
    }
    const { handle } = await create(Svc);
    await handle(1);
    expect(seen).toEqual(['store', 'store']);
    expect(storage.getStore()).toBeUndefined();
  });
});
