import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { compareStreamIds } from '../../libs/redis-streams-mq/src/core/stream-id.js';

/** One call of a handler. Times are milliseconds since the epoch on a clock that all processes of this machine share. */
export interface HandlerCall {
  readonly instance: string;
  readonly topic: string;
  readonly partition: number;
  readonly group: string;
  readonly key: string | null;
  readonly id: string;
  readonly attempt: number;
  readonly epoch: number;
  /** The number that the test put into the payload. */
  readonly n: number;
  readonly startedAt: number;
  endedAt?: number;
}

/** Finer than `Date.now()`, and the same in all processes. */
export const nowMs = (): number => performance.timeOrigin + performance.now();

export function toCall(instance: string, { payload, context }: ReceivedMessage): HandlerCall {
  const { topic, partition, group, key, id, attempt, epoch } = context;
  const { n } = payload as { n: number };
  return { instance, topic, partition, group, key, id, attempt, epoch, n, startedAt: nowMs() };
}

/** Who handled what and when, over all instances of a test, and what the guarantees say about it. */
export class HandlingRecord {
  /** As they were reported: what other processes did comes a little later. */
  readonly calls: HandlerCall[] = [];

  /** A handler that records itself around `work`. */
  handler(instance: string, work: (message: ReceivedMessage, call: HandlerCall) => unknown = () => undefined) {
    return async (message: ReceivedMessage): Promise<unknown> => {
      const call = toCall(instance, message);
      this.calls.push(call);
      try {
        return await work(message, call);
      } finally {
        call.endedAt = nowMs();
      }
    };
  }

  /** Of different messages, not of calls. */
  get handled(): number {
    return new Set(this.calls.map((call) => call.n)).size;
  }

  by(instance: string): HandlerCall[] {
    return this.calls.filter((call) => call.instance === instance);
  }

  /** In the order of their starts. */
  of(partition: number): HandlerCall[] {
    return inTime(this.calls.filter((call) => call.partition === partition));
  }

  /** Numbers of the messages in the order in which they were started, first calls alone. */
  order(calls: readonly HandlerCall[] = this.calls): number[] {
    return [...new Set(inTime(calls).map((call) => call.n))];
  }

  /** Numbers of messages that were started more than once for the same attempt. */
  get repeated(): number[] {
    return repeatedIn(this.calls.map((call) => `${place(call)} ${call.id} ${call.attempt} ${call.n}`)).map((text) =>
      Number(text.slice(text.lastIndexOf(' ') + 1)),
    );
  }

  /** Pairs of calls of one partition and group that ran at the same time (I3). */
  get overlaps(): string[] {
    const found: string[] = [];
    for (const calls of this.byPlace()) {
      const sorted = inTime(calls);
      for (const [i, call] of sorted.entries()) {
        const before = sorted[i - 1];
        if (before === undefined || (before.endedAt ?? Infinity) <= call.startedAt) continue;
        found.push(`${before.n} on ${before.instance} and ${call.n} on ${call.instance} in ${place(call)}`);
      }
    }
    return found;
  }

  /** Messages that were started for the first time after a later one of their partition (I2, and more). */
  get disorder(): string[] {
    const found: string[] = [];
    for (const calls of this.byPlace()) {
      const seen = new Set<string>();
      let last: HandlerCall | undefined;
      for (const call of inTime(calls)) {
        if (seen.has(call.id)) continue;
        seen.add(call.id);
        if (last !== undefined && compareStreamIds(call.id, last.id) < 0)
          found.push(`${call.n} after ${last.n} in ${place(call)}`);
        else last = call;
      }
    }
    return found;
  }

  /** The longest time in which no handler of `partition` was started, in milliseconds. */
  longestPause(partition: number): number {
    const starts = this.of(partition).map((call) => call.startedAt);
    return Math.max(0, ...starts.slice(1).map((at, i) => at - starts[i]!));
  }

  private byPlace(): HandlerCall[][] {
    const places = new Map<string, HandlerCall[]>();
    for (const call of this.calls) {
      const calls = places.get(place(call)) ?? [];
      places.set(place(call), calls);
      calls.push(call);
    }
    return [...places.values()];
  }
}

function place(call: HandlerCall): string {
  return `${call.topic}:p:${call.partition}:${call.group}`;
}

function inTime(calls: readonly HandlerCall[]): HandlerCall[] {
  return calls.toSorted((a, b) => a.startedAt - b.startedAt);
}

function repeatedIn(items: readonly string[]): string[] {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  for (const item of items) {
    if (seen.has(item)) repeated.add(item);
    seen.add(item);
  }
  return [...repeated];
}
