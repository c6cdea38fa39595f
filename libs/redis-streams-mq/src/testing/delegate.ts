/**
 * Stands for an object that may be replaced by another of its kind: properties and methods are those of the present one. A
 * property that is set stays set, also on the next one, so that a spy outlives a crash.
 */
export function delegate<T extends object>(current: () => T): T {
  const given = new Map<PropertyKey, unknown>();
  return new Proxy(current(), {
    get(_target, property) {
      if (given.has(property)) return given.get(property);
      const present = current();
      const value: unknown = Reflect.get(present, property, present);
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(present) : value;
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
