import { isStreamId, previousStreamId } from '../core/stream-id.js';
import { invalidArgument } from './admin-deps.js';

/**
 * Where a group goes on: with the oldest message there is, behind the newest, with the message of an id (for each partition, or
 * one for all: ids are times), with the first message stored at a time or later, or `by` so many messages further on
 * (negative: back).
 */
export type ResetTarget =
  | 'earliest'
  | 'latest'
  | { readonly id: string }
  | { readonly ids: Readonly<Record<number, string>> }
  | { readonly timestamp: number | Date }
  | { readonly by: number };

/** What is wanted on one partition: a position behind which reading goes on, or a number of messages from where it is. */
export type Wanted = { readonly position: string } | { readonly by: number };

export const START = '0-0';

/** @throws MqAdminError `MQ_INVALID_ARGUMENT` */
export function wantedOn(target: ResetTarget, partition: number): Wanted {
  if (target === 'earliest') return { position: START };
  if (target === 'latest') return { position: 'latest' };
  if (typeof target === 'object' && target !== null) {
    if ('id' in target) return { position: before(target.id) };
    if ('ids' in target && typeof target.ids === 'object' && target.ids !== null) {
      const id = target.ids[partition];
      if (id === undefined)
        throw invalidArgument(`ids names no message for partition ${partition}; name its partitions, too`);
      return { position: before(id) };
    }
    if ('timestamp' in target) {
      const ms = Number(target.timestamp);
      if (!Number.isSafeInteger(ms) || ms < 0)
        throw invalidArgument('timestamp must be milliseconds since the epoch, or a Date');
      return { position: before(`${ms}-0`) };
    }
    if ('by' in target && Number.isSafeInteger(target.by)) return { by: target.by };
  }
  throw invalidArgument(
    "a position is 'earliest', 'latest', { id }, { ids }, { timestamp } or { by: an integer number of messages }",
  );
}

function before(id: unknown): string {
  if (!isStreamId(id))
    throw invalidArgument(`${JSON.stringify(id)} is not the id of a message (<milliseconds>-<sequence>)`);
  return id === START ? START : previousStreamId(id);
}
