import { pause, type Clock } from '../core/clock.js';
import { Backoff } from '../core/retry-policy.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call as scriptCall } from '../redis/script.js';
import { markCrash, unmarkCrash } from '../redis/scripts/pending.script.js';
import type { Baton } from './baton.js';
import { BatchFill } from './batch-fill.js';
import type { HandlerGate } from './handler-gate.js';
import type { EntryQueue } from './entry-queue.js';
import type { Entry } from './entry.js';
import type { InFlight } from './in-flight.js';
import type { RateLimiter } from './rate-limiter.js';
import type { Slots } from './slots.js';
import type { Turns } from './turns.js';
import type { MessageRunner, RunReport } from './message-runner.js';
import { Outcomes, type OutcomesDeps, type Pending } from './outcomes.js';

export interface PartitionWorkerDeps extends OutcomesDeps {
  readonly queue: EntryQueue;
  readonly runner: MessageRunner;
  readonly inFlight: InFlight;
  /** How many handlers may run at once in the instance. */
  readonly slots: Slots;
  readonly turns: Turns;
  readonly baton: Baton;
  /** Closed while the handler is paused. */
  readonly gate: HandlerGate;
  /** Shared by all partitions of the handler. */
  readonly rateLimiter?: RateLimiter | undefined;
  readonly connection: Connection;
  readonly clock: Clock;
  readonly ackFlushMs: number;
}

/** A handler call longer than this is followed by its acknowledgement before the next one starts. */
const FAST_HANDLER_MS = 1;
/** One that is over so soon has waited for nothing. */
const IMMEDIATE_HANDLER_MS = 0.05;
/**
 * So long a worker keeps its slot for fast calls although others wait. With one message at a time in turn the acknowledgements
 * of many partitions would travel one by one.
 */
const BURST_MS = 10;
/** How often a worker that starts nothing looks whether settles are answered again. */
const STALL_LOOK_MS = 20;
/** Deaths of owners after which an entry is taken for their cause. */
const MAX_CRASHES = 3;
/** Suspects that are marked by one script. */
const MARKED_AT_ONCE = 100;
/** Of the suspects that this ownership marked, the last so many may not be settled yet. */
const MARKS_KEPT = 3 * MARKED_AT_ONCE;
/** A lease that is noticed so late to have ended was held by a process that stood still: perhaps because of its message. */
const STOOD_STILL_MS = 500;

/** A call of the handler, from when its entry, or its batch, was taken until no code of the user runs for it any more. */
interface Call {
  readonly entries: readonly Entry[];
  /** When the handler was called, on the monotonic clock. */
  since: number | null;
  /** When its time was over, for one that has not ended yet. */
  overrunSince: number | null;
  /** The end of its code then. */
  ended: Promise<void> | null;
  /** For each entry, where there is something to wait for; `null`: for none. */
  settled: Pending[] | null;
}

/** Handles the entries of one partition in the order of the queue, `concurrency` at once, and says what became of each. */
export class PartitionWorker {
  private readonly stopping = new AbortController();
  private readonly component: string;
  private readonly concurrency: number;
  private readonly outcomes: Outcomes;
  /** Of a handler of batches. */
  private readonly fill: BatchFill | null;
  /** In the order of their starts. One as a rule, and a set allocates with every few that come and go. */
  private readonly calls: Call[] = [];
  /** Those that the loop does not wait for, and the code that runs although its time is over. */
  private readonly unfinished = new Set<Promise<void>>();
  private wasFast = true;
  private wasImmediate = true;
  /** Of a worker that handles one message after the other: kept from one to the next, while they are fast. */
  private hasSlot = false;
  private slotSince = 0;
  private loop: Promise<void> | undefined;
  private marked: string[] = [];

  constructor(private readonly deps: PartitionWorkerDeps) {
    const { topic, partition, group } = deps.lease.terms;
    this.component = `worker:${topic}:${partition}:${group}`;
    this.concurrency = deps.handler.options.concurrency;
    this.outcomes = new Outcomes(deps);
    const { batch } = deps.handler.options;
    this.fill = batch === undefined ? null : new BatchFill({ ...deps, limits: batch });
  }

