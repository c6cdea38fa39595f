import { pause, type Clock, type Timer } from '../core/clock.js';
import type { DeadReason, MqEvents } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError, isConnectionError, replyCode, wasNotSent } from '../redis/redis-errors.js';
import type { Arg, Outcome } from '../redis/reply.js';
import type { Entry, Source } from './entry.js';
import type { Lease } from './lease.js';
import type { Ledger } from './ledger.js';
import { MOVES_AT_ONCE, SettleSteps, type Move, type OnSettled, type Reply, type Step } from './settle-steps.js';

export interface SettlerDeps {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly lease: Lease;
  readonly ledger: Ledger;
  readonly ackFlushMs: number;
  /** The group is not there any more. */
  readonly onGroupLost: () => void;
  /** Answers were lost: the ledger may count what Redis no longer does. */
  readonly onUnanswered: () => void;
  /** The group's bucket has an item due in that many milliseconds. */
  readonly onRetryDue: (inMs: number) => void;
}

/** A comparison of the ledger with the server's pending totals. */
export interface Check {
  /** Resolves when what was sent before it has left the ledger. */
  readonly answered: Promise<unknown>;
  /**
   * Entries of each source that the totals still count although they have left the ledger since. It goes on counting, and
   * is right at the moment at which it is read: answers come in one piece, and their order here is not known.
   */
  readonly leftOver: Record<Source, number>;
}

const NOTHING: readonly Buffer[] = [];
/** After a lost connection: as soon as there is another. */
const RESEND_MS = 100;
const STALLED_MS = 1_000;
const CUT_LOOK_MS = 10;

function report(item: Entry | Move, heldForMs: number | null): void {
  if ('kind' in item && item.kind !== 'retry') item.onSettled?.(heldForMs);
}

/**
 * Takes the outcomes of one partition to Redis, fenced by its lease. An entry leaves the ledger when its script has
 * answered; one whose script failed stays and is tried again, so nothing is lost and nothing behind it waits.
 */
export class Settler {
  private acks: Record<Source, Entry[]> = { stream: [], retry: [] };
  private moves: Move[] = [];
  /** What met an error and waits for its next try. */
  private later: (Entry | Move)[] = [];
  private oldestAt = Infinity;
  private flushTimer: Timer | undefined;
  private laterTimer: Timer | undefined;
  private readonly backoff = new Backoff({ minMs: 50, maxMs: 5_000 });
  private readonly outstanding = new Map<number, Promise<void>>();
  /** The last that was sent broke off, and nothing has been answered since. */
  private answersLost = false;
  /** The last that was sent met a broken connection. */
  private wasCut = false;
  /** When the last answer came, or when waiting for one began. */
  private unansweredSince = 0;
  private sequence = 0;
  private frozen = false;
  private waitingForRedis = false;
  /** What was sent without an answer: Redis may have done it. */
  private readonly unsure = new Set<Entry | Move>();
  private check: (Check & { readonly mark: number }) | undefined;

  private readonly steps: SettleSteps;

  constructor(private readonly deps: SettlerDeps) {
    this.steps = new SettleSteps({ ...deps, remove: (entry) => this.remove(entry) });
  }

  ack(entry: Entry): void {
    entry.state = 'settling';
    // It is held until Redis has answered, by its id: nobody needs the rest any more.
    if (entry.fields !== null) entry.fields = NOTHING;
    this.acks[entry.source].push(entry);
    this.flushSoon();
  }

  retry(entry: Entry, attempts: number, delayMs: number, error: unknown): void {
    entry.state = 'settling';
    this.moves.push({ kind: 'retry', entry, attempts, delayMs, error });
    this.flushSoon();
  }

  dead(
    entry: Entry,
    attempts: number,
    reason: DeadReason,
    error: unknown,
    metadata: readonly Arg[],
    onSettled?: OnSettled,
  ): void {
    entry.state = 'settling';
    this.moves.push({ kind: 'dead', entry, attempts, reason, error, metadata, onSettled });
    this.flushSoon();
  }

