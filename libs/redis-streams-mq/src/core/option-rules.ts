import { MAX_TIMER_MS } from './options.js';

/**
 * What a text from a YAML block is turned into before the rule sees it. An `opaque` option is handed on as it is, `null`
 * and `undefined` included.
 */
export type OptionKind = 'number' | 'boolean' | 'other' | 'opaque';

/** What one option may be. */
export interface OptionRule<T> {
  readonly kind: OptionKind;
  readonly defaultValue: T;
  /** Ends the sentence "must be ...". */
  readonly expected: string;
  accepts(value: unknown): boolean;
}

/** Names a value in a message: short, safe for any value, and showing nothing of what is inside an object. */
export function describeValue(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}...` : value);
  if (typeof value === 'function' || typeof value === 'symbol') return `a ${typeof value}`;
  if (typeof value !== 'object' || value === null) return String(value);
  return Array.isArray(value) ? 'an array' : 'an object';
}

/** The sentence about a value that a rule does not accept, or `null`. Never throws, whatever the value does when looked at. */
export function problemOf(rule: OptionRule<unknown>, name: string, value: unknown): string | null {
  try {
    return rule.accepts(value) ? null : `${name} must be ${rule.expected}; got ${describeValue(value)}`;
  } catch {
    return `${name} must be ${rule.expected}; got an object that throws`;
  }
}

export function integer(defaultValue: number, min: number, max: number): OptionRule<number> {
  return {
    kind: 'number',
    defaultValue,
    expected: `an integer from ${min} to ${max}`,
    accepts: (value) => typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max,
  };
}

/** Milliseconds of a timer. */
export function milliseconds(defaultValue: number, min: number): OptionRule<number> {
  return integer(defaultValue, min, MAX_TIMER_MS);
}

/** Seconds as whole milliseconds. */
export function toMs(sec: number): number {
  return Math.round(sec * 1000);
}

/** Seconds of a timer; fractions are allowed as long as the milliseconds are whole, because Redis takes no others. */
export function seconds(defaultValue: number, minMs: number): OptionRule<number> {
  return {
    kind: 'number',
    defaultValue,
    expected: `a number of seconds from ${minMs / 1000} to ${MAX_TIMER_MS / 1000} with at most three decimals`,
    // Dividing back is exact where multiplying is not: 1.001 * 1000 is 1000.9999999999999.
    accepts: (value) =>
      typeof value === 'number' && toMs(value) / 1000 === value && toMs(value) >= minMs && toMs(value) <= MAX_TIMER_MS,
  };
}

export function flag(defaultValue: boolean): OptionRule<boolean> {
  return { kind: 'boolean', defaultValue, expected: 'true or false', accepts: (value) => typeof value === 'boolean' };
}

export function text(defaultValue: string, pattern: RegExp, expected: string): OptionRule<string> {
  return {
    kind: 'other',
    defaultValue,
    expected,
    accepts: (value) => typeof value === 'string' && pattern.test(value),
  };
}

export function oneOf<T extends string>(defaultValue: T, values: readonly T[], why = ''): OptionRule<T> {
  return {
    kind: 'other',
    defaultValue,
    expected: values.map((value) => JSON.stringify(value)).join(' or ') + why,
    accepts: (value) => values.some((allowed) => allowed === value),
  };
}

/** An object that has these methods; with none named, a function. */
export function implementation<T>(defaultValue: T, expected: string, ...methods: string[]): OptionRule<T> {
  return {
    kind: 'other',
    defaultValue,
    expected,
    accepts: (value) => {
      if (methods.length === 0) return typeof value === 'function';
      if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return false;
      return methods.every((method) => typeof Reflect.get(value, method) === 'function');
    },
  };
}
