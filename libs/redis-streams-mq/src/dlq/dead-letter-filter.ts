import { MqAdminError } from '../core/errors.js';
import { DEAD_REASONS, type DeadReason } from '../core/events.js';
import { assertGroupName } from '../core/names.js';
import type { Arg } from '../redis/reply.js';
import { conditionArgs, type DeadLetterCondition } from '../redis/scripts/dlq.script.js';

/** Which letters; all that is given must hold. */
export interface DeadLetterFilter {
  /** Only those of this group. */
  readonly group?: string;
  /** Only those that died for this reason, or for one of these. */
  readonly reason?: DeadReason | readonly DeadReason[];
  /** Only those that failed at this time (milliseconds or Date, by the server's clock) or later. */
  readonly failedFrom?: number | Date;
  /** Only those that failed at this time or before. */
  readonly failedTo?: number | Date;
  /** Only those whose error, `Name: message`, contains this text, in upper or lower case (of A to Z). */
  readonly errorText?: string;
  /** Only those of messages with this key. */
  readonly key?: string;
}

/** A filter as the scripts take it. */
export interface CheckedFilter {
  readonly group: string | undefined;
  readonly failedFrom: Arg;
  readonly failedTo: Arg;
  readonly conditions: readonly Arg[];
}

const KNOWN: ReadonlySet<string> = new Set(['group', 'reason', 'failedFrom', 'failedTo', 'errorText', 'key']);

export function invalid(message: string): MqAdminError {
  return new MqAdminError('MQ_INVALID_ARGUMENT', message);
}

/**
 * Checks the filter part of what was given; `others` are the names of options that may stand beside it.
 * @throws MqAdminError `MQ_INVALID_ARGUMENT`, MqInvalidNameError
 */
export function checkFilter(filter: DeadLetterFilter, others: readonly string[] = []): CheckedFilter {
  if (typeof filter !== 'object' || filter === null) throw invalid('the options must be an object');
  // A misspelled condition would make a deletion meet every letter.
  const unknown = Object.keys(filter).find((name) => !KNOWN.has(name) && !others.includes(name));
  if (unknown !== undefined) throw invalid(`unknown option ${JSON.stringify(unknown)}`);
  const { group, key, errorText } = filter;
  const conditions: (readonly [DeadLetterCondition, string])[] = [];
  if (group !== undefined) {
    assertGroupName(group);
    conditions.push(['group', group]);
  }
  for (const reason of reasonsOf(filter)) conditions.push(['reason', reason]);
  if (key !== undefined) {
    if (typeof key !== 'string') throw invalid('key must be a string');
    conditions.push(['key', key]);
  }
  if (errorText !== undefined) {
    if (typeof errorText !== 'string' || errorText === '' || errorText.length > 1_000)
      throw invalid('errorText must be a text of 1 to 1000 characters');
    conditions.push(['errorText', errorText]);
  }
  const failedFrom = timeOf('failedFrom', filter.failedFrom);
  const failedTo = timeOf('failedTo', filter.failedTo);
  if (failedFrom !== '' && failedTo !== '' && failedFrom > failedTo) throw invalid('failedFrom is after failedTo');
  return { group, failedFrom, failedTo, conditions: conditionArgs(conditions) };
}

function reasonsOf({ reason }: DeadLetterFilter): readonly DeadReason[] {
  if (reason === undefined) return [];
  const reasons = (Array.isArray(reason) ? reason : [reason]) as readonly DeadReason[];
  if (reasons.length === 0) throw invalid('reason is an empty list');
  const unknown = reasons.find((each) => !DEAD_REASONS.includes(each));
  if (unknown === undefined) return reasons;
  throw invalid(`reason ${JSON.stringify(unknown)} is none of ${DEAD_REASONS.join(', ')}`);
}

function timeOf(name: string, time: unknown): number | '' {
  if (time === undefined) return '';
  const ms = time instanceof Date ? time.getTime() : time;
  if (typeof ms === 'number' && ms >= 0 && ms <= 8.64e15) return Math.round(ms);
  throw invalid(`${name} must be a Date or milliseconds since 1970`);
}
