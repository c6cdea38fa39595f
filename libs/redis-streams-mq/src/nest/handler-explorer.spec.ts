import { Controller, Injectable, Module, Scope, UseGuards, type CanActivate } from '@nestjs/common';
import { DiscoveryModule } from '@nestjs/core';
import { Test, type TestingModule } from '@nestjs/testing';
import { recordingLogger, streamContext } from '../../../../test/support/nest-fakes.js';
import { MqInvalidHandlerError } from '../core/errors.js';
import type { HandlerDefinition } from '../core/handler.js';
import type { MqOptions } from '../core/options.js';
import { resolveOptions } from '../core/resolve-options.js';
import { HandlerExplorer } from './handler-explorer.js';
import { StreamContextCreator } from './stream-context-creator.js';
import { StreamHandlerAccessor } from './stream-handler.accessor.js';
import { StreamHandler } from './stream-handler.decorator.js';

@Module({
  imports: [DiscoveryModule],
  providers: [HandlerExplorer, StreamHandlerAccessor, StreamContextCreator],
  exports: [HandlerExplorer],
})
class ExplorerModule {}

let testing: TestingModule | undefined;
afterEach(async () => {
  await testing?.close();
  testing = undefined;
});

type Graph = Pick<NonNullable<Parameters<typeof Module>[0]>, 'imports' | 'providers' | 'controllers'>;
type Owners = Readonly<Record<string, MqOptions>>;

async function explore(
  graph: Graph,
  owners: Owners = { default: {} },
): Promise<ReadonlyMap<string, readonly HandlerDefinition[]>> {
  @Module({ ...graph, imports: [...(graph.imports ?? []), ExplorerModule] })
  class AppModule {}
  testing = await Test.createTestingModule({ imports: [AppModule] }).compile();
  const named = Object.entries(owners).map(([name, options]) => {
    const owner = { options: resolveOptions(options), globalEnhancers: true, logger: recordingLogger().logger };
    return [name, owner] as const;
  });
  return testing.get(HandlerExplorer).explore(new Map(named));
}

async function problems(graph: Graph, owners?: Owners): Promise<readonly string[]> {
  const error: unknown = await explore(graph, owners).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof MqInvalidHandlerError)) throw new Error('not refused', { cause: error });
  return error.problems;
}

const summary = (found: ReadonlyMap<string, readonly HandlerDefinition[]>, name = 'default'): string[] =>
  (found.get(name) ?? []).map(({ topic, group, name: handler }) => `${topic}/${group} ${handler}`);

async function call(definition: HandlerDefinition | undefined, payload: unknown): Promise<unknown> {
  return definition?.invoke({ payload, payloadBytes: Buffer.alloc(0), context: streamContext() });
}

@Injectable()
class Orders {
  readonly seen: unknown[] = [];
  @StreamHandler('orders', 'billing', { retryMaxAttempts: 2 })
  onOrder(payload: unknown): void {
    this.seen.push(payload);
  }
}

describe('HandlerExplorer finds', () => {
  it('handlers on providers and controllers, once for each topic, with their options and their own this', async () => {
    @Controller()
    class Api {
      @StreamHandler(['a', 'b'], 'api')
      onBoth(): void {}
    }
    const found = await explore({ providers: [Orders], controllers: [Api] });
    expect(summary(found)).toEqual(['orders/billing Orders.onOrder', 'a/api Api.onBoth', 'b/api Api.onBoth']);
    const [definition] = found.get('default') ?? [];
    expect(definition?.options).toMatchObject({ retryMaxAttempts: 2, batchCount: 32 });
    await expect(call(definition, 'p')).resolves.toEqual({ type: 'success' });
    expect(testing?.get(Orders).seen).toEqual(['p']);
  });

  it('NEST-01 an instance once that stands under several tokens and in several modules', async () => {
    const tokens = {
      providers: [
        Orders,
        { provide: 'alias', useExisting: Orders },
        { provide: 'copy', useFactory: (orders: Orders) => orders, inject: [Orders] },
      ],
    };
    expect(summary(await explore(tokens))).toEqual(['orders/billing Orders.onOrder']);
    await testing?.close();

    const shared = new Orders();
    @Module({ providers: [{ provide: 'one', useValue: shared }] })
    class Other {}
    const values = { imports: [Other], providers: [{ provide: 'two', useValue: shared }] };
    expect(summary(await explore(values))).toEqual(['orders/billing Orders.onOrder']);
  });

  it('handlers of what factories make, whose class Nest does not know', async () => {
    const found = await explore({ providers: [{ provide: 'orders', useFactory: async () => new Orders() }] });
    expect(summary(found)).toEqual(['orders/billing Orders.onOrder']);
  });

  it('NEST-07 inherited handlers once in each concrete class, with its own options', async () => {
    abstract class Base {
      readonly name: string = this.constructor.name;
      @StreamHandler('base', 'inherited')
      onBase(): string {
        return this.name;
      }
      @StreamHandler('base', 'overridden')
      onOverridden(): void {}
    }
    @Injectable()
    class First extends Base {
      readonly calls: string[] = [];
      override onOverridden(): void {
        this.calls.push(this.name);
      }
    }
    @Injectable()
    class Second extends Base {
      @StreamHandler('base', 'of-second')
      override onBase(): string {
        return super.onBase();
      }
      @StreamHandler('base', 'overridden-by-second')
      override onOverridden(): void {}
    }
    const found = await explore({ providers: [First, Second] });
    expect(summary(found).sort()).toEqual([
      'base/inherited First.onBase',
      'base/of-second Second.onBase',
      'base/overridden First.onOverridden',
      'base/overridden-by-second Second.onOverridden',
    ]);
    await call(
      found.get('default')?.find(({ group }) => group === 'overridden'),
      1,
    );
    expect(testing?.get(First).calls).toEqual(['First']);
  });

  it('NEST-07 handlers without invoking a getter', async () => {
    const invoked: string[] = [];
    @Injectable()
    class WithGetters {
      get broken(): never {
        invoked.push('broken');
        throw new Error('a getter must not be invoked');
      }
      @StreamHandler('t', 'g')
      handle(): void {}
    }
    const own = Object.defineProperty({}, 'lazy', { get: () => invoked.push('lazy'), enumerable: true });
    const graph = { providers: [WithGetters, { provide: 'own', useValue: own }, { provide: 'null', useValue: null }] };
    expect(summary(await explore(graph))).toEqual(['t/g WithGetters.handle']);
    expect(invoked).toEqual([]);
  });

  it('the group and the instance that the module gives', async () => {
    @Injectable()
    class Svc {
      @StreamHandler({ topic: 'a' })
      inDefault(): void {}
      @StreamHandler({ topic: 'a', instance: 'second' })
      inSecond(): void {}
    }
    const found = await explore(
      { providers: [Svc] },
      { default: { defaultConsumerGroup: 'd1' }, second: { defaultConsumerGroup: 'd2', retryMaxAttempts: 9 } },
    );
    expect(summary(found)).toEqual(['a/d1 Svc.inDefault']);
    expect(summary(found, 'second')).toEqual(['a/d2 Svc.inSecond']);
    expect(found.get('second')?.[0]?.options.retryMaxAttempts).toBe(9);
  });

  it('nothing in an application without handlers', async () => {
    expect(summary(await explore({}))).toEqual([]);
  });
});

