import { MqValidationError, type ValidationIssue } from './errors.js';

/**
 * A validator by the Standard Schema specification, version 1 (https://standardschema.dev): zod, valibot, arktype and
 * others are such. Only the part that is used, so that no package is needed for it.
 */
export interface StandardSchema<Output = unknown, Input = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a validator of Standard Schema answers: the value it made, or what is wrong. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | {
      readonly issues: readonly {
        readonly message: string;
        readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
      }[];
    };

/** Some schemas are functions. */
export function isStandardSchema(value: unknown): value is StandardSchema {
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return false;
  const standard: unknown = Reflect.get(value, '~standard');
  return typeof standard === 'object' && standard !== null && typeof Reflect.get(standard, 'validate') === 'function';
}

/** What the schema makes of `value`, or of a promise of it when the schema is async. */
export function validateBy(schema: StandardSchema, value: unknown): unknown {
  const result = schema['~standard'].validate(value);
  return result instanceof Promise ? result.then(valueOf) : valueOf(result);
}

/** @throws MqValidationError */
function valueOf(result: StandardResult<unknown>): unknown {
  if (result.issues === undefined) return result.value;
  throw new MqValidationError(
    result.issues.map(({ message, path = [] }): ValidationIssue => ({ path: path.map(segment).join('.'), message })),
  );
}

function segment(part: PropertyKey | { readonly key: PropertyKey }): string {
  return String(typeof part === 'object' ? part.key : part);
}
