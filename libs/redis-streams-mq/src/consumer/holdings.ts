import { partitionId } from '../core/assignment.js';
import { within, type Clock } from '../core/clock.js';
import type { MqEventMap, MqEvents, PartitionRef } from '../core/events.js';
import type { Announcements } from '../redis/announcements.js';
import type { LeaseClient } from './lease-client.js';
import { Lease, type LeaseLoss } from './lease.js';
import type { LeaseKeeper, LeaseWatcher } from './lease-keeper.js';

/** What is consumed under a lease; made when it is acquired. */
export interface Consumption {
  start(): void;
  pendingSeen(stream: number, retryStream: number): void;
  /** See PartitionConsumer.drain. */
  drain(timeoutMs: number, graceMs: number): Promise<boolean>;
  /** Resolves when no code of the user runs under this lease any more. */
  finished(): Promise<void>;
}

export interface HoldingsDeps {
  readonly group: string;
  /** The group's name among all that announce something. */
  readonly announcedAs: string;
  readonly instance: string;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly leases: LeaseClient;
  readonly keeper: LeaseKeeper;
  readonly announcements: Announcements;
  /** Topics that this instance consumes; handlers may be stopped and started. */
  readonly topics: ReadonlyMap<string, unknown>;
  /** How long a hand-over waits for the running handler of `topic`, in milliseconds. */
  readonly handOverTimeoutMs: (topic: string) => number;
  readonly consume: (lease: Lease) => Consumption;
  /** Called when consumption under a lease is over, however it ended. */
  readonly onEnded: (lease: Lease) => Promise<void>;
}

/** What whoever decides who owns what adds to that. */
export interface HoldingsWatcher {
  /** For how long a partition that was just acquired had no owner. */
  readonly withoutOwner: (id: string, freeForMs: number | 'unknown' | 'never') => WithoutOwner;
  /** A lease was lost, or a partition may be acquired again. */
  readonly onFreed: () => void;
  /** An error of Redis that ended a hand-over; the lease ends by itself. */
  readonly onFault: (error: unknown) => void;
}

type WithoutOwner = MqEventMap['leaseAcquired']['withoutOwner'];

/** Who is to have a partition, asked when it is free. */
export type Heir = () => string | null;

export const NO_HEIR: Heir = () => null;

interface Owned {
  readonly lease: Lease;
  readonly consumption: Consumption;
  readonly watcher: LeaseWatcher;
  /** The giving up that is under way. */
  leaving?: Promise<void>;
  /** It is left because of a pause, also if that came when it was being left already. */
  isPaused?: boolean;
}

interface Leave {
  readonly heir: Heir;
  readonly timeoutMs: number;
  readonly graceMs: number;
  readonly beforeRelease?: Promise<void>;
}

/** What an ending may take beyond the time of its handler. */
export const GRACE_MS = 1_000;
/** Nobody waits for a partition that is paused, and its lease says to whoever paused it that a handler still runs. */
const UNTIL_FINISHED_MS = Infinity;

/** The partitions that this instance owns for a group: takes a lease and consumes under it, and gives both up in order. */
export class Holdings {
  private readonly owned = new Map<string, Owned>();
  /** Topics of partitions whose earlier ownership here still runs code of the user: not acquired again meanwhile. */
  private readonly closing = new Map<string, string>();
  private readonly acquiring = new Map<string, { readonly topic: string; readonly done: Promise<void> }>();
  private readonly endings = new Set<Promise<void>>();
  private isClosed = false;

  constructor(
    private readonly deps: HoldingsDeps,
    private readonly watcher: HoldingsWatcher,
  ) {}

  get size(): number {
    return this.owned.size;
  }

  get ids(): readonly string[] {
    return [...this.owned.keys()];
  }

  has(id: string): boolean {
    return this.owned.has(id);
  }

  /** Whether it is owned and being given up. */
  isLeaving(id: string): boolean {
    return this.owned.get(id)?.leaving !== undefined;
  }

  /** Whether it is being acquired, or its earlier ownership has not ended yet. */
  isBetween(id: string): boolean {
    return this.acquiring.has(id) || this.closing.has(id);
  }

  /** Whether a partition of `topic` is owned or being acquired, or code of the user still runs for it. */
  holds(topic: string): boolean {
    const owned = [...this.owned.values()].map(({ lease }) => lease.terms.topic);
    const acquiring = [...this.acquiring.values()].map((each) => each.topic);
    return [...owned, ...acquiring].includes(topic) || this.isEnding(topic);
  }

  /** Whether code of the user still runs for a partition of `topic` that is owned no more. */
  isEnding(topic: string): boolean {
    return [...this.closing.values()].includes(topic);
  }

  /** Acquires it if it is free, unless it is held or may not be. @throws what Redis does */
  acquire(ref: PartitionRef): Promise<void> {
    const id = partitionId(ref.topic, ref.partition);
    if (this.owned.has(id) || this.closing.has(id) || this.isClosed) return Promise.resolve();
    if (!this.deps.topics.has(ref.topic)) return Promise.resolve();
    const pending = this.acquiring.get(id);
    if (pending !== undefined) return pending.done;
    const done = this.acquireNow(id, ref).finally(() => this.acquiring.delete(id));
    this.acquiring.set(id, { topic: ref.topic, done });
    return done;
  }

  /** Beside everything else: it may take as long as the running handler. */
  handOver(id: string, heir: Heir): void {
    const owned = this.owned.get(id);
    if (owned === undefined) return;
    this.leave(id, owned, heir, this.deps.handOverTimeoutMs(owned.lease.terms.topic));
  }

