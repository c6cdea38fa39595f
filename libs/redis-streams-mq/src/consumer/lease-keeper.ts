import { pause, type Clock, type Timer } from '../core/clock.js';
import type { MqEvents } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { callMulti } from '../redis/script.js';
import { renew, type RenewedLease } from '../redis/scripts/lease.script.js';
import type { Lease } from './lease.js';

export interface LeaseKeeperDeps {
  /** Never one that blocks. */
  readonly connection: Connection;
  readonly isCluster: boolean;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly renewIntervalMs: number;
}

/** What the owner of a lease hears of each renewal. */
export interface LeaseWatcher {
  readonly lease: Lease;
  /** The server's pending totals at the renewal; -1 when the group is not there. A hint: a read may be under way. */
  pendingSeen(stream: number, retryStream: number): void;
  /** The group, or all groups, were paused on this partition. */
  paused(): void;
}

const LEASES_PER_CALL = 250;

/**
 * Renews every lease of the instance: one script for all on a single node, one a partition in Cluster. A renewal that
 * fails to arrive is tried again until trust ends; one that is answered "not yours" ends the lease at once.
 */
export class LeaseKeeper {
  private readonly watchers = new Set<LeaseWatcher>();
  private readonly stopping = new AbortController();
  private readonly backoff: Backoff;
  private loop: Promise<void> | undefined;
  private expiry: Timer | undefined;
  private tickedAt: number;

  constructor(private readonly deps: LeaseKeeperDeps) {
    this.backoff = new Backoff({ minMs: 50, maxMs: Math.max(50, deps.renewIntervalMs / 2) });
    this.tickedAt = deps.clock.monotonic();
  }

  get lastTickAgoMs(): number {
    return this.deps.clock.monotonic() - this.tickedAt;
  }

  add(watcher: LeaseWatcher): void {
    this.watchers.add(watcher);
    this.watchExpiry();
  }

  remove(watcher: LeaseWatcher): void {
    this.watchers.delete(watcher);
  }

  start(): void {
    this.loop ??= this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.expiry?.cancel();
    await this.loop;
  }

  /** Renews all leases once; rejects if Redis could not be asked for some of them. */
  async runOnce(): Promise<void> {
    const { clock, connection, isCluster } = this.deps;
    this.tickedAt = clock.monotonic();
    this.expire();
    const watchers = [...this.watchers].filter(({ lease }) => !lease.isEnded);
    const size = isCluster ? 1 : LEASES_PER_CALL;
    const calls: Promise<void>[] = [];
    for (let i = 0; i < watchers.length; i += size) {
      const page = watchers.slice(i, i + size);
      const sentAt = clock.monotonic();
      const keys = page.flatMap(({ lease: { terms } }) => {
        const { lease, stream, retryStream, paused, pausedAll, activity } = terms.keys;
        return [lease, stream, retryStream, paused, pausedAll, activity];
      });
      const args = page.flatMap(({ lease: { terms } }) => [terms.token, terms.group]);
      const ttlMs = page[0]!.lease.terms.ttlMs;
      calls.push(
        connection.run(callMulti(renew, keys, [ttlMs, ...args])).then((answers) => {
          for (const [at, watcher] of page.entries()) this.answered(watcher, answers[at]!, sentAt);
        }),
      );
    }
    const failed = (await Promise.allSettled(calls)).find((result) => result.status === 'rejected');
    this.watchExpiry();
    if (failed !== undefined) throw failed.reason;
  }

  private answered(watcher: LeaseWatcher, answer: RenewedLease, sentAt: number): void {
    const { lease } = watcher;
    // Taken out while the renewal was under way: its lease is being given up, and may be gone by right.
    if (lease.isEnded || !this.watchers.has(watcher)) return;
    switch (answer.state) {
      case 'owned':
        lease.renewed(sentAt);
        watcher.pendingSeen(answer.pending, answer.retryPending);
        break;
      case 'paused':
        lease.renewed(sentAt);
        watcher.paused();
        break;
      case 'other':
        lease.lose('taken');
        break;
      case 'missing':
        lease.lose('missing');
        break;
    }
  }

  private async run(): Promise<void> {
    const { clock, events, renewIntervalMs } = this.deps;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      let waitMs = renewIntervalMs;
      try {
        await this.runOnce();
        this.backoff.reset();
      } catch (error) {
        waitMs = this.backoff.next();
        events.emit('fault', { component: 'lease-keeper', class: classifyRedisError(error), error, retryInMs: waitMs });
        await this.deps.connection.backOff(waitMs, signal);
        continue;
      }
      await pause(clock, waitMs, signal);
    }
  }

  /** Trust also ends while a renewal is unanswered: a timer looks, and after a freeze of the process so does each step. */
  private watchExpiry(): void {
    if (this.stopping.signal.aborted) return;
    this.expiry?.cancel();
    let next = Infinity;
    for (const { lease } of this.watchers) if (!lease.isEnded) next = Math.min(next, lease.trustLeftMs);
    if (next === Infinity) return;
    this.expiry = this.deps.clock.setTimer(
      () => {
        this.expire();
        this.watchExpiry();
      },
      Math.max(1, next),
    );
  }

  private expire(): void {
    for (const { lease } of this.watchers) if (!lease.isEnded && !lease.isTrusted) lease.lose('expired');
  }
}