  /** For how long a handler has overrun its time without ending, in milliseconds, or `null`. */
  get stuckForMs(): number | null {
    return this.longestSince('overrunSince');
  }

  /** For how long the oldest handler call that has not ended has been running, in milliseconds, or `null`. */
  get busyForMs(): number | null {
    return this.longestSince('since');
  }

  /** Whether a call runs, or is being begun. */
  get isBusy(): boolean {
    return this.calls.length > 0;
  }

  start(): void {
    this.loop ??= this.run();
  }

  /** Starts nothing more. The handlers that run go on; `finished` waits for them. */
  stop(): void {
    this.stopping.abort();
    this.deps.queue.notify();
  }

  /** The ownership has ended and the process has not: it did not die on what it was handling. Best effort. */
  takeBackMarks(): void {
    const { lease, connection } = this.deps;
    const ids = this.marked.splice(0);
    if (ids.length === 0 || lease.overdueMs > STOOD_STILL_MS) return;
    const { keys, epoch } = lease.terms;
    connection.run(scriptCall(unmarkCrash, keys, { epoch }, ids)).catch(() => undefined);
  }

  /** Resolves when no code of the user runs for this partition any more. */
  async finished(): Promise<void> {
    await this.loop;
    while (this.unfinished.size > 0) await Promise.all(this.unfinished);
  }

  private get isOver(): boolean {
    return this.stopping.signal.aborted || this.deps.lease.isEnded;
  }

  private longestSince(what: 'since' | 'overrunSince'): number | null {
    let oldest = Infinity;
    for (const call of this.calls) oldest = Math.min(oldest, call[what] ?? Infinity);
    return oldest === Infinity ? null : this.deps.clock.monotonic() - oldest;
  }

  private async run(): Promise<void> {
    const { queue, settler, slots, turns, baton, clock, ackFlushMs, rateLimiter, gate } = this.deps;
    /** It was this worker's turn with the rate limiter; those who wait there still do not go before it. */
    let hasWaited = false;
    while (!this.isOver) {
      const isQueueEmpty = queue.peek() === undefined;
      if (isQueueEmpty || !this.mayStart()) {
        if (isQueueEmpty) this.flushUnlessFast();
        this.giveSlot();
        await queue.changed();
        continue;
      }
      // Read once for all that is looked at before a message is taken; nothing is waited for in between.
      const now = clock.monotonic();
      if (!this.wasFast || now - this.slotSince > BURST_MS) this.giveSlot();
      if (settler.isStalledAt(now)) {
        this.giveSlot();
        await pause(clock, STALL_LOOK_MS, this.stopping.signal);
        continue;
      }
      if (turns.isOverAt(now)) {
        await turns.next();
        continue;
      }
      if (!gate.isOpen) {
        this.giveSlot();
        settler.flush();
        await gate.opened(this.stopping.signal);
        continue;
      }
      const fillMs = this.fill === null ? 0 : this.fill.waitsMs;
      if (fillMs > 0) {
        this.giveSlot();
        settler.flush();
        await this.fill!.more(fillMs);
        continue;
      }
      if (rateLimiter !== undefined && !hasWaited && !rateLimiter.isFree) {
        this.giveSlot();
        settler.flush();
        await rateLimiter.free(this.stopping.signal);
        hasWaited = true;
        continue;
      }
      if (!this.hasSlot) {
        if (!slots.tryTake()) {
          this.flushUnlessFast();
          if (!(await slots.take(this.stopping.signal))) break;
        }
        this.hasSlot = true;
        this.slotSince = now;
      }
      if (this.concurrency > 1 || !this.wasImmediate) {
        baton.give(this);
      } else if (!baton.tryTake(this)) {
        await baton.take(this);
        this.slotSince = clock.monotonic();
        continue;
      }
      const entries = this.takeNow();
      hasWaited = false;
      if (entries === undefined) {
        this.giveSlot();
        continue;
      }
      settler.flushIfOlderThan(this.wasFast ? ackFlushMs : 0, now);
      const handled = this.handleSafely(entries);
      if (this.concurrency === 1) {
        await handled;
      } else {
        this.hasSlot = false;
        this.keepUntilEnded(handled.finally(() => slots.give()));
      }
    }
    this.giveSlot();
    settler.flush();
  }

