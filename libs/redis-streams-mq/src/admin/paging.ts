import { invalidArgument } from './admin-deps.js';

/** One page of a list. */
export interface Page<T> {
  readonly items: readonly T[];
  /** For the next page; `null` after the last. A page may have fewer items than asked for, or none, and not be the last. */
  readonly cursor: string | null;
}

/** Which page of a list. */
export interface PageOptions {
  /** Items a page, 1 to 1000. @defaultValue 50 */
  readonly limit?: number;
  /** The `cursor` of the page before. */
  readonly cursor?: string;
}

const MAX_LIMIT = 1_000;

/** @throws MqAdminError `MQ_INVALID_ARGUMENT` */
export function limitOf(limit: number | undefined, name: string = 'limit', max: number = MAX_LIMIT): number {
  if (limit === undefined) return Math.min(50, max);
  if (Number.isInteger(limit) && limit >= 1 && limit <= max) return limit;
  throw invalidArgument(`${name} must be an integer from 1 to ${max}`);
}

export function badCursor(cursor: unknown): Error {
  return invalidArgument(`${JSON.stringify(cursor)} is not a cursor of this list`);
}
