import type { GroupPartitionRef, MqEvents } from '../core/events.js';
import type { Command } from '../redis/connection.js';
import { asArray, asNumber, type Outcome, type RawEntry, type Reply } from '../redis/reply.js';
import type { EntryQueue } from './entry-queue.js';
import { compareEntries, SOURCES, toEntry, type Entry, type Source } from './entry.js';
import type { HeldNotes } from './held-notes.js';
import type { Lease } from './lease.js';
import type { Ledger } from './ledger.js';
import type { PendingPages } from './pending-pages.js';
import type { Settler } from './settler.js';

export type RawEntries = Readonly<Record<Source, readonly RawEntry[]>>;

export interface LedgerCheckDeps {
  readonly lease: Lease;
  readonly ledger: Ledger;
  readonly queue: EntryQueue;
  readonly settler: Settler;
  readonly pages: PendingPages;
  readonly notes: HeldNotes;
  readonly events: MqEvents;
  /** Entries claimed by one script. */
  readonly pageSize: number;
  /** The ownership ends, or this partition of it: nothing more may enter the ledger. */
  readonly isOver: () => boolean;
}

/**
 * What was read waits here until the ledger equals the server's pending totals, and only then may be handled. When they
 * differ, someone else took entries: they are brought back and put in order first.
 */
export class LedgerCheck {
  private readonly ref: GroupPartitionRef;
  private staged: Entry[] = [];
  /** Totals are not enough: a repair was cut off, or it is not known which settles were done. */
  private mustRepair = false;

  constructor(private readonly deps: LedgerCheckDeps) {
    const { topic, partition, group } = deps.lease.terms;
    this.ref = { topic, partition, group };
  }

  /** The commands whose answers `compare` takes, in this order, on the connection of the settles. */
  get commands(): readonly Command[] {
    const { keys, group } = this.deps.lease.terms;
    return [
      ['XPENDING', keys.stream, group],
      ['XPENDING', keys.retryStream, group],
    ];
  }

  stage(entries: RawEntries): void {
    const { ledger, events, notes } = this.deps;
    const before = this.staged.length;
    for (const source of SOURCES) {
      for (const { id, fields } of entries[source]) {
        if (fields === null) continue;
        const entry = notes.apply(toEntry(source, { id, fields }, false));
        if (ledger.add(entry)) this.staged.push(entry);
      }
    }
    const count = this.staged.length - before;
    if (count > 0) events.emit('consumed', { ...this.ref, count });
  }

  /** Forgets what was staged: the ownership ends, or the group has to be read anew. */
  reset(): void {
    this.staged = [];
    this.mustRepair = false;
  }

  /** Before a read or a check: learns what became of settles without an answer. False when that is not known even now. */
  async prepare(): Promise<boolean> {
    if (await this.deps.settler.makeSure()) return true;
    this.mustRepair = true;
    return false;
  }

  /** Lets what was staged into the queue. `leftOver`: what the totals still count although it has left the ledger since they were asked for. */
  async compare(totals: readonly Outcome<Reply>[], leftOver: Readonly<Record<Source, number>>): Promise<void> {
    const { ledger, queue, isOver } = this.deps;
    const [stream, retry] = totals.map((total) => {
      if (!total.ok) throw total.error;
      return asNumber(asArray(total.value)[0]);
    });
    if (isOver()) return;
    const matches =
      stream === ledger.count('stream') + leftOver.stream && retry === ledger.count('retry') + leftOver.retry;
    if (!matches || this.mustRepair) await this.repair();
    // Whether the lease is still trusted is looked at before each handler starts.
    if (isOver()) return;
    queue.push(this.staged);
    // Emptied, and not only replaced: see `EntryQueue.passHead`.
    this.staged.length = 0;
  }

  /**
   * Brings back what is pending but not held, and forgets what is held but no longer pending, before anything else
   * starts. The handler that runs goes on; its outcome waits until this is done. What others took was pending all along,
   * so it is fetched whatever `maxInFlight` says.
   */
  private async repair(): Promise<void> {
    const { queue, settler, ledger, events, isOver } = this.deps;
    // Until a comparison succeeds: a repair that fails half way must not let later entries pass.
    queue.freeze();
    this.mustRepair = true;
    try {
      await settler.settled();
      settler.freeze();
      const { pending, brought } = await this.readPending();
      if (isOver()) return;
      this.mustRepair = false;
      settler.learned((entry) => pending.has(nameOf(entry)));
      let dropped = 0;
      for (const entry of ledger.entries()) {
        if (entry.state === 'running' || pending.has(nameOf(entry))) continue;
        ledger.remove(entry.source, entry.id);
        if (entry.state === 'waiting' || entry.state === 'held') dropped++;
        if (entry.state === 'held') queue.free(entry);
      }
      this.staged = [];
      queue.replace([...ledger.entries()].filter((entry) => entry.state === 'waiting').sort(compareEntries));
      if (brought + dropped > 0) events.emit('ledgerRepaired', { ...this.ref, brought, dropped });
    } finally {
      settler.thaw();
    }
  }

  private async readPending(): Promise<{ readonly pending: ReadonlySet<string>; readonly brought: number }> {
    const { pages, ledger, pageSize, isOver, notes } = this.deps;
    const pending = new Set<string>();
    let brought = 0;
    for (const source of SOURCES) {
      for await (const page of pages.of(source, () => (isOver() ? 0 : pageSize))) {
        if (isOver()) break;
        for (const raw of page) {
          const entry = notes.apply(toEntry(source, raw, false));
          pending.add(nameOf(entry));
          if (ledger.add(entry)) brought++;
        }
      }
    }
    return { pending, brought };
  }
}

function nameOf({ source, id }: Entry): string {
  return `${source}/${id}`;
}