describe('HandlerExplorer refuses', () => {
  it('NEST-01 two handlers of one topic and group, and says where they are provided', async () => {
    @Module({ providers: [Orders] })
    class A {}
    @Module({ providers: [{ provide: 'again', useClass: Orders }] })
    class B {}
    expect(await problems({ imports: [A, B] })).toEqual([
      'topic "orders" in group "billing" has two handlers: Orders.onOrder (provided in A) and ' +
        'Orders.onOrder (provided in B as again); give them different groups, or provide the class once',
    ]);
  });

  it('a topic that one handler names twice', async () => {
    @Injectable()
    class Svc {
      @StreamHandler(['t', 't'], 'g')
      handle(): void {}
    }
    expect(await problems({ providers: [Svc] })).toEqual(['Svc.handle names topic "t" in group "g" twice']);
  });

  it('NEST-02 a transient class, which has no instance of its own', async () => {
    @Injectable({ scope: Scope.TRANSIENT })
    class Scoped {
      @StreamHandler('t', 'g')
      handle(): void {}
    }
    expect(await problems({ providers: [Scoped] })).toEqual([
      expect.stringMatching(
        /^Scoped\.handle \(provided in AppModule\) is transient.*make it a singleton, or request-scoped/,
      ),
    ]);
  });

  it('NEST-02 a request-scoped guard on what a factory makes, which Nest would leave out', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Scoped implements CanActivate {
      canActivate(): boolean {
        return true;
      }
    }
    @UseGuards(Scoped)
    class WithGuard {
      @StreamHandler('t', 'g')
      handle(): void {}
    }
    const made = { provide: WithGuard, useFactory: () => new WithGuard() };
    expect(await problems({ providers: [made, Scoped] })).toEqual([
      'WithGuard.handle: guard Scoped is request-scoped, which works only on a class that Nest makes itself',
    ]);
  });

  it('NEST-02 a request-scoped class that two modules provide', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Scoped {
      @StreamHandler('t', 'g')
      handle(): void {}
    }
    @Module({ providers: [Scoped] })
    class Other {}
    expect(await problems({ imports: [Other], providers: [Scoped] })).toEqual([
      expect.stringMatching(/^topic "t" in group "g" has two handlers: Scoped\.handle/),
    ]);
  });

  it('everything that is wrong in one error', async () => {
    enum Topic {
      Orders = 'orders',
    }
    @Injectable()
    class Svc {
      @StreamHandler('orders', 'billing', { instance: 'nowhere' })
      onUnknownInstance(): void {}
      @StreamHandler('bad topic', 'bad:group')
      onBadNames(): void {}
      @StreamHandler((Topic as Record<string, string>)['Ordres'] as string, 'g')
      onUndefined(): void {}
      @StreamHandler({ topic: 'orders' })
      onNoGroup(): void {}
      @StreamHandler([], 'g')
      onNoTopic(): void {}
      @StreamHandler('orders', 'g', { retryMaxAttempts: 0, retyrBaseBackoffMs: 1 } as object)
      onBadOptions(): void {}
    }
    const found = await problems({ providers: [Svc] }, { default: {}, other: {} });
    expect(found).toEqual([
      'Svc.onUnknownInstance: no instance of the module is named "nowhere"; there is "default", "other"',
      expect.stringMatching(/^Svc\.onBadNames: group name "bad:group" contains ":"/),
      expect.stringMatching(/^Svc\.onBadNames: topic name "bad topic" contains " "/),
      expect.stringMatching(/^Svc\.onUndefined: topic name is not a string/),
      "Svc.onNoGroup: no group; name one in @StreamHandler, or set the module's defaultConsumerGroup",
      'Svc.onNoTopic: the list of topics is empty',
      expect.stringMatching(/^Svc\.onBadOptions: retryMaxAttempts must be/),
      expect.stringMatching(/^Svc\.onBadOptions: unknown option "retyrBaseBackoffMs"/),
    ]);
  });

  it('any handler when there is no instance of its name', async () => {
    expect(await problems({ providers: [Orders] }, {})).toEqual([
      'Orders.onOrder: no instance of the module is named "default"; there is none',
    ]);
  });
});
