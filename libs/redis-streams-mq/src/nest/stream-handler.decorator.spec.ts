import { MqInvalidHandlerError } from '../core/errors.js';
import { StreamHandlerAccessor } from './stream-handler.accessor.js';
import type { TypedTopic } from '../core/topic.js';
import { StreamHandler } from './stream-handler.decorator.js';

const accessor = new StreamHandlerAccessor();
const of = (type: { prototype: object }, method: string) => accessor.subscriptions(type.prototype, method);

/** What `@Transactional()` and `@Span()` do: another function takes the place of the method. */
const Wrapped = (): MethodDecorator => (_target, _method, descriptor) => {
  const { value } = descriptor;
  const original = value as unknown as (...args: unknown[]) => unknown;
  const wrapper = function (this: unknown, ...args: unknown[]): unknown {
    return original.apply(this, args);
  };
  return { ...descriptor, value: wrapper } as typeof descriptor;
};

class Base {
  @StreamHandler('orders', 'billing', { retryMaxAttempts: 2, instance: 'second' })
  positional(): void {}

  @StreamHandler({ topic: ['a', 'b'], group: 'g', batchCount: 1 })
  object(): void {}

  @StreamHandler('first', 'g')
  @StreamHandler('second', 'g')
  twice(): void {}

  @Wrapped()
  @StreamHandler('below', 'g')
  wrapped(): void {}

  plain(): void {}
}

class Inheriting extends Base {
  override positional(): void {}

  @StreamHandler('other', 'billing')
  override object(): void {}
}

describe('@StreamHandler', () => {
  it('takes topic, group and options one after the other', () => {
    expect(of(Base, 'positional')).toEqual([
      { topics: [{ name: 'orders' }], group: 'billing', instance: 'second', options: { retryMaxAttempts: 2 } },
    ]);
  });

  it('takes everything in one object, and several topics', () => {
    expect(of(Base, 'object')).toEqual([
      { topics: [{ name: 'a' }, { name: 'b' }], group: 'g', instance: 'default', options: { batchCount: 1 } },
    ]);
  });

  it('keeps every subscription of a method, in the order of the source', () => {
    expect(of(Base, 'twice').map(({ topics }) => topics[0]?.name)).toEqual(['first', 'second']);
  });

  it('is not lost when a decorator above it wraps the method', () => {
    expect(of(Base, 'wrapped')).toHaveLength(1);
  });

  it('says nothing about a method without it', () => {
    expect(of(Base, 'plain')).toEqual([]);
  });

  it('is inherited, also by a method that overrides', () => {
    expect(of(Inheriting, 'twice')).toHaveLength(2);
    expect(of(Inheriting, 'positional')).toEqual(of(Base, 'positional'));
  });

  it('replaces what is inherited when the overriding method has it, and leaves the base class alone', () => {
    expect(of(Inheriting, 'object').map(({ topics }) => topics)).toEqual([[{ name: 'other' }]]);
    expect(of(Base, 'object').map(({ topics }) => topics)).toEqual([[{ name: 'a' }, { name: 'b' }]]);
  });

  it('takes a typed topic and leaves the group to the module', () => {
    const orders: TypedTopic<{ id: number }> = { name: 'orders' };
    class Typed {
      @StreamHandler(orders)
      right(order: { id: number }): number {
        return order.id;
      }

      // @ts-expect-error the payload is not of the topic's type
      @StreamHandler(orders)
      wrong(order: { id: string }): string {
        return order.id;
      }
    }
    expect(of(Typed, 'right')).toEqual([
      { topics: [{ name: 'orders' }], group: undefined, instance: 'default', options: {} },
    ]);
  });

  it.each([
    ['a static method', () => StreamHandler('t', 'g')(Base, 'create', { value: () => 1 })],
    ['an accessor', () => StreamHandler('t', 'g')(Base.prototype, 'size', { get: () => 1 })],
    ['a property', () => StreamHandler('t', 'g')(Base.prototype, 'arrow', undefined as never)],
    ['a symbol', () => StreamHandler('t', 'g')(Base.prototype, Symbol('s'), { value: () => 1 })],
  ])('refuses %s, which would never be found', (_what, decorate) => {
    expect(decorate).toThrow(MqInvalidHandlerError);
    expect(decorate).toThrow(/Base\./);
  });
});
