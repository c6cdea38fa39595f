import { pause, type Clock, type Timer } from '../core/clock.js';
import { nameThrown } from '../core/errors.js';
import type { DeadReason, MqEvents } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import { compareStreamIds } from '../core/stream-id.js';
import type { Connection, Outcome } from '../redis/connection.js';
import { classifyRedisError, isConnectionError, replyCode, wasNotSent } from '../redis/redis-errors.js';
import type { Arg } from '../redis/reply.js';
import { call, type ScriptCall } from '../redis/script.js';
import { hold, type HoldReply } from '../redis/scripts/hold.script.js';
import {
  dead,
  fail,
  settle,
  type DeadReply,
  type FailReply,
  type SettleReply,
} from '../redis/scripts/settle.script.js';
import { SOURCES, type Entry, type Source } from './entry.js';
import type { Lease } from './lease.js';
import type { Ledger } from './ledger.js';

interface Retry {
  readonly kind: 'retry';
  readonly entry: Entry;
  readonly attempts: number;
  readonly delayMs: number;
  readonly error: unknown;
}

interface Dead {
  readonly kind: 'dead';
  readonly entry: Entry;
  readonly attempts: number;
  readonly reason: DeadReason;
  readonly error: unknown;
  readonly metadata: readonly Arg[];
  readonly onSettled: OnSettled | undefined;
}

/** A failure that is noted while the entry stays pending, in its place. */
interface Hold {
  readonly kind: 'hold';
  readonly entry: Entry;
  readonly attempts: number;
  readonly delayMs: number;
  readonly error: unknown;
  readonly onSettled: OnSettled;
}

/** Called when Redis has the outcome; `heldForMs`: the entry is to be handled again then, and is not settled. */
export type OnSettled = (heldForMs: number | null) => void;

type Move = Retry | Dead | Hold;
type Reply = SettleReply | FailReply | DeadReply | HoldReply;

/** Part of a flush: one script call, what to do with its answer, and what goes back if there is none. */
interface Step {
  readonly call: ScriptCall<Reply>;
  readonly items: readonly (Entry | Move)[];
  readonly done: (reply: Exclude<Reply, { status: 'fenced' }>) => void;
}

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

const ERROR_TEXT_LENGTH = 500;
/** A script that moves many holds up Redis. */
const MOVES_AT_ONCE = 100;
/** After a lost connection: as soon as there is another. */
const RESEND_MS = 100;
const STALLED_MS = 1_000;
const CUT_LOOK_MS = 10;

