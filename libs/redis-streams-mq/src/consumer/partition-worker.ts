import { pause, type Clock } from '../core/clock.js';
import type { GroupPartitionRef, MqEvents } from '../core/events.js';
import type { HandlerDefinition } from '../core/handler.js';
import { decideRetry } from '../core/retry-decision.js';
import { Backoff } from '../core/retry-policy.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call } from '../redis/script.js';
import { markCrash, unmarkCrash } from '../redis/scripts/pending.script.js';
import { deadLetterMetadata } from './dead-letter-metadata.js';
import type { EntryQueue } from './entry-queue.js';
import type { Entry } from './entry.js';
import type { RateLimiter } from './rate-limiter.js';
import type { Slots } from './slots.js';
import type { Turns } from './turns.js';
import type { Lease } from './lease.js';
import type { MessageRunner, RunReport } from './message-runner.js';
import type { Settler } from './settler.js';

export interface PartitionWorkerDeps {
  readonly handler: HandlerDefinition;
  readonly lease: Lease;
  readonly queue: EntryQueue;
  readonly settler: Settler;
  readonly runner: MessageRunner;
  /** How many handlers may run at once in the instance. */
  readonly slots: Slots;
  readonly turns: Turns;
  /** Shared by all partitions of the handler. */
  readonly rateLimiter?: RateLimiter | undefined;
  readonly connection: Connection;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly random: () => number;
  readonly ackFlushMs: number;
}

/** A handler call longer than this is followed by its acknowledgement before the next one starts. */
const FAST_HANDLER_MS = 1;
/** How often a worker that starts nothing looks whether settles are answered again. */
const STALL_LOOK_MS = 20;
/** Deaths of owners after which an entry is taken for their cause. */
const MAX_CRASHES = 3;
/** Of the suspects that this ownership marked, the last so many may not be settled yet. */
const MARKS_KEPT = 100;
/** A lease that is noticed so late to have ended was held by a process that stood still: perhaps because of its message. */
const STOOD_STILL_MS = 500;

/** Handles the entries of one partition one by one, in the order of the queue, and says what became of each. */
export class PartitionWorker {
  private readonly stopping = new AbortController();
  private readonly ref: GroupPartitionRef;
  private readonly component: string;
  /** A handler that has not ended although its time is over. */
  private zombie: Promise<void> | null = null;
  private zombieSince = 0;
  /** Since when code of the user runs, on the monotonic clock. */
  private busySince: number | null = null;
  private loop: Promise<void> | undefined;
  private marked: string[] = [];

  constructor(private readonly deps: PartitionWorkerDeps) {
    const { topic, partition, group } = deps.lease.terms;
    this.ref = { topic, partition, group };
    this.component = `worker:${topic}:${partition}:${group}`;
  }

  /** For how long a handler has overrun its time without ending, in milliseconds, or `null`. */
  get stuckForMs(): number | null {
    return this.zombie === null ? null : this.deps.clock.monotonic() - this.zombieSince;
  }

  /** For how long the handler call that has not ended has been running, in milliseconds, or `null`. */
  get busyForMs(): number | null {
    return this.busySince === null ? null : this.deps.clock.monotonic() - this.busySince;
  }

  start(): void {
    this.loop ??= this.run();
  }

