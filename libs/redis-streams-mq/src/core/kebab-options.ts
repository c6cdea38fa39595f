import { nearestName } from './nearest-name.js';
import { describeValue, type OptionKind } from './option-rules.js';

/** `leaseTtlSeconds` as `lease-ttl-seconds`. */
export type KebabName<S extends string> = S extends `${infer A}${infer B}`
  ? B extends Uncapitalize<B>
    ? `${Uncapitalize<A>}${KebabName<B>}`
    : `${Uncapitalize<A>}-${KebabName<B>}`
  : S;

/**
 * The options as they stand under `redis-streaming.mq` in an `application.yml`: kebab-case names, and numbers and booleans
 * also as text, as the replacement of a placeholder leaves them.
 */
export type KebabOptions<T> = {
  readonly [K in keyof T & string as KebabName<K>]?: T[K] extends string | number | boolean | undefined
    ? T[K] | string
    : T[K];
};

/** An option as it was given: `given` is the spelling that the user will look for. */
export interface GivenOption {
  readonly given: string;
  readonly value: unknown;
}

/** Options by their camelCase names, and what kept others from being among them. */
export interface NormalizedOptions {
  readonly options: ReadonlyMap<string, GivenOption>;
  /** CamelCase names of known options that a problem keeps out of `options`, so that nobody judges by their defaults. */
  readonly refused: ReadonlySet<string>;
  readonly problems: readonly string[];
}

const NUMERIC = /^[+-]?\d+(\.\d+)?$/;

export function kebabName(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** Says that an option does not exist, and which one looks most like it. */
export function unknownOption(name: string, known: Iterable<string>): string {
  const nearest = nearestName(name, known);
  return `unknown option ${describeValue(name)}; the nearest known one is ${nearest}`;
}

/**
 * The own properties of an options object, each read once.
 *
 * @returns a sentence instead when there is no such object. A promise or a map would look like one without options.
 */
export function ownOptions(input: unknown): [name: string, value: unknown][] | string {
  try {
    if (input === undefined) return 'options are undefined; pass {} for the defaults';
    const tag = Object.prototype.toString.call(input).slice('[object '.length, -1);
    if (tag === 'Object') return Object.entries(input as object);
    return `options must be a plain object; got ${tag}${tag === 'Promise' ? ', which has to be awaited' : ''}`;
  } catch {
    return 'options cannot be read: one of the properties throws';
  }
}

function fromText(text: string, kind: OptionKind): unknown {
  const trimmed = text.trim();
  if (kind === 'number' && NUMERIC.test(trimmed)) return Number(trimmed);
  if (kind === 'boolean' && /^(true|false)$/i.test(trimmed)) return trimmed.toLowerCase() === 'true';
  return text;
}

/**
 * Brings options of either spelling, also mixed, to camelCase. Text stands for numbers and booleans only under names in
 * kebab-case (a name of one word is one). Options that are `undefined` are left out. Values are not checked.
 *
 * Problems are: unknown names, an option in both spellings, `${...}` that nobody replaced, and YAML keys without a value.
 */
export function normalizeOptions(input: unknown, kinds: ReadonlyMap<string, OptionKind>): NormalizedOptions {
  const entries = ownOptions(input);
  if (typeof entries === 'string') return { options: new Map(), refused: new Set(), problems: [entries] };

  const camelNames = new Map<string, string>();
  for (const name of kinds.keys()) camelNames.set(kebabName(name), name);

  const options = new Map<string, GivenOption>();
  const spellings = new Map<string, string>();
  const refused = new Set<string>();
  const problems: string[] = [];
  const refuse = (name: string, problem: string): void => {
    refused.add(name);
    problems.push(problem);
  };
  for (const [given, value] of entries) {
    const name = camelNames.get(given) ?? given;
    const kind = kinds.get(name);
    if (kind === undefined) {
      problems.push(unknownOption(given, given.includes('-') ? camelNames.keys() : kinds.keys()));
      continue;
    }
    if (value === undefined && kind !== 'opaque') continue;

    const twin = spellings.get(name);
    spellings.set(name, given);
    if (twin !== undefined) {
      refuse(name, `${twin} and ${given} are the same option; keep one`);
    } else if (kind === 'opaque') {
      options.set(name, { given, value });
    } else if (value === null) {
      refuse(name, `${given} has no value (null); give one, or remove it for the default`);
    } else if (typeof value === 'string' && value.includes('${')) {
      refuse(name, `${given} is ${describeValue(value)}, a placeholder that was not replaced`);
    } else {
      const isText = typeof value === 'string' && camelNames.has(given);
      options.set(name, { given, value: isText ? fromText(value, kind) : value });
    }
  }
  return { options, refused, problems };
}