/** What is said of an error in Redis: its message, cut. Never its payload. */
function errorText(error: unknown): string {
  if (error === undefined) return '';
  const { name, message } = nameThrown(error);
  const text = `${name}: ${message}`;
  return text.length > ERROR_TEXT_LENGTH ? `${text.slice(0, ERROR_TEXT_LENGTH)}...` : text;
}

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
  private check: { readonly mark: number; readonly removed: Record<Source, number> } | undefined;

  constructor(private readonly deps: SettlerDeps) {}

  ack(entry: Entry): void {
    entry.state = 'settling';
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
    this.flushTimer = this.deps.clock.setTimer(() => this.flush(), this.deps.ackFlushMs);
  }

  /** Called before a handler starts: a crash during it may repeat no more than the last milliseconds. */
  flushIfOlderThan(ageMs: number): void {
    if (this.oldestAt !== Infinity && this.deps.clock.monotonic() - this.oldestAt >= ageMs) this.flush();
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
    const steps = this.takeSteps();
    const sequence = ++this.sequence;
    const answered = this.send(steps, sequence).finally(() => this.outstanding.delete(sequence));
    if (this.outstanding.size === 0) this.unansweredSince = this.deps.clock.monotonic();
    this.outstanding.set(sequence, answered);
  }

  /**
   * Settles have no answer: what is handled now would come again if the lease ended meanwhile. True at once when Redis
   * is away, else after a while without an answer.
   */
  get isStalled(): boolean {
    if (!this.deps.connection.isReady || this.answersLost) return true;
    return this.outstanding.size > 0 && this.deps.clock.monotonic() - this.unansweredSince > STALLED_MS;
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

  /**
   * Marks the moment at which the server's pending total is asked for. The function returned resolves to how many
   * entries of each source that total still counts although they have left the ledger since.
   */
  beginCheck(): () => Promise<Record<Source, number>> {
    const check = { mark: this.sequence, removed: { stream: 0, retry: 0 } };
    this.check = check;
    const before = [...this.outstanding.values()];
    return async () => {
      await Promise.all(before);
      this.check = undefined;
      return check.removed;
    };
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

  private takeSteps(): Step[] {
    const steps: Step[] = [];
    for (const source of SOURCES) {
      const acks = this.acks[source];
      if (acks.length > 0) steps.push(this.ackStep(source, acks));
      const retries = this.moves.filter((move) => move.kind === 'retry' && move.entry.source === source) as Retry[];
      if (retries.length > 0) steps.push(this.retryStep(source, retries));
    }
    for (const move of this.moves) if (move.kind === 'dead') steps.push(this.deadStep(move));
    const holds = this.moves.filter((move) => move.kind === 'hold');
    if (holds.length > 0) steps.push(this.holdStep(holds));
    this.acks = { stream: [], retry: [] };
    this.moves = [];
    return steps;
  }

  private fence(source: Source): { token: string; group: string; onRetryStream: string } {
    const { token, group } = this.deps.lease.terms;
    return { token, group, onRetryStream: source === 'retry' ? '1' : '0' };
  }

  private keys(source: Source): {
    source: string;
    lease: string;
    commit: string;
    crash: string;
    retry: string;
    retryItems: string;
    dlq: string;
    held: string;
  } {
    const { keys } = this.deps.lease.terms;
    return { ...keys, source: source === 'retry' ? keys.retryStream : keys.stream };
  }

  private ackStep(source: Source, entries: Entry[]): Step {
    const ids = entries.map((entry) => entry.id).sort(compareStreamIds);
    return {
      call: call(settle, this.keys(source), this.fence(source), ids),
      items: entries,
      done: (reply) => {
        for (const entry of entries) this.remove(entry);
        if ('acked' in reply && reply.acked > 0) this.deps.events.emit('acked', { ...this.ref, count: reply.acked });
      },
    };
  }

  private retryStep(source: Source, retries: readonly Retry[]): Step {
    const rest = retries.flatMap(({ entry, attempts, delayMs, error }) => [
      entry.id,
      entry.origin,
      attempts,
      delayMs,
      errorText(error),
    ]);
    return {
      call: call(fail, this.keys(source), this.fence(source), rest),
      items: retries,
      done: (reply) => {
        const { results, nextDue, now } = reply as Extract<FailReply, { status: 'ok' }>;
        for (const [i, { entry, attempts, delayMs, error }] of retries.entries()) {
          this.remove(entry);
          if (results[i] === 'moved')
            this.deps.events.emit('retried', { ...this.ref, id: entry.origin, attempt: attempts, delayMs, error });
          if (results[i] === 'deleted') this.deps.events.emit('payloadMissing', { ...this.ref, ids: [entry.origin] });
        }
        if (nextDue !== null) this.deps.onRetryDue(Math.max(0, nextDue - now));
      },
    };
  }

  private deadStep(item: Dead): Step {
    const { entry, attempts, reason, error, metadata } = item;
    return {
      call: call(dead, this.keys(entry.source), { ...this.fence(entry.source), id: entry.id }, metadata),
      items: [item],
      done: (reply) => {
        this.remove(entry);
        item.onSettled?.(null);
        if (reply.status === 'dead')
          this.deps.events.emit('dead', { ...this.ref, id: entry.origin, attempt: attempts, reason, error });
        if (reply.status === 'deleted') this.deps.events.emit('payloadMissing', { ...this.ref, ids: [entry.origin] });
      },
    };
  }

  private holdStep(holds: readonly Hold[]): Step {
    const { token, group } = this.deps.lease.terms;
    const rest = holds.flatMap(({ entry, attempts, delayMs }) => [entry.id, attempts, delayMs]);
    return {
      call: call(hold, this.keys('stream'), { token, group }, rest),
      items: holds,
      done: (reply) => {
        const { now, due } = reply as Extract<HoldReply, { status: 'ok' }>;
        for (const [i, { entry, attempts, delayMs, error, onSettled }] of holds.entries()) {
          const dueAt = due[i] ?? null;
          if (dueAt === null) {
            this.remove(entry);
            onSettled(null);
            continue;
          }
          entry.attemptsMade = attempts;
          onSettled(Math.max(0, dueAt - now));
          this.deps.events.emit('retried', { ...this.ref, id: entry.origin, attempt: attempts, delayMs, error });
        }
      },
    };
  }

  private get ref(): { topic: string; partition: number; group: string } {
    const { topic, partition, group } = this.deps.lease.terms;
    return { topic, partition, group };
  }

  private remove(entry: Entry): void {
    if (this.deps.ledger.remove(entry.source, entry.id) && this.removing > (this.check?.mark ?? Infinity)) {
      this.check!.removed[entry.source]++;
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