  /** After fast handlers the acknowledgements wait for their time, or travel with the next read. */
  private flushUnlessFast(): void {
    if (!this.wasFast || this.deps.ackFlushMs === 0) this.deps.settler.flush();
  }

  private giveSlot(): void {
    if (!this.hasSlot) return;
    this.hasSlot = false;
    this.deps.baton.give(this);
    this.deps.slots.give();
  }

  /** Everything may have changed while this waited for its turn, and the process may have been frozen. */
  private takeNow(): readonly Entry[] | undefined {
    const { lease, queue, rateLimiter, gate } = this.deps;
    if (this.isOver || !gate.isOpen) return undefined;
    if (!lease.isTrusted) {
      lease.lose('expired');
      return undefined;
    }
    if (queue.peek() === undefined || !this.mayStart() || rateLimiter?.tryTake() === false) return undefined;
    const entry = queue.take()!;
    if (this.fill === null) return [entry];
    return [entry, ...this.fill.rest(entry, () => rateLimiter?.tryTake() !== false)];
  }

  /**
   * A call that has overrun its time keeps its place until the code has really ended. What an owner may have died on runs
   * with nothing else of the partition beside it, so that the right one is blamed if it happens again.
   */
  private mayStart(): boolean {
    const { calls, concurrency } = this;
    if (calls.length === 0) return true;
    if (calls.length >= concurrency) return false;
    const inTime = calls.filter((call) => call.overrunSince === null);
    if (inTime.length === 0) return true;
    return this.deps.queue.peek()?.suspect !== true && !inTime.some((call) => call.entries[0]!.suspect);
  }

  private keepUntilEnded(work: Promise<void>): void {
    const kept = work.finally(() => {
      this.unfinished.delete(kept);
      this.deps.queue.notify();
    });
    this.unfinished.add(kept);
  }

  /** Whatever goes wrong here, the loop goes on; the entry stays pending and the next owner, or a restart, meets it. */
  private async handleSafely(entries: readonly Entry[]): Promise<void> {
    const { events, clock, runner, desk } = this.deps;
    const call: Call = { entries, since: null, overrunSince: null, ended: null, settled: null };
    this.calls.push(call);
    try {
      const entry = entries[0]!;
      if (this.fill === null && desk === undefined && (!entry.suspect || entry.isMarked)) {
        // What `handle` does, for nearly all messages, without a function to wait for.
        entry.state = 'running';
        call.since = clock.monotonic();
        const report = await runner.run(entry);
        this.noteEnd(call, report);
        const settled = this.outcomes.settle(entry, report);
        if (settled !== null) call.settled = [settled];
      } else {
        await this.handle(call);
      }
    } catch (error) {
      events.emit('fault', { component: this.component, class: 'unexpected', error, retryInMs: 0 });
    }
    if (call.ended === null) {
      this.ended(call);
    } else {
      const ended = (): void => this.ended(call);
      this.keepUntilEnded(call.ended.then(ended, ended));
    }
  }

  private ended(call: Call): void {
    const { calls } = this;
    if (calls.length === 1) calls.pop();
    else calls.splice(calls.indexOf(call), 1);
    for (let i = 0; i < call.entries.length; i++) {
      const entry = call.entries[i]!;
      const settled = call.settled?.[i] ?? null;
      if (settled === null) this.deps.queue.free(entry);
      else void settled.then((heldForMs) => this.settled(entry, heldForMs));
    }
  }

