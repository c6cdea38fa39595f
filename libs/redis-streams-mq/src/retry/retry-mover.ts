import { pause, type Clock } from '../core/clock.js';
import type { GroupPartitionRef, MqEvents } from '../core/events.js';
import type { GroupPartitionKeys } from '../core/keys.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call, callMulti, type ScriptCall } from '../redis/script.js';
import { dueTimes, moveRetries } from '../redis/scripts/retry.script.js';
import { moveDelayed, type MoveReply } from '../redis/scripts/send.script.js';

/** A partition that this instance owns for a group, and with it the duty to move what becomes due. */
export interface MoverTarget extends GroupPartitionRef {
  readonly keys: GroupPartitionKeys;
  readonly token: string;
}

export interface RetryMoverDeps {
  readonly connection: Connection;
  readonly isCluster: boolean;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly intervalMs: number;
  /** Items moved by one script. */
  readonly batch: number;
}

/** One bucket: a group's retries on a partition, or a partition's delayed messages. */
interface Bucket {
  readonly zset: string;
  readonly target: MoverTarget;
  readonly delayed: boolean;
}

const BUCKETS_PER_CALL = 500;
/** Scripts per bucket and round, so that one full bucket does not hold up the others. */
const ROUNDS = 20;

/**
 * Moves due retries to their group's retry stream and due delayed messages to their partition's stream, for all
 * partitions owned. It knows when the next one is due and wakes for it; the tick is the net. Safe beside other movers:
 * each item moves in one atomic step.
 */
export class RetryMover {
  private readonly targets = new Map<string, MoverTarget>();
  private readonly stopping = new AbortController();
  private loop: Promise<void> | undefined;
  private wake: (() => void) | undefined;
  private nextAt = Infinity;
  private tickedAt: number;
  private succeededAt: number;
  /** In the present turn, for one of the buckets. */
  private couldNotMove = false;
  private serverOffsetMs = 0;

  constructor(private readonly deps: RetryMoverDeps) {
    this.tickedAt = deps.clock.monotonic();
    this.succeededAt = this.tickedAt;
  }

  get lastTickAgoMs(): number {
    return this.deps.clock.monotonic() - this.tickedAt;
  }

  /** Since everything due was last moved, or nothing had to be: it grows while Redis refuses. */
  get lastSuccessAgoMs(): number {
    return this.deps.clock.monotonic() - this.succeededAt;
  }

  add(target: MoverTarget): void {
    this.targets.set(target.keys.retry, target);
    this.due(0);
  }

  remove(target: MoverTarget): void {
    if (this.targets.get(target.keys.retry)?.token === target.token) this.targets.delete(target.keys.retry);
  }

  /** Something is due in `inMs`; the mover looks then if not before. */
  due(inMs: number): void {
    const at = this.deps.clock.monotonic() + inMs;
    if (at >= this.nextAt) return;
    this.nextAt = at;
    this.wake?.();
  }

  /** Like `due`, with a time by the server's clock. */
  dueAt(serverTime: number): void {
    this.due(Math.max(0, serverTime - this.deps.clock.now() - this.serverOffsetMs));
  }

  start(): void {
    this.loop ??= this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.wake?.();
    await this.loop;
  }

  /** Moves everything that is due; returns in how many milliseconds the next item is, or `null`. */
  async runOnce(): Promise<number | null> {
    this.tickedAt = this.deps.clock.monotonic();
    this.couldNotMove = false;
    const buckets = this.buckets();
    const size = this.deps.isCluster ? 2 : BUCKETS_PER_CALL;
    let next: number | null = null;
    let failure: unknown;
    for (let i = 0; i < buckets.length; i += size) {
      try {
        next = earlier(next, await this.movePage(buckets.slice(i, i + size)));
      } catch (error) {
        // In Cluster one shard may be away; the others' items do not wait for it.
        failure = error;
      }
    }
    if (failure !== undefined) throw failure;
    if (!this.couldNotMove) this.succeededAt = this.deps.clock.monotonic();
    return next;
  }