  hold(entry: Entry, attempts: number, delayMs: number, error: unknown, onSettled: OnSettled): void {
    entry.state = 'settling';
    this.moves.push({ kind: 'hold', entry, attempts, delayMs, error, onSettled });
    this.flushSoon();
  }

  /** Failures go together as successes do: one script for each would cost several times the handling. */
  private flushSoon(): void {
    if (this.moves.length >= MOVES_AT_ONCE) return this.flush();
    if (this.oldestAt !== Infinity) return;
    this.oldestAt = this.deps.clock.monotonic();
    this.flushTimer = this.deps.clock.setTimer(() => {
      // The timers of many partitions end together.
      this.deps.connection.holdWrites();
      this.flush();
    }, this.deps.ackFlushMs);
  }

  /** Called before a handler starts: a crash during it may repeat no more than the last milliseconds. */
  flushIfOlderThan(ageMs: number, now: number): void {
    if (this.oldestAt !== Infinity && now - this.oldestAt >= ageMs) this.flush();
  }

  /** Sends what is collected. Written to the socket before this returns, so that a later command is answered later. */
  flush(): void {
    if (this.frozen) return;
    this.flushTimer?.cancel();
    this.oldestAt = Infinity;
    if (this.deps.lease.isEnded || !this.hasQueued) return;
    if (!this.deps.connection.isReady) {
      void this.flushWhenReady();
      return;
    }
    const steps = this.steps.of(this.acks, this.moves);
    this.acks = { stream: [], retry: [] };
    this.moves = [];
    const sequence = ++this.sequence;
    const answered = this.send(steps, sequence).finally(() => this.outstanding.delete(sequence));
    if (this.outstanding.size === 0) this.unansweredSince = this.deps.clock.monotonic();
    this.outstanding.set(sequence, answered);
  }

  /**
   * Settles have no answer: what is handled now would come again if the lease ended meanwhile. True at once when Redis
   * is away, else after a while without an answer.
   */
  isStalledAt(now: number): boolean {
    if (!this.deps.connection.isReady || this.answersLost) return true;
    return this.outstanding.size > 0 && now - this.unansweredSince > STALLED_MS;
  }

  /**
   * Sends everything, what waits for its next try included, and resolves when it has been answered; while Redis is away
   * it waits, as long as the lease lasts. What was refused stays pending in Redis, for this owner's next try or the next owner.
   */
  async settled(): Promise<void> {
    const { connection, lease, clock } = this.deps;
    let isAway: boolean;
    do {
      this.resend();
      while (this.outstanding.size > 0) await Promise.all(this.outstanding.values());
      const isOpen = this.hasQueued || this.later.length > 0;
      // A connection that breaks is ready for a moment longer, and one that broke may be ready again.
      isAway = isOpen && (this.wasCut || !connection.isReady) && !connection.isDestroyed && !lease.isEnded;
      if (isAway && connection.isReady) await pause(clock, CUT_LOOK_MS);
      else if (isAway) await connection.whenReady(RESEND_MS);
    } while (isAway);
  }

  /**
   * Sends again everything whose answer was lost, and says whether all is known now. While it is not, Redis' pending total
   * may leave out what the ledger still counts.
   */
  async makeSure(): Promise<boolean> {
    if (this.unsure.size > 0) await this.settled();
    return this.unsure.size === 0;
  }

  /** The pending list was read while nothing was under way: what is not `pending` has been settled, and all else has not. */
  learned(isPending: (entry: Entry) => boolean): void {
    const gone = this.later.filter((item) => !isPending('kind' in item ? item.entry : item));
    this.later = this.later.filter((item) => !gone.includes(item));
    for (const item of gone) report(item, null);
    this.unsure.clear();
    this.answersLost = false;
  }

  /** From now on nothing is sent until `thaw`: the pending entries are being read. */
  freeze(): void {
    this.frozen = true;
  }

  thaw(): void {
    this.frozen = false;
    this.flush();
  }