  private settled(entry: Entry, heldForMs: number | null): void {
    const { queue } = this.deps;
    if (this.isOver) return;
    if (heldForMs === null) {
      queue.free(entry);
    } else {
      // Whatever ended earlier owners, it was not this entry.
      entry.suspect = false;
      queue.holdBack(entry, heldForMs);
    }
  }

  private async handle(call: Call): Promise<void> {
    const { clock, runner, desk } = this.deps;
    const { entries } = call;
    // What an owner may have died on, and a dead letter, comes alone.
    const entry = entries[0]!;
    for (const each of entries) each.state = 'running';
    if (entry.suspect && !entry.isMarked && !(await this.markSuspects(call, entry))) return;
    const letter = await desk?.open(entry, this.stopping.signal);
    if (letter === null) entry.state = 'waiting';
    if (letter === 'skip') this.deps.settler.ack(entry);
    if (letter === null || letter === 'skip') return;
    call.since = clock.monotonic();
    if (this.fill !== null) {
      const reports = await runner.runBatch(entries);
      this.noteEnd(call, reports[0]!);
      call.settled = entries.map((each, i) => this.outcomes.settle(each, reports[i]!));
      return;
    }
    const report = await (letter === undefined ? runner.run(entry) : runner.runLetter(entry, letter));
    this.noteEnd(call, report);
    if (letter !== undefined && report.result.type === 'success') await this.handledLetter(entry);
    else call.settled = [this.outcomes.settle(entry, report)];
  }

  private noteEnd(call: Call, { ended, tookMs }: RunReport): void {
    this.wasFast = tookMs <= FAST_HANDLER_MS;
    this.wasImmediate = tookMs <= IMMEDIATE_HANDLER_MS;
    if (ended === null) return;
    call.ended = ended;
    call.overrunSince = this.deps.clock.monotonic();
  }

  private async handledLetter(entry: Entry): Promise<void> {
    const { desk, lease, settler } = this.deps;
    const isDone = await desk!.handled(entry, lease.controller.signal);
    if (isDone && !lease.isEnded) settler.ack(entry);
    else entry.state = 'waiting';
  }

  /**
   * Before an entry is handled that an owner may have died on, this is noted in Redis; for those behind it that nobody has
   * noted before in the same step, as a round trip for each would be most of a take-over. False when the entry is not to be
   * handled: owners have died on it too often, or the lease is gone.
   */
  private async markSuspects(call: Call, entry: Entry): Promise<boolean> {
    const { lease, connection, events, settler, queue } = this.deps;
    const { keys, token, epoch } = lease.terms;
    // Sent before the mark, on the same connection: if this entry kills the process, the ones before it are settled.
    settler.flush();
    const entries = [entry, ...queue.suspects(MARKED_AT_ONCE - 1)];
    const ids = entries.map(({ id }) => id);
    this.marked.push(...ids);
    if (this.marked.length > MARKS_KEPT) this.marked = this.marked.slice(-MARKS_KEPT);
    const backoff = new Backoff({ minMs: 50, maxMs: 2_000 });
    while (!this.isOver) {
      try {
        const mark = await connection.run(scriptCall(markCrash, keys, { token, epoch }, ids));
        if (mark.status === 'fenced') {
          lease.lose('taken');
          return false;
        }
        for (const each of entries.slice(0, mark.marked)) each.isMarked = true;
        if (mark.deaths < MAX_CRASHES) {
          if (!lease.isTrusted) lease.lose('expired');
          // Stopped meanwhile: nothing more is begun, and the next owner has it.
          if (this.isOver) break;
          return true;
        }
        const error = new Error(`${mark.deaths} owners ended while they handled this message`);
        call.settled = [this.outcomes.bury(entry, null, entry.attemptsMade, 'crash-loop', error)];
        return false;
      } catch (error) {
        const retryInMs = backoff.next();
        events.emit('fault', { component: this.component, class: classifyRedisError(error), error, retryInMs });
        await connection.backOff(retryInMs, this.stopping.signal);
      }
    }
    entry.state = 'waiting';
    return false;
  }
}
