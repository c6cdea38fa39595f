import type { DeadReason } from '../core/events.js';
import type { CheckedFilter } from './dead-letter-filter.js';
import type { DeadLetterReader } from './dead-letter-reader.js';

/** How many dead letters one group has. */
export interface DeadLetterGroupCount {
  readonly group: string;
  readonly total: number;
  /** When the first of them failed, in milliseconds. */
  readonly oldestFailedAt: number;
  readonly reasons: Readonly<Partial<Record<DeadReason, number>>>;
}

/** How many dead letters there are. */
export interface DeadLetterCounts {
  readonly total: number;
  /** By name. */
  readonly groups: readonly DeadLetterGroupCount[];
  /** False when there are more letters than one call looks at. */
  readonly isComplete: boolean;
}

/** Partition by partition, so that one call costs Redis no more than one script at a time. */
export async function countLetters(
  reader: DeadLetterReader,
  topic: string,
  partitionCount: number,
  filter: CheckedFilter,
  most: number,
): Promise<DeadLetterCounts> {
  const groups = new Map<string, { total: number; oldest: number; reasons: Map<string, number> }>();
  let total = 0;
  let looked = 0;
  let isComplete = true;
  for (let partition = 0; partition < partitionCount; partition++) {
    if (looked >= most) isComplete = false;
    if (!isComplete) break;
    for await (const reply of reader.counts(topic, partition, filter, most - looked)) {
      looked += reply.looked;
      isComplete = reply.isEnd;
      for (const { group, reason, count, oldest } of reply.counts) {
        const known = groups.get(group) ?? { total: 0, oldest: Infinity, reasons: new Map<string, number>() };
        known.total += count;
        known.oldest = Math.min(known.oldest, oldest);
        known.reasons.set(reason, (known.reasons.get(reason) ?? 0) + count);
        groups.set(group, known);
        total += count;
      }
    }
  }
  return {
    total,
    groups: [...groups]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([group, { total: ofGroup, oldest, reasons }]) => ({
        group,
        total: ofGroup,
        oldestFailedAt: oldest,
        reasons: Object.fromEntries(reasons) as Partial<Record<DeadReason, number>>,
      })),
    isComplete,
  };
}
