import type { Clock } from '../core/clock.js';
import { MqError } from '../core/errors.js';
import type { GroupPartitionRef } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import type { Command } from '../redis/connection.js';
import { classifyRedisError, replyCode } from '../redis/redis-errors.js';
import { asStreams } from '../redis/reply.js';
import { ensureGroup, type EnsureGroupDeps } from './ensure-group.js';
import type { EntryQueue } from './entry-queue.js';
import { SOURCES, toEntry, type Source } from './entry.js';
import { HeldNotes } from './held-notes.js';
import type { InFlight } from './in-flight.js';
import { LedgerCheck, type RawEntries } from './ledger-check.js';
import type { Ledger } from './ledger.js';
import { PendingPages, type PendingPagesDeps } from './pending-pages.js';
import type { Settler } from './settler.js';

/**
 *     recovering --> checking --> reading --> checking      a read came, or a check was asked for
 *                        \------> hot ------> reading       reads were full; one was not
 *     reading, hot, checking ---> reopening                 the group is gone
 *     reopening ----------------> recovering | checking     it had to be made again | it was there
 *
 * recovering: what is pending is fetched page by page, oldest first, before anything new. reading: the group's reader
 * asks. hot: this partition asks by itself, without blocking, while the batch before is handled. checking: entries wait
 * until the ledger equals the server's total. Ownership may end in every state.
 */
type State = 'recovering' | 'checking' | 'reading' | 'hot' | 'reopening';

export interface PartitionIntakeDeps extends EnsureGroupDeps, PendingPagesDeps {
  readonly clock: Clock;
  readonly queue: EntryQueue;
  readonly ledger: Ledger;
  readonly settler: Settler;
  readonly inFlight: InFlight;
  /** Entries asked for by one read, of each source. */
  readonly batch: number;
  /** Entries claimed by one script of a take-over. */
  readonly pageSize: number;
  /** Whether this partition wants to be read by the group's reader has changed. */
  readonly onReadableChanged: () => void;
  /** Resolves when no read that names this partition is unanswered. */
  readonly outsideRead: () => Promise<void>;
}

/** Brings the entries of one partition into the queue, complete and in order, whoever took them meanwhile. */
export class PartitionIntake {
  private readonly stopping = new AbortController();
  private readonly backoff = new Backoff({ minMs: 50, maxMs: 5_000 });
  private readonly ref: GroupPartitionRef;
  private readonly component: string;
  private readonly pages: PendingPages;
  private readonly notes: HeldNotes;
  private readonly ledgerCheck: LedgerCheck;
  private state: State = 'recovering';
  /** Where a check leads: the last read was full, or it was not. */
  private afterCheck: 'reading' | 'hot' = 'reading';
  /** A check was asked for while one was under way. */
  private checkAgain = false;
  private wake: (() => void) | undefined;
  private onChecked: (() => void)[] = [];
  private loop: Promise<void> | undefined;
  private failure: { readonly since: number; readonly text: string } | undefined;

  constructor(private readonly deps: PartitionIntakeDeps) {
    const { topic, partition, group } = deps.lease.terms;
    this.ref = { topic, partition, group };
    this.component = `partition:${topic}:${partition}:${group}`;
    this.pages = new PendingPages(deps);
    this.notes = new HeldNotes(deps);
    this.ledgerCheck = new LedgerCheck({ ...deps, pages: this.pages, notes: this.notes, isOver: () => this.isOver });
  }

  /** Why this partition cannot be read at present, or `undefined`. */
  get failing(): string | undefined {
    return this.failure?.text;
  }

  /** How many entries of each source the group's reader may ask for now. */
  get room(): number {
    return this.state === 'reading' && !this.isOver && this.deps.queue.hasRoom ? this.deps.batch : 0;
  }

  start(): void {
    this.loop ??= this.run();
  }

  /** Fetches nothing more. */
  stop(): void {
    this.stopping.abort();
    this.ledgerCheck.reset();
    this.wakeUp();
    this.checked();
  }

  async finished(): Promise<void> {
    await this.loop;
  }

  /**
   * The reader's answer for this partition. Resolves when the ledger was compared with the server's total, or could not
   * be; the partition takes part in no other read until it was.
   */
  accept(entries: RawEntries, asked: number): Promise<void> {
    if (this.isOver || (this.state !== 'reading' && this.state !== 'checking')) return Promise.resolve();
    this.ledgerCheck.stage(entries);
    this.afterCheck = Math.max(entries.stream.length, entries.retry.length) >= asked ? 'hot' : 'reading';
    this.state = 'checking';
    const checked = new Promise<void>((resolve) => this.onChecked.push(resolve));
    this.wakeUp();
    return checked;
  }

