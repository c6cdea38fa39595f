import type { Clock } from '../core/clock.js';
import type { Connection } from '../redis/connection.js';
import { call } from '../redis/script.js';
import { dropHeld, heldNotes } from '../redis/scripts/hold.script.js';
import type { Entry } from './entry.js';
import type { Lease } from './lease.js';

interface Note {
  readonly attempts: number;
  /** On the monotonic clock. */
  readonly notBefore: number;
}

export interface HeldNotesDeps {
  readonly lease: Lease;
  readonly connection: Connection;
  readonly clock: Clock;
}

/** What the owner before noted of failed entries that stay in their place: how often they were tried, and when they are due. */
export class HeldNotes {
  private notes = new Map<string, Note>();

  constructor(private readonly deps: HeldNotesDeps) {}

  /** Before the pending entries are read, so that none of them begins anew. */
  async read(): Promise<void> {
    const { lease, connection, clock } = this.deps;
    const { keys, token } = lease.terms;
    const reply = await connection.run(call(heldNotes, keys, { token }));
    if (reply.status === 'fenced') {
      lease.lose('taken');
      return;
    }
    const now = clock.monotonic();
    this.notes = new Map(
      reply.notes.map(({ id, attempts, due }) => [id, { attempts, notBefore: now + Math.max(0, due - reply.now) }]),
    );
  }

  /** An entry that is met for the first time goes on where the owner before was. */
  apply(entry: Entry): Entry {
    const note = this.notes.size === 0 || entry.source === 'retry' ? undefined : this.notes.get(entry.id);
    if (note !== undefined) {
      entry.attemptsMade = note.attempts;
      entry.notBefore = note.notBefore;
    }
    return entry;
  }

  /** Best effort, when all that is pending is known: what someone settled past us has left its note behind. */
  forgetSettled(isPending: (id: string) => boolean): void {
    const { lease, connection } = this.deps;
    const { keys, token, group } = lease.terms;
    const settled = [...this.notes.keys()].filter((id) => !isPending(id));
    if (settled.length === 0) return;
    connection.run(call(dropHeld, { ...keys, source: keys.stream }, { token, group }, settled)).catch(() => undefined);
  }
}
