import { deferred } from './wait-for.js';

/** A call that waits before it does anything. */
export interface HeldCall {
  readonly reached: Promise<void>;
  readonly go: () => void;
}

/** Holds the next call of a method that is meant back, whoever makes it: a process that is late. Undone by `jest.restoreAllMocks()`. */
export function holdNext<T extends object>(
  { prototype }: { readonly prototype: T },
  method: keyof T & string,
  isMeant: (args: readonly unknown[]) => boolean = () => true,
): HeldCall {
  const [reached, go] = [deferred(), deferred()];
  const real = prototype[method] as (...args: unknown[]) => unknown;
  let isHeld = false;
  jest.spyOn(prototype as Record<string, () => unknown>, method).mockImplementation(async function (
    this: T,
    ...args: unknown[]
  ) {
    if (!isHeld && isMeant(args)) {
      isHeld = true;
      reached.resolve();
      await go.promise;
    }
    return real.apply(this, args);
  });
  return { reached: reached.promise, go: () => go.resolve() };
}
