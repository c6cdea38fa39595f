/**
 * Stands for an object that may be replaced by another of its kind: properties and methods are those of the present one. A
 * property that is set stays set, also on the next one, so that a spy outlives a crash.
 *
 * @param around - gets each promise that a method returns, and gives the one that the caller gets
 */
export function delegate<T extends object>(
  current: () => T,
  around: <R>(work: Promise<R>) => Promise<R> = (work) => work,
): T {
  const given = new Map<PropertyKey, unknown>();
  return new Proxy(current(), {
    get(_target, property) {
      if (given.has(property)) return given.get(property);
      const present = current();
      const value: unknown = Reflect.get(present, property, present);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]): unknown => {
        const result: unknown = Reflect.apply(value, present, args);
        return result instanceof Promise ? around(result) : result;
      };
    },
    set(_target, property, value) {
      given.set(property, value);
      return true;
    },
    defineProperty(_target, property, { value }) {
      given.set(property, value);
      return true;
    },
    deleteProperty(_target, property) {
      given.delete(property);
      return true;
    },
  });
}