  /** Returns in how many milliseconds the next item of these buckets is due. */
  private async movePage(page: readonly Bucket[]): Promise<number | null> {
    const zsets = page.map((bucket) => bucket.zset);
    const { now, due } = await this.deps.connection.run(callMulti(dueTimes, zsets, []));
    this.serverOffsetMs = now - this.deps.clock.now();
    let next: number | null = null;
    for (const [at, bucket] of page.entries()) {
      let dueAt = due[at] ?? null;
      if (dueAt !== null && dueAt <= now) dueAt = await this.empty(bucket);
      if (dueAt !== null) next = earlier(next, Math.max(0, dueAt - now));
    }
    return next;
  }

  private buckets(): Bucket[] {
    const buckets: Bucket[] = [];
    const delayed = new Set<string>();
    for (const target of this.targets.values()) {
      buckets.push({ zset: target.keys.retry, target, delayed: false });
      if (delayed.has(target.keys.delayed)) continue;
      delayed.add(target.keys.delayed);
      buckets.push({ zset: target.keys.delayed, target, delayed: true });
    }
    // Neighbours are of one partition, hence of one slot: in Cluster they are asked for in pairs.
    return this.deps.isCluster ? pairs(buckets) : buckets;
  }

  /** Returns when the bucket's next item is due, by the server's clock. */
  private async empty(bucket: Bucket): Promise<number | null> {
    const { connection, events, batch, clock, intervalMs } = this.deps;
    const { topic, partition, group } = bucket.target;
    let last: MoveReply | undefined;
    try {
      for (let round = 0; round < ROUNDS; round++) {
        last = await connection.run(this.moveCall(bucket));
        if (last.fenced) return null;
        if (last.moved > 0 || last.bad.length > 0) {
          events.emit('moved', {
            topic,
            partition,
            group: bucket.delayed ? null : group,
            moved: last.moved,
            bad: last.bad,
          });
        }
        if (last.moved + last.bad.length < batch) break;
      }
      return last!.nextDue;
    } catch (error) {
      this.couldNotMove = true;
      events.emit('fault', {
        component: `mover:${topic}:${partition}:${group}`,
        class: classifyRedisError(error),
        error,
        retryInMs: intervalMs,
      });
      return clock.now() + this.serverOffsetMs + intervalMs;
    }
  }

  private moveCall({ target, delayed }: Bucket): ScriptCall<MoveReply> {
    const limit = this.deps.batch;
    return delayed
      ? call(moveDelayed, target.keys, { limit })
      : call(moveRetries, target.keys, { token: target.token, limit });
  }

  private async run(): Promise<void> {
    const { clock, events, intervalMs } = this.deps;
    const { signal } = this.stopping;
    let failingSince: number | undefined;
    while (!signal.aborted) {
      let waitMs = intervalMs;
      this.nextAt = Infinity;
      try {
        const next = await this.runOnce();
        if (next !== null) waitMs = Math.min(waitMs, next);
        if (failingSince !== undefined)
          events.emit('recovered', { component: 'mover', afterMs: clock.monotonic() - failingSince });
        failingSince = undefined;
      } catch (error) {
        failingSince ??= clock.monotonic();
        events.emit('fault', { component: 'mover', class: classifyRedisError(error), error, retryInMs: waitMs });
      }
      await this.sleep(waitMs);
    }
  }

  private async sleep(ms: number): Promise<void> {
    const { clock } = this.deps;
    const until = clock.monotonic() + ms;
    // At least a millisecond, so that an item which is due but cannot be moved makes no busy loop.
    let left = Math.max(1, Math.min(until, this.nextAt) - clock.monotonic());
    while (left > 0 && !this.stopping.signal.aborted) {
      const woken = new AbortController();
      this.wake = () => woken.abort();
      await pause(clock, left, woken.signal);
      this.wake = undefined;
      left = Math.min(until, this.nextAt) - clock.monotonic();
    }
  }
}

function earlier(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.min(a, b);
}

/** Buckets of one partition side by side; a lone one keeps the place beside it for its own partition. */
function pairs(buckets: readonly Bucket[]): Bucket[] {
  return buckets.flatMap((bucket, i) => {
    const next = buckets[i + 1];
    const previous = buckets[i - 1];
    const paired = (a: Bucket | undefined, b: Bucket | undefined): boolean =>
      !!a && !!b && !a.delayed && b.delayed && a.target === b.target;
    return paired(bucket, next) || paired(previous, bucket) ? [bucket] : [bucket, bucket];
  });
}
