import { withSharedNames } from '../core/message.js';
import { parseRetryEntry } from '../core/retry-entry.js';
import { compareStreamIds } from '../core/stream-id.js';
import type { LivingEntry } from '../redis/scripts/pending.script.js';

/** Where an entry is pending: the partition's stream, or the group's own retry stream. */
export type Source = 'stream' | 'retry';

export const SOURCES: readonly Source[] = ['retry', 'stream'];

/** One pending entry that this owner holds in memory. */
export interface Entry {
  readonly source: Source;
  /** Id on its source: by it the entry is settled. */
  readonly id: string;
  /** Id of the original entry on the partition's stream. */
  readonly origin: string;
  /** Handler calls made before, by this group. */
  attemptsMade: number;
  /** `null` while it is shelved: it waits behind a failing entry with its id alone, see ledger.ts. Empty once it was handled. */
  fields: readonly Buffer[] | null;
  /** It was pending when an owner ended without releasing: that owner may have died on it. */
  suspect: boolean;
  /** This ownership has noted, for the case of its own death, that it is about to handle it. */
  isMarked: boolean;
  /** `held`: it failed, and waits in its place for its next try. */
  state: 'waiting' | 'running' | 'settling' | 'held';
  /** Not to be handled before, on the monotonic clock. */
  notBefore: number;
  /** What it must not be handled beside, see lane-rule.ts; `undefined`: nothing waits for it. */
  lane: string | undefined;
}

export function toEntry(source: Source, { id, fields }: LivingEntry, suspect: boolean): Entry {
  const retried = source === 'retry' ? parseRetryEntry(fields) : null;
  return {
    source,
    id,
    origin: retried?.origin ?? id,
    attemptsMade: retried?.attemptsMade ?? 0,
    fields: withSharedNames(retried?.fields ?? fields),
    suspect,
    isMarked: false,
    state: 'waiting',
    notBefore: 0,
    lane: undefined,
  };
}

/** Retries come first: they are older than anything new. Within a source, in the order of ids. */
export function compareEntries(a: Entry, b: Entry): number {
  if (a.source !== b.source) return a.source === 'retry' ? -1 : 1;
  return compareStreamIds(a.id, b.id);
}
