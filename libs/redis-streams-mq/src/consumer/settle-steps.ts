import { nameThrown } from '../core/errors.js';
import type { DeadReason, MqEvents } from '../core/events.js';
import { compareStreamIds } from '../core/stream-id.js';
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

export type Move = Retry | Dead | Hold;
export type Reply = SettleReply | FailReply | DeadReply | HoldReply;

/** Part of a flush: one script call, what to do with its answer, and what goes back if there is none. */
export interface Step {
  readonly call: ScriptCall<Reply>;
  readonly items: readonly (Entry | Move)[];
  readonly done: (reply: Exclude<Reply, { status: 'fenced' }>) => void;
}

/** A script that moves many holds up Redis. */
export const MOVES_AT_ONCE = 100;
const ERROR_TEXT_LENGTH = 500;

/** What is said of an error in Redis: its message, cut. Never its payload. */
export function errorText(error: unknown): string {
  if (error === undefined) return '';
  const { name, message } = nameThrown(error);
  const text = `${name}: ${message}`;
  return text.length > ERROR_TEXT_LENGTH ? `${text.slice(0, ERROR_TEXT_LENGTH)}...` : text;
}

export interface SettleStepsDeps {
  readonly lease: Lease;
  readonly events: MqEvents;
  /** Redis has the outcome of this entry, and counts it no more. */
  readonly remove: (entry: Entry) => void;
  /** The group's bucket has an item due in that many milliseconds. */
  readonly onRetryDue: (inMs: number) => void;
}

/** Makes the script calls that take outcomes of one partition to Redis, and deals with their answers. */
export class SettleSteps {
  constructor(private readonly deps: SettleStepsDeps) {}

  /** In the order in which they are to be sent. */
  of(acks: Readonly<Record<Source, Entry[]>>, moves: readonly Move[]): Step[] {
    const steps: Step[] = [];
    for (const source of SOURCES) {
      if (acks[source].length > 0) steps.push(this.ackStep(source, acks[source]));
      const retries = moves.filter((move) => move.kind === 'retry' && move.entry.source === source) as Retry[];
      for (const some of chunksOf(retries)) steps.push(this.retryStep(source, some));
    }
    for (const move of moves) if (move.kind === 'dead') steps.push(this.deadStep(move));
    const holds = moves.filter((move) => move.kind === 'hold');
    for (const some of chunksOf(holds)) steps.push(this.holdStep(some));
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
        for (const entry of entries) this.deps.remove(entry);
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
          this.deps.remove(entry);
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
        this.deps.remove(entry);
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
            this.deps.remove(entry);
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
}

function chunksOf<T>(moves: readonly T[]): T[][] {
  const count = Math.ceil(moves.length / MOVES_AT_ONCE);
  return Array.from({ length: count }, (_, i) => moves.slice(i * MOVES_AT_ONCE, (i + 1) * MOVES_AT_ONCE));
}
