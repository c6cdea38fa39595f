import type { MqEvents } from '../core/events.js';
import type { Connection } from '../redis/connection.js';
import { call } from '../redis/script.js';
import { dropDeadConsumers, page, type LivingEntry } from '../redis/scripts/pending.script.js';
import { SOURCES, type Source } from './entry.js';
import type { Lease } from './lease.js';

export interface PendingPagesDeps {
  readonly lease: Lease;
  /** This instance's name in the group. */
  readonly consumer: string;
  readonly connection: Connection;
  readonly events: MqEvents;
}

/** Of those that processes left behind; one is the rule, and a group made by another tool may have many. */
const MOST_DROPPED = 100;

/** The group's pending entries on a partition, claimed for this owner page by page, oldest first. */
export class PendingPages {
  constructor(private readonly deps: PendingPagesDeps) {}

  /**
   * Ends after the last page, or when the lease has ended. `pageSize` is asked before each page; 0 ends it too. Entries
   * that are no longer in the stream are reported.
   */
  async *of(source: Source, pageSize: () => number | Promise<number>): AsyncGenerator<readonly LivingEntry[]> {
    const { lease, connection, consumer, events } = this.deps;
    const { topic, partition, group, keys, token } = lease.terms;
    const place = { source: source === 'retry' ? keys.retryStream : keys.stream, lease: keys.lease };
    let after = '-';
    while (!lease.isEnded) {
      const count = await pageSize();
      if (count === 0) return;
      const reply = await connection.run(call(page, place, { token, group, consumer, after, count }));
      if (reply.status === 'fenced') lease.lose('taken');
      if (lease.isEnded || reply.status === 'fenced' || reply.last === null) return;
      after = `(${reply.last}`;
      if (reply.deleted.length > 0) events.emit('payloadMissing', { topic, partition, group, ids: reply.deleted });
      yield reply.entries;
    }
  }

  /** Best effort, after the last page: the names of earlier owners have nothing left to stand for. */
  forgetOthers(): void {
    const { lease, connection, consumer } = this.deps;
    const { group, keys, token } = lease.terms;
    const calls = SOURCES.map((source) =>
      call(
        dropDeadConsumers,
        { source: source === 'retry' ? keys.retryStream : keys.stream, lease: keys.lease },
        { token, group, consumer, limit: MOST_DROPPED },
      ),
    );
    connection.runAll(calls).catch(() => undefined);
  }
}