  /** A read of this partition failed; whether it took entries is unknown. */
  readFailed(error: unknown): void {
    if (replyCode(error) === 'NOGROUP' || replyCode(error) === 'WRONGTYPE') this.groupLost();
    else this.requestCheck();
  }

  /** Compares the ledger with the server soon, outside any read. */
  requestCheck(): void {
    if (this.isOver) return;
    if (this.state === 'reading' || this.state === 'hot') {
      this.afterCheck = 'reading';
      this.become('checking');
    } else {
      this.checkAgain = true;
    }
  }

  /** Totals seen beside other traffic: a hint alone, since a read may have taken entries that are on their way. */
  pendingSeen(stream: number, retry: number): void {
    const { ledger } = this.deps;
    if (this.state !== 'reading') return;
    if (stream < 0 || retry < 0) this.groupLost();
    else if (stream !== ledger.count('stream') || retry !== ledger.count('retry')) this.requestCheck();
  }

  groupLost(): void {
    if (this.state === 'recovering' || this.state === 'reopening' || this.isOver) return;
    // What would be handled now could not be settled, and would come again.
    this.deps.queue.freeze();
    this.become('reopening');
  }

  /** The queue has run low. */
  roomCameFree(): void {
    if (this.state === 'reading') this.deps.onReadableChanged();
    else this.wakeUp();
  }

  private get isOver(): boolean {
    return this.stopping.signal.aborted || this.deps.lease.isEnded;
  }

  private become(state: State): void {
    const wasReading = this.state === 'reading';
    this.state = state;
    if (wasReading !== (state === 'reading')) this.deps.onReadableChanged();
    this.wakeUp();
  }

  private wakeUp(): void {
    const { wake } = this;
    this.wake = undefined;
    wake?.();
  }

  private woken(): Promise<void> {
    return new Promise((resolve) => (this.wake = resolve));
  }

  private checked(): void {
    for (const resolve of this.onChecked.splice(0)) resolve();
  }

  private async run(): Promise<void> {
    while (!this.isOver) {
      try {
        await this.step();
        if (this.failure !== undefined) this.recovered();
      } catch (error) {
        this.checked();
        await this.failed(error);
      }
    }
    this.checked();
  }

  private async step(): Promise<void> {
    switch (this.state) {
      case 'recovering':
        await this.recover();
        break;
      case 'checking':
        await this.check();
        break;
      case 'hot':
        if (this.deps.queue.hasRoom) await this.readHot();
        else await this.woken();
        break;
      case 'reopening':
        await this.reopen();
        break;
      case 'reading':
        await this.woken();
        break;
    }
  }

  private async failed(error: unknown): Promise<void> {
    if (this.isOver) return;
    const { events, clock, connection } = this.deps;
    const kind = classifyRedisError(error);
    if (replyCode(error) === 'NOGROUP') this.groupLost();
    const retryInMs = this.backoff.next();
    const text = replyCode(error) || (error instanceof MqError ? error.code : kind);
    this.failure = { since: this.failure?.since ?? clock.monotonic(), text };
    events.emit('fault', { component: this.component, class: kind, error, retryInMs });
    await connection.backOff(retryInMs, this.stopping.signal);
  }

  private recovered(): void {
    const { clock, events } = this.deps;
    events.emit('recovered', { component: this.component, afterMs: clock.monotonic() - this.failure!.since });
    this.failure = undefined;
    this.backoff.reset();
  }

  // ---- taking over

  private async recover(): Promise<void> {
    const group = await ensureGroup(this.deps);
    await this.notes.read();
    let count = 0;
    for (const source of SOURCES) count += await this.takeOver(source);
    if (this.isOver) return;
    if (count > 0) this.deps.events.emit('takenOver', { ...this.ref, count });
    this.pages.forgetOthers();
    // What a group that was made again will bring is not pending yet, and keeps its notes.
    if (group === 'present') this.notes.forgetSettled((id) => this.deps.ledger.has('stream', id));
    this.afterCheck = 'reading';
    this.become('checking');
  }