  /** Marks the moment at which the server's pending total is asked for, on the connection of the settles. */
  beginCheck(): Check {
    this.check = {
      mark: this.sequence,
      answered: Promise.all(this.outstanding.values()),
      leftOver: { stream: 0, retry: 0 },
    };
    return this.check;
  }

  /** Forgets what was collected: the lease is lost or the group is gone. */
  discard(): void {
    this.flushTimer?.cancel();
    this.laterTimer?.cancel();
    this.laterTimer = undefined;
    const forgotten = [...this.moves, ...this.later];
    this.acks = { stream: [], retry: [] };
    this.moves = [];
    this.later = [];
    for (const item of forgotten) report(item, null);
    this.unsure.clear();
    this.answersLost = false;
    this.oldestAt = Infinity;
  }

  private get hasQueued(): boolean {
    return this.acks.stream.length > 0 || this.acks.retry.length > 0 || this.moves.length > 0;
  }

  private remove(entry: Entry): void {
    if (this.deps.ledger.remove(entry.source, entry.id) && this.removing > (this.check?.mark ?? Infinity)) {
      this.check!.leftOver[entry.source]++;
    }
  }

  /** The flush whose answers are being dealt with. */
  private removing = 0;

  private async send(steps: readonly Step[], sequence: number): Promise<void> {
    let outcomes: readonly Outcome<Reply>[];
    try {
      outcomes = await this.deps.connection.runAll(steps.map((step) => step.call));
    } catch (error) {
      outcomes = steps.map(() => ({ ok: false, error: error as Error }));
    }
    this.removing = sequence;
    this.unansweredSince = this.deps.clock.monotonic();
    let failure: Error | undefined;
    for (const [i, step] of steps.entries()) {
      const outcome = outcomes[i]!;
      if (!outcome.ok) {
        failure = outcome.error;
        this.later.push(...step.items);
        // A refusal of this try says nothing about an earlier one without an answer.
        if (isConnectionError(failure) && !wasNotSent(failure)) {
          this.answersLost = true;
          for (const item of step.items) this.unsure.add(item);
          this.deps.onUnanswered();
        }
      } else if (outcome.value.status === 'fenced') {
        this.deps.lease.lose('taken');
      } else {
        for (const item of step.items) this.unsure.delete(item);
        step.done(outcome.value);
      }
    }
    if (outcomes.some((outcome) => outcome.ok || replyCode(outcome.error) !== '')) this.answersLost = false;
    this.wasCut = failure !== undefined && isConnectionError(failure);
    if (failure === undefined) {
      if (this.later.length === 0) this.backoff.reset();
    } else {
      this.failed(failure);
    }
  }

  /** One round of waiting for all that failed meanwhile, so that an outage is one step of the back-off. */
  private failed(error: Error): void {
    const { clock, events, lease, onGroupLost } = this.deps;
    if (lease.isEnded) return;
    if (replyCode(error) === 'NOGROUP') onGroupLost();
    if (this.laterTimer !== undefined) return;
    const retryInMs = isConnectionError(error) ? RESEND_MS : this.backoff.next();
    const { topic, partition, group } = lease.terms;
    const component = `settle:${topic}:${partition}:${group}`;
    events.emit('fault', { component, class: classifyRedisError(error), error, retryInMs });
    this.laterTimer = clock.setTimer(() => this.resend(), retryInMs);
  }

  private resend(): void {
    this.laterTimer?.cancel();
    this.laterTimer = undefined;
    const again = this.later;
    this.later = [];
    for (const item of again) {
      if ('kind' in item) this.moves.push(item);
      else this.acks[item.source].push(item);
    }
    this.flush();
  }

  private async flushWhenReady(): Promise<void> {
    if (this.waitingForRedis) return;
    this.waitingForRedis = true;
    const { connection, lease } = this.deps;
    while (!connection.isDestroyed && !lease.isEnded && !(await connection.whenReady(RESEND_MS)));
    this.waitingForRedis = false;
    if (connection.isReady) this.flush();
  }
}
