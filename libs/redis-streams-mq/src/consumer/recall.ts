import type { MqEvents } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { asEntries } from '../redis/reply.js';
import type { EntryQueue } from './entry-queue.js';
import { toEntry, type Entry } from './entry.js';
import type { Lease } from './lease.js';
import type { Ledger } from './ledger.js';
import type { Settler } from './settler.js';

export interface RecallDeps {
  readonly connection: Connection;
  readonly lease: Lease;
  readonly ledger: Ledger;
  readonly settler: Settler;
  readonly events: MqEvents;
  readonly queue: EntryQueue;
}

/** Fetches what entries contain of which only the ids were kept. It goes on until it has them, or the lease or the connection has ended. */
export class Recall {
  constructor(private readonly deps: RecallDeps) {}

  async fetch(entries: readonly Entry[]): Promise<void> {
    const { connection, lease, events, queue } = this.deps;
    const { topic, partition, group, keys } = lease.terms;
    const backoff = new Backoff({ minMs: 50, maxMs: 2_000 });
    const commands = entries.map(
      ({ source, id }) => ['XRANGE', source === 'retry' ? keys.retryStream : keys.stream, id, id] as const,
    );
    while (!lease.isEnded && !connection.isDestroyed) {
      try {
        const outcomes = await connection.readAll(commands);
        const failed = outcomes.find((outcome) => !outcome.ok);
        if (failed !== undefined && !failed.ok) throw failed.error;
        if (lease.isEnded) return;
        for (const [i, entry] of entries.entries()) {
          const outcome = outcomes[i]!;
          const [raw] = outcome.ok ? asEntries(outcome.value) : [];
          if (raw === undefined || raw.fields === null) this.missing(entry);
          else queue.recalled(entry, toEntry(entry.source, { id: raw.id, fields: raw.fields }, false).fields!);
        }
        return;
      } catch (error) {
        const retryInMs = backoff.next();
        const component = `recall:${topic}:${partition}:${group}`;
        events.emit('fault', { component, class: classifyRedisError(error), error, retryInMs });
        await connection.backOff(retryInMs, lease.controller.signal);
      }
    }
  }

  /** Deleted while it waited: there is nothing left to handle. */
  private missing(entry: Entry): void {
    const { ledger, settler, events, lease, queue } = this.deps;
    const { topic, partition, group } = lease.terms;
    if (ledger.holds(entry) && entry.state === 'waiting') {
      events.emit('payloadMissing', { topic, partition, group, ids: [entry.origin] });
      settler.ack(entry);
    }
    queue.missing(entry);
  }
}