  pause(id: string): void {
    const owned = this.owned.get(id);
    if (owned !== undefined) this.pauseOwned(id, owned);
  }

  /** Acquires nothing more. Resolves when what is being acquired has been, and given back. */
  async close(): Promise<void> {
    this.isClosed = true;
    await Promise.all([...this.acquiring.values()].map(({ done }) => done));
  }

  /** Drains all in this turn, and releases each when `beforeRelease` has resolved. */
  async giveUpAll(heirOf: (id: string) => string | null, leave: Omit<Leave, 'heir'>): Promise<void> {
    await Promise.all(
      [...this.owned].map(([id, owned]) => this.giveUp(id, owned, { ...leave, heir: () => heirOf(id) })),
    );
  }

  /** Resolves when what has ended so far is over. */
  async ended(): Promise<void> {
    await Promise.all(this.endings);
  }

  private async acquireNow(id: string, ref: PartitionRef): Promise<void> {
    const { clock, group, events, leases, keeper, topics } = this.deps;
    const acquired = await leases.acquire(ref);
    if (acquired === null) return;
    const { terms, sentAt, freeForMs } = acquired;
    // Stopped meanwhile, as a whole or for this topic.
    if (this.isClosed || !topics.has(ref.topic)) {
      await leases.release(ref, terms.token, { keepLease: false });
      return;
    }
    const lease = new Lease(terms, sentAt, clock, (lost, reason) => this.lost(id, lost, reason));
    const consumption = this.deps.consume(lease);
    const watcher: LeaseWatcher = {
      lease,
      pendingSeen: (stream, retryStream) => consumption.pendingSeen(stream, retryStream),
      paused: () => this.pauseOwned(id, owned),
    };
    const owned: Owned = { lease, consumption, watcher };
    this.owned.set(id, owned);
    keeper.add(watcher);
    const withoutOwner = this.watcher.withoutOwner(id, freeForMs);
    events.emit('leaseAcquired', { ...ref, group, epoch: terms.epoch, clean: terms.clean, withoutOwner });
    consumption.start();
  }

  private pauseOwned(id: string, owned: Owned): void {
    owned.isPaused = true;
    this.leave(id, owned, NO_HEIR, UNTIL_FINISHED_MS);
  }

  private leave(id: string, owned: Owned, heir: Heir, timeoutMs: number): void {
    if (owned.leaving !== undefined) return;
    this.giveUp(id, owned, { heir, timeoutMs, graceMs: GRACE_MS }).catch(this.watcher.onFault);
  }

  /** A hand-over that is under way may wait as long as its handler's time limit; a shutdown does not. */
  private async giveUp(id: string, owned: Owned, leave: Leave): Promise<void> {
    if (owned.leaving === undefined) {
      owned.leaving = this.release(id, owned, leave);
      return owned.leaving;
    }
    const { clock, leases, keeper } = this.deps;
    if (await owned.consumption.drain(leave.timeoutMs, leave.graceMs)) {
      await within(clock, owned.leaving, GRACE_MS);
    } else if (!owned.lease.isEnded) {
      keeper.remove(owned.watcher);
      await within(clock, leases.release(owned.lease.terms, owned.lease.terms.token, { keepLease: true }), GRACE_MS);
    }
  }

  /** In order: no new reads, the running handler may finish, settled, released, announced with its heir. */
  private async release(id: string, owned: Owned, { heir, timeoutMs, graceMs, beforeRelease }: Leave): Promise<void> {
    const { lease, consumption, watcher } = owned;
    const { leases, keeper, events, announcements, announcedAs, group, instance } = this.deps;
    let inOrder = await consumption.drain(timeoutMs, graceMs);
    // Paused during a hand-over, which waits for the handler no longer than its time limit.
    const isPaused = owned.isPaused === true && !this.isClosed;
    if (!inOrder && isPaused && !lease.isEnded) inOrder = await consumption.drain(UNTIL_FINISHED_MS, graceMs);
    await beforeRelease;
    keeper.remove(watcher);
    if (lease.isEnded) return;
    const { topic, partition, token, epoch } = lease.terms;
    // A handler that did not end keeps the lease, which is renewed no more: it may still settle, and nobody runs beside it.
    try {
      const wasOurs = await leases.release(lease.terms, token, { keepLease: !inOrder });
      if (!wasOurs) {
        lease.lose('taken');
        return;
      }
      if (inOrder) {
        lease.end();
        events.emit('leaseReleased', { topic, partition, group, epoch });
        announcements.publish({ type: 'released', group: announcedAs, instance, topic, partition, heir: heir() });
      }
    } catch (error) {
      // Not released: it ends by itself, and the heir waits for that.
      if (inOrder) lease.end();
      this.watcher.onFault(error);
    }
    this.forget(id, owned);
  }

  private lost(id: string, lease: Lease, reason: LeaseLoss): void {
    const { topic, partition, group, epoch } = lease.terms;
    this.deps.events.emit('leaseLost', { topic, partition, group, epoch, reason });
    const owned = this.owned.get(id);
    if (owned?.lease !== lease) return;
    this.deps.keeper.remove(owned.watcher);
    this.forget(id, owned);
    this.watcher.onFreed();
  }

  private forget(id: string, owned: Owned): void {
    this.owned.delete(id);
    this.closing.set(id, owned.lease.terms.topic);
    const ending = this.deps.onEnded(owned.lease).finally(() => this.endings.delete(ending));
    this.endings.add(ending);
    void owned.consumption.finished().then(() => {
      this.closing.delete(id);
      this.watcher.onFreed();
    });
  }
}