  /** Fetches what is pending on one source while what was fetched is being handled. Returns how many entries came. */
  private async takeOver(source: Source): Promise<number> {
    const { queue, ledger, lease, inFlight } = this.deps;
    let count = 0;
    let reserved = 0;
    const room = async (): Promise<number> => (reserved = await this.roomForPage());
    try {
      for await (const page of this.pages.of(source, room)) {
        if (this.isOver) break;
        const entries = page
          .map((raw) => this.notes.apply(toEntry(source, raw, !lease.terms.clean)))
          .filter((entry) => ledger.add(entry));
        inFlight.unreserve(reserved);
        reserved = 0;
        queue.push(entries);
        count += entries.length;
        // As the queue says when it has room again: it wakes us for nothing else.
        while (!this.isOver && !queue.hasRoom) await this.woken();
      }
    } finally {
      inFlight.unreserve(reserved);
    }
    return count;
  }

  /** As much of a page as `maxInFlight` leaves room for, once there is room; 0 when this ends meanwhile. */
  private async roomForPage(): Promise<number> {
    const { inFlight, pageSize } = this.deps;
    while (!this.isOver) {
      const granted = inFlight.reserve(pageSize);
      if (granted > 0) return granted;
      const cancel = inFlight.onRoom(() => this.wakeUp());
      await this.woken();
      cancel();
    }
    return 0;
  }

  // ---- healing

  /** A group that had to be made again has lost what was pending: everything that is not settled comes anew. */
  private async reopen(): Promise<void> {
    const { outsideRead, settler, ledger, queue } = this.deps;
    await outsideRead();
    const group = await ensureGroup(this.deps);
    if (this.isOver) return;
    if (group === 'present') {
      this.afterCheck = 'reading';
      this.become('checking');
      return;
    }
    settler.discard();
    for (const entry of ledger.entries()) if (entry.state !== 'running') ledger.remove(entry.source, entry.id);
    queue.clear();
    queue.thaw();
    this.ledgerCheck.reset();
    this.become('recovering');
  }

  // ---- reading

  /** A full batch came: the next is fetched while this one is handled, until a read is not full. */
  private async readHot(): Promise<void> {
    const { connection, lease, consumer, inFlight, settler, batch } = this.deps;
    if (!(await this.ledgerCheck.prepare()) && this.state === 'hot') this.state = 'checking';
    if (this.isOver || this.state !== 'hot') return;
    const reserved = inFlight.reserve(batch * 2);
    const asked = Math.floor(reserved / 2);
    try {
      if (asked === 0) {
        this.become('reading');
        return;
      }
      const { keys, group } = lease.terms;
      const streams = [keys.stream, keys.retryStream];
      const read: Command = ['XREADGROUP', 'GROUP', group, consumer, 'COUNT', asked, 'STREAMS', ...streams, '>', '>'];
      // Whether it takes entries is not known until it is answered: without an answer the ledger is checked.
      this.state = 'checking';
      this.afterCheck = 'reading';
      const { check, reply } = connection.inOneWrite(() => {
        settler.flush();
        return { check: settler.beginCheck(), reply: connection.pipeline([read, ...this.ledgerCheck.commands]) };
      });
      const [entries, ...totals] = await reply;
      if (!entries!.ok) throw entries!.error;
      if (this.isOver || !lease.isTrusted || this.state !== 'checking') return;
      const replies = asStreams(entries!.value);
      const stream = replies.get(keys.stream) ?? [];
      const retry = replies.get(keys.retryStream) ?? [];
      this.ledgerCheck.stage({ stream, retry });
      await check.answered;
      await this.ledgerCheck.compare(totals, check.leftOver);
      this.goOn(Math.max(stream.length, retry.length) >= asked ? 'hot' : 'reading');
    } finally {
      inFlight.unreserve(reserved);
    }
  }

  private async check(): Promise<void> {
    const { connection, settler, outsideRead } = this.deps;
    try {
      await outsideRead();
      this.checkAgain = false;
      await this.ledgerCheck.prepare();
      if (this.isOver || this.state !== 'checking') return;
      const check = settler.beginCheck();
      const totals = await connection.readAll(this.ledgerCheck.commands);
      await check.answered;
      await this.ledgerCheck.compare(totals, check.leftOver);
      this.goOn(this.afterCheck);
    } finally {
      this.checked();
    }
  }

  /** After a comparison: what was held up may be handled, unless the group was lost or another check was asked for. */
  private goOn(next: 'reading' | 'hot'): void {
    if (this.state !== 'checking') return;
    this.deps.queue.thaw();
    if (!this.checkAgain) this.become(next);
  }
}
