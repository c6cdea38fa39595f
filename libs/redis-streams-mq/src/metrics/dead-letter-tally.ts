import type { DeadLetterCountReply } from '../redis/scripts/dlq.script.js';
import type { DeadLetterCount } from './cluster-sample.js';

/** What one look behind `next` has found. */
export type Counted = Pick<DeadLetterCountReply, 'length' | 'lastId' | 'isEnd'> & {
  readonly counts: readonly Pick<DeadLetterCountReply['counts'][number], 'group' | 'reason' | 'count'>[];
};

/** Reason of the letters that have not been looked at yet. */
export const UNCOUNTED = '(uncounted)';
const NOTHING = '0-0';

/**
 * Counts one partition's dead letters by group and reason from sample to sample, reading each letter once. A letter that
 * went away is noticed by the length, and counting begins anew: what is counted always adds up to the length, and needs
 * no counter that a deletion by hand would leave wrong.
 */
export class DeadLetterTally {
  private counts = new Map<string, { group: string; reason: string; count: number }>();
  private upTo = NOTHING;
  private counted = 0;
  private length = 0;

  /** Behind which letter to count next, or `null` when `length` letters are all counted. */
  next(length: number): string | null {
    this.length = length;
    if (length < this.counted) this.begin();
    if (length === 0) return null;
    // As many as before: the same, or one went and one came. Only a look behind the last can tell.
    return this.upTo;
  }

  /** Takes what was counted behind `next`. True when there is more to count now. */
  add({ length, lastId, isEnd, counts }: Counted): boolean {
    this.length = length;
    this.upTo = lastId ?? this.upTo;
    for (const { group, reason, count } of counts) {
      const kind = `${group}\0${reason}`;
      const sum = this.counts.get(kind)?.count ?? 0;
      this.counts.set(kind, { group, reason, count: sum + count });
      this.counted += count;
    }
    if (this.counted <= length) return !isEnd;
    this.begin();
    return length > 0;
  }

  /** By group and reason; together they are as many as the stream has. */
  get result(): readonly DeadLetterCount[] {
    const rest = this.length - this.counted;
    const counts = [...this.counts.values()].map((each) => ({ ...each }));
    return rest > 0 ? [...counts, { group: '', reason: UNCOUNTED, count: rest }] : counts;
  }

  private begin(): void {
    this.counts = new Map();
    this.upTo = NOTHING;
    this.counted = 0;
  }
}
