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
  readonly attemptsMade: number;
  readonly fields: readonly Buffer[];
  /** It was pending when an owner ended without releasing: that owner may have died on it. */
  readonly suspect: boolean;
  state: 'waiting' | 'running' | 'settling';
}

/** `null` for a retry entry that does not begin as the mover writes it; the fields are then a foreign entry's. */
export function toEntry(source: Source, raw: LivingEntry, suspect: boolean): Entry {
  if (source === 'stream') {
    return { source, id: raw.id, origin: raw.id, attemptsMade: 0, fields: raw.fields, suspect, state: 'waiting' };
  }
  const [originName, origin, attemptName, attempts] = raw.fields;
  const made = Number(attempts?.toString('latin1'));
  const ours = originName?.toString('latin1') === 'origin' && attemptName?.toString('latin1') === 'attempt';
  if (!ours || !Number.isSafeInteger(made) || made < 0) {
    return { source, id: raw.id, origin: raw.id, attemptsMade: 0, fields: raw.fields, suspect, state: 'waiting' };
  }
  return {
    source,
    id: raw.id,
    origin: origin!.toString('latin1'),
    attemptsMade: made,
    fields: raw.fields.slice(4),
    suspect,
    state: 'waiting',
  };
}

/** Retries come first: they are older than anything new. Within a source, in the order of ids. */
export function compareEntries(a: Entry, b: Entry): number {
  if (a.source !== b.source) return a.source === 'retry' ? -1 : 1;
  return compareStreamIds(a.id, b.id);
}