  /** Starts nothing more. The handler that runs goes on; `finished` waits for it. */
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
    connection.run(call(unmarkCrash, keys, { epoch }, ids)).catch(() => undefined);
  }

  /** Resolves when no code of the user runs for this partition any more. */
  async finished(): Promise<void> {
    await this.loop;
    await this.zombie;
  }

  private get isOver(): boolean {
    return this.stopping.signal.aborted || this.deps.lease.isEnded;
  }

  private async run(): Promise<void> {
    const { queue, settler, slots, turns, lease, clock, ackFlushMs, rateLimiter } = this.deps;
    let wasFast = true;
    /** It was this worker's turn with the rate limiter; those who wait there still do not go before it. */
    let hasWaited = false;
    while (!this.isOver) {
      if (!queue.isReady) {
        settler.flush();
        await queue.changed();
        continue;
      }
      if (settler.isStalled) {
        await pause(clock, STALL_LOOK_MS, this.stopping.signal);
        continue;
      }
      if (turns.isOver) {
        await turns.next();
        continue;
      }
      if (rateLimiter !== undefined && !hasWaited && !rateLimiter.isFree) {
        settler.flush();
        await rateLimiter.free(this.stopping.signal);
        hasWaited = true;
        continue;
      }
      if (!slots.tryTake()) {
        settler.flush();
        if (!(await slots.take(this.stopping.signal))) break;
      }
      try {
        // Everything may have changed while this waited for its turn, and the process may have been frozen.
        if (this.isOver) break;
        if (!lease.isTrusted) {
          lease.lose('expired');
          break;
        }
        if (!queue.isReady) continue;
        hasWaited = false;
        if (rateLimiter?.tryTake() === false) continue;
        const entry = queue.take();
        if (entry === undefined) continue;
        settler.flushIfOlderThan(wasFast ? ackFlushMs : 0);
        const startedAt = clock.monotonic();
        await this.handleSafely(entry);
        wasFast = clock.monotonic() - startedAt <= FAST_HANDLER_MS;
      } finally {
        slots.give();
      }
      // Never two handlers at once: after a timeout the partition waits until the user's code has really ended.
      if (this.zombie !== null) await Promise.race([this.zombie, aborted(this.stopping.signal)]);
    }
    settler.flush();
  }

  /** Whatever goes wrong here, the loop goes on; the entry stays pending and the next owner, or a restart, meets it. */
  private async handleSafely(entry: Entry): Promise<void> {
    try {
      await this.handle(entry);
    } catch (error) {
      this.deps.events.emit('fault', { component: this.component, class: 'unexpected', error, retryInMs: 0 });
    }
  }

  private async handle(entry: Entry): Promise<void> {
    entry.state = 'running';
    if (entry.suspect && !(await this.markSuspect(entry))) return;
    this.busySince = this.deps.clock.monotonic();
    const report = await this.deps.runner.run(entry);
    if (report.ended === null) {
      this.busySince = null;
    } else {
      this.zombieSince = this.deps.clock.monotonic();
      this.zombie = report.ended.finally(() => (this.zombie = this.busySince = null));
    }
    this.settle(entry, report);
  }

  /** False when the entry is not to be handled: owners have died on it too often, or the lease is gone. */
  private async markSuspect(entry: Entry): Promise<boolean> {
    const { lease, connection, events, settler } = this.deps;
    const { keys, token, epoch } = lease.terms;
    // Sent before the mark, on the same connection: if this entry kills the process, the ones before it are settled.
    settler.flush();
    const backoff = new Backoff({ minMs: 50, maxMs: 2_000 });
    while (!this.isOver) {
      try {
        if (this.marked.push(entry.id) > MARKS_KEPT) this.marked.shift();
        const mark = await connection.run(call(markCrash, keys, { token, id: entry.id, epoch }));
        if (mark.status === 'fenced') {
          lease.lose('taken');
          return false;
        }
        if (mark.deaths < MAX_CRASHES) {
          if (!lease.isTrusted) lease.lose('expired');
          // Stopped meanwhile: nothing more is begun, and the next owner has it.
          if (this.isOver) break;
          return true;
        }
        const error = new Error(`${mark.deaths} owners ended while they handled this message`);
        this.bury(entry, null, entry.attemptsMade, 'crash-loop', error);
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

  private settle(entry: Entry, { result, message }: RunReport): void {
    const { lease, settler } = this.deps;
    if (lease.isEnded) return;
    const attempts = entry.attemptsMade + 1;
    switch (result.type) {
      case 'success':
        settler.ack(entry);
        break;
      case 'aborted':
        entry.state = 'waiting';
        break;
      case 'dead':
        // An entry that never reached the handler costs no attempt.
        this.bury(entry, message, result.called ? attempts : entry.attemptsMade, result.reason, result.error);
        break;
      case 'retry':
        this.retryOrBury(entry, message, attempts, result);
        break;
    }
  }

  private retryOrBury(
    entry: Entry,
    message: RunReport['message'],
    attempt: number,
    failed: { readonly delayMs?: number; readonly error?: unknown },
  ): void {
    const { settler, handler, random, events } = this.deps;
    const onBadCallback = (error: unknown): void =>
      events.emit('fault', { component: `retry:${handler.name}`, class: 'unexpected', error, retryInMs: 0 });
    const decision = decideRetry({ ...failed, attempt }, handler.options, { random, onBadCallback });
    if (decision.type === 'dead') this.bury(entry, message, attempt, decision.reason, failed.error);
    else settler.retry(entry, attempt, decision.delayMs, failed.error);
  }

  private bury(
    entry: Entry,
    message: RunReport['message'],
    attempts: number,
    reason: Parameters<Settler['dead']>[2],
    error: unknown,
  ): void {
    const metadata = deadLetterMetadata({
      ...this.ref,
      originalMessageId: entry.origin,
      message,
      attempts,
      reason,
      error,
    });
    this.deps.settler.dead(entry, attempts, reason, error, metadata);
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
