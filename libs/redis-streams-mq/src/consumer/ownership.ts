import { assign, partitionId, type Assignment, type Member } from '../core/assignment.js';
import { pause, within, type Clock, type Timer } from '../core/clock.js';
import type { MqEventMap, MqEvents, PartitionRef } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import type { Announcement, Announcements } from '../redis/announcements.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import type { Holders, LeaseClient } from './lease-client.js';
import { Lease, type LeaseLoss } from './lease.js';
import type { LeaseKeeper, LeaseWatcher } from './lease-keeper.js';
import type { Membership } from './membership.js';
import { OverCapWarning } from './over-cap-warning.js';

/** What is consumed under a lease; made when it is acquired. */
export interface Consumption {
  start(): void;
  pendingSeen(stream: number, retryStream: number): void;
  /** See PartitionConsumer.drain. */
  drain(timeoutMs: number, graceMs: number): Promise<boolean>;
  /** Resolves when no code of the user runs under this lease any more. */
  finished(): Promise<void>;
}

export interface OwnershipDeps {
  readonly group: string;
  /** The group's name among all that announce something. */
  readonly announcedAs: string;
  readonly instance: string;
  /** Never one that blocks. */
  readonly connection: Connection;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly random: () => number;
  readonly membership: Membership;
  readonly leases: LeaseClient;
  readonly keeper: LeaseKeeper;
  readonly announcements: Announcements;
  readonly rebalanceIntervalMs: number;
  /** Topics that this instance consumes; handlers may be stopped and started. */
  readonly topics: ReadonlyMap<string, unknown>;
  /** How long a hand-over waits for the running handler of `topic`, in milliseconds. */
  readonly handOverTimeoutMs: (topic: string) => number;
  /** All partitions of these topics that exist; makes those of this instance's own topics that do not. */
  readonly partitionsOf: (topics: ReadonlySet<string>) => Promise<PartitionRef[]>;
  readonly consume: (lease: Lease) => Consumption;
  /** Called when consumption under a lease is over, however it ended. */
  readonly onEnded: (lease: Lease) => Promise<void>;
}

interface Owned {
  readonly lease: Lease;
  readonly consumption: Consumption;
  readonly watcher: LeaseWatcher;
  /** The giving up that is under way. */
  leaving?: Promise<void>;
}

/** Who is to have a partition, asked when it is free. */
type Heir = () => string | null;

const NO_HEIR: Heir = () => null;
const GRACE_MS = 1_000;
const RECHECK_MS = 500;
/** Nobody waits for a partition that is paused, and its lease says to whoever paused it that a handler still runs. */
const UNTIL_FINISHED_MS = Infinity;

/**
 * Decides with all members of the group, by the same pure function, who owns what; acquires what is free and its own in
 * the target, gives up what the target gives to another living member, and takes from nobody.
 */
export class Ownership {
  private readonly owned = new Map<string, Owned>();
  /** Partitions whose earlier ownership here still runs code of the user: not acquired again meanwhile. */
  private readonly closing = new Set<string>();
  private readonly acquiring = new Map<string, Promise<void>>();
  private readonly endings = new Set<Promise<void>>();
  private readonly stopping = new AbortController();
  private readonly backoff: Backoff;
  private readonly overCap: OverCapWarning;
  private readonly detach: (() => void)[] = [];
  private loop: Promise<void> | undefined;
  private wake: (() => void) | undefined;
  private requested = false;
  private debounce: Timer | undefined;
  private members: readonly Member[] = [];
  private partitions: readonly PartitionRef[] = [];
  /** Who held what at the last look. */
  private owners: ReadonlyMap<string, string> = new Map();
  /** Those that were not paused at the last look: only they are shared out. */
  private running: readonly PartitionRef[] = [];
  /** Those that were paused at some look and not acquired here since. */
  private readonly seenPaused = new Set<string>();
  private tickedAt: number;
  private hasReconciled = false;
  private unownedSince: ReadonlyMap<string, number> = new Map();

  constructor(private readonly deps: OwnershipDeps) {
    this.backoff = new Backoff({ minMs: 50, maxMs: Math.max(50, Math.min(2_000, deps.rebalanceIntervalMs)) });
    this.overCap = new OverCapWarning(deps);
    this.tickedAt = deps.clock.monotonic();
  }

  get lastTickAgoMs(): number {
    return this.deps.clock.monotonic() - this.tickedAt;
  }

  get ownedCount(): number {
    return this.owned.size;
  }

  get eligibleCount(): number {
    return this.partitions.length;
  }

  /** Partitions of this group that nobody has held for longer than a rebalance takes. */
  get unownedPartitions(): readonly string[] {
    const before = this.deps.clock.monotonic() - 2 * this.deps.rebalanceIntervalMs;
    return [...this.unownedSince].filter(([, since]) => since <= before).map(([id]) => id);
  }

  start(): void {
    if (this.loop !== undefined || this.stopping.signal.aborted) return;
    const { announcements } = this.deps;
    this.detach.push(
      announcements.onAnnouncement((announcement) => this.heard(announcement)),
      announcements.onResubscribed(() => this.reconcileSoon()),
    );
    this.loop = this.run();
  }

  /** Drains, settles, releases and announces everything, within `drainTimeoutMs`, then leaves the group. */
  async stop(drainTimeoutMs: number): Promise<void> {
    if (this.stopping.signal.aborted) return;
    this.stopping.abort();
    for (const detach of this.detach) detach();
    this.debounce?.cancel();
    this.wake?.();
    const { clock, membership } = this.deps;
    let heirs = this.heirsWithoutMe();
    // Left before anything is released, so that nobody reckons with this instance any more. The draining waits for
    // neither: it begins in this turn, and no handler starts after it.
    const left = (async () => {
      await within(clock, Promise.all([this.loop, ...this.acquiring.values()]), Math.min(1_000, drainTimeoutMs));
      await within(clock, membership.leave(), 1_000);
      // Others may have taken partitions since the last look, and an heir is named by what each of them has.
      await within(clock, this.lookAtOwners(), 1_000);
      heirs = this.heirsWithoutMe();
    })();
    await Promise.all(
      [...this.owned].map(([id, owned]) =>
        this.giveUp(
          id,
          owned,
          () => heirs.get(id) ?? null,
          drainTimeoutMs,
          Math.min(GRACE_MS, drainTimeoutMs / 10),
          left,
        ),
      ),
    );
    await left;
    await within(clock, Promise.all(this.endings), GRACE_MS);
    const { announcements, announcedAs, instance } = this.deps;
    announcements.publish({ type: 'left', group: announcedAs, instance });
  }

  /** The topics of this instance have changed: it says so, and takes or gives up what follows. */
  topicsChanged(): void {
    this.reconcileSoon();
  }

  /** Whether a partition of `topic` is owned or being acquired, or code of the user still runs for it. */
  holds(topic: string): boolean {
    const isOfTopic = (id: string): boolean =>
      this.partitions.some((ref) => ref.topic === topic && partitionId(ref.topic, ref.partition) === id);
    const owned = [...this.owned.values()].some(({ lease }) => lease.terms.topic === topic);
    return owned || [...this.acquiring.keys(), ...this.closing].some(isOfTopic);
  }

  /** One look at members and leases, and what follows from it. Returns when to look again, in milliseconds. */
  async runOnce(): Promise<number> {
    const { membership, rebalanceIntervalMs } = this.deps;
    this.tickedAt = this.deps.clock.monotonic();
    this.members = await membership.beat();
    const topics = new Set(this.members.flatMap((member) => [...member.subscriptions.keys()]));
    this.partitions = await this.deps.partitionsOf(topics);
    const holders = await this.lookAtOwners();
    if (holders.fault !== undefined) this.report(holders.fault, RECHECK_MS);
    const assignment = assign(this.members, this.running, this.owners);
    this.overCap.look(assignment);
    const nextMs = await this.follow(assignment, holders);
    this.hasReconciled = true;
    return Math.min(nextMs, rebalanceIntervalMs);
  }

  private async lookAtOwners(): Promise<Holders> {
    const holders = await this.deps.leases.holders(this.partitions);
    const owners = new Map<string, string>();
    for (const ref of this.partitions) {
      const id = partitionId(ref.topic, ref.partition);
      const holder = holders.of(ref);
      // Unknown: as at the last look, so that nothing else is moved because of it.
      const instance = holder === undefined ? this.owners.get(id) : holder.instance;
      if (instance !== undefined && instance !== null) owners.set(id, instance);
    }
    this.owners = owners;
    this.running = this.partitions.filter((ref) => {
      const isPaused = holders.of(ref)?.paused === true;
      if (isPaused) this.seenPaused.add(partitionId(ref.topic, ref.partition));
      return !isPaused;
    });
    return holders;
  }

  private async follow({ owners: target }: Assignment, holders: Holders): Promise<number> {
    const { instance, events, group, leases } = this.deps;
    const alive = new Set(this.members.map((member) => member.id));
    let nextMs = Infinity;
    let givenUp = 0;
    const wanted: PartitionRef[] = [];
    const unowned = new Map<string, number>();
    for (const ref of this.partitions) {
      const id = partitionId(ref.topic, ref.partition);
      const owner = target.get(id) ?? null;
      const mine = this.owned.get(id);
      const holder = holders.of(ref);
      if (mine !== undefined) {
        if (holder?.paused) this.pause(id, mine);
        else if (owner !== null && owner !== instance && alive.has(owner) && mine.leaving === undefined) {
          givenUp++;
          this.handOver(id, mine, () => owner);
        } else if (!this.deps.topics.has(ref.topic) && mine.leaving === undefined) {
          givenUp++;
          this.handOver(id, mine, NO_HEIR);
        }
        continue;
      }
      if (holder === undefined) {
        unowned.set(id, this.unownedSince.get(id) ?? this.tickedAt);
        nextMs = Math.min(nextMs, RECHECK_MS);
      } else if (holder.paused && holder.instance !== instance) {
        continue; // It has no owner on purpose, or its owner is about to leave it.
      } else if (holder.token === null || holder.instance === null) {
        unowned.set(id, this.unownedSince.get(id) ?? this.tickedAt);
        if (owner === instance) wanted.push(ref);
        else if (owner !== null) nextMs = Math.min(nextMs, RECHECK_MS);
      } else if (holder.instance === instance && !this.closing.has(id) && !this.acquiring.has(id)) {
        // Ours without our knowing: an acquire whose answer was lost is repeated; else a release did not arrive.
        if (leases.isUnanswered(ref)) wanted.push(ref);
        else await leases.release(ref, holder.token, { keepLease: false });
        nextMs = 0;
      } else if (!alive.has(holder.instance)) {
        nextMs = Math.min(nextMs, holder.leftMs + 5);
      }
    }
    this.unownedSince = unowned;
    // A topic that was deleted, or a subscription's share that no longer covers it.
    for (const [id, owned] of this.owned) if (!target.has(id)) this.handOver(id, owned, NO_HEIR);
    const before = this.owned.size;
    const attempts = await Promise.allSettled(wanted.map((ref) => this.acquirePartition(ref)));
    const refused = attempts.find((attempt) => attempt.status === 'rejected');
    const acquired = this.owned.size - before;
    if (acquired > 0 || givenUp > 0) {
      events.emit('rebalanced', { group, members: this.members.length, owned: this.owned.size, acquired, givenUp });
    }
    if (refused !== undefined) this.report(refused.reason, RECHECK_MS);
    if (acquired < wanted.length) nextMs = Math.min(nextMs, RECHECK_MS);
    return nextMs;
  }

  private report(error: unknown, retryInMs: number): void {
    const component = `ownership:${this.deps.group}`;
    this.deps.events.emit('fault', { component, class: classifyRedisError(error), error, retryInMs });
  }

  private acquirePartition(ref: PartitionRef): Promise<void> {
    const id = partitionId(ref.topic, ref.partition);
    if (this.owned.has(id) || this.closing.has(id) || this.stopping.signal.aborted) return Promise.resolve();
    if (!this.deps.topics.has(ref.topic)) return Promise.resolve();
    let pending = this.acquiring.get(id);
    if (pending === undefined) {
      pending = this.acquireNow(id, ref).finally(() => this.acquiring.delete(id));
      this.acquiring.set(id, pending);
    }
    return pending;
  }

  private async acquireNow(id: string, ref: PartitionRef): Promise<void> {
    const { clock, group, events, leases } = this.deps;
    const acquired = await leases.acquire(ref);
    if (acquired === null) return;
    const { terms, sentAt, freeForMs } = acquired;
    if (this.stopping.signal.aborted) {
      await leases.release(ref, terms.token, { keepLease: false });
      return;
    }
    const lease = new Lease(terms, sentAt, clock, (lost, reason) => this.lost(id, lost, reason));
    const consumption = this.deps.consume(lease);
    const watcher: LeaseWatcher = {
      lease,
      pendingSeen: (stream, retryStream) => consumption.pendingSeen(stream, retryStream),
      paused: () => this.pause(id, owned),
    };
    const owned: Owned = { lease, consumption, watcher };
    this.owned.set(id, owned);
    this.deps.keeper.add(watcher);
    const withoutOwner = this.withoutOwner(id, freeForMs);
    events.emit('leaseAcquired', { ...ref, group, epoch: terms.epoch, clean: terms.clean, withoutOwner });
    consumption.start();
  }

  /** A lease that ended by itself has left no time: the partition counts from when it was first seen to be free. A pause counts for none. */
  private withoutOwner(
    id: string,
    freeForMs: number | 'unknown' | 'never',
  ): MqEventMap['leaseAcquired']['withoutOwner'] {
    if (freeForMs === 'never' || this.seenPaused.delete(id)) return undefined;
    if (freeForMs !== 'unknown') return { since: 'released', ms: freeForMs };
    const seenAt = this.unownedSince.get(id);
    return seenAt === undefined ? undefined : { since: 'expired', ms: this.deps.clock.monotonic() - seenAt };
  }

  private pause(id: string, owned: Owned): void {
    this.handOver(id, owned, NO_HEIR, UNTIL_FINISHED_MS);
  }

  /** Beside everything else: it may take as long as the running handler. */
  private handOver(
    id: string,
    owned: Owned,
    heir: Heir,
    timeoutMs: number = this.deps.handOverTimeoutMs(owned.lease.terms.topic),
  ): void {
    if (owned.leaving !== undefined) return;
    this.giveUp(id, owned, heir, timeoutMs, GRACE_MS).catch((error: unknown) => this.report(error, 0));
  }

  /** A hand-over that is under way may wait as long as its handler's time limit; a shutdown does not. */
  private async giveUp(...args: Parameters<Ownership['release']>): Promise<void> {
    const [, owned, , timeoutMs, graceMs] = args;
    if (owned.leaving === undefined) {
      owned.leaving = this.release(...args);
      return owned.leaving;
    }
    const { clock, leases, keeper } = this.deps;
    if (await owned.consumption.drain(timeoutMs, graceMs)) {
      await within(clock, owned.leaving, GRACE_MS);
    } else if (!owned.lease.isEnded) {
      keeper.remove(owned.watcher);
      await within(clock, leases.release(owned.lease.terms, owned.lease.terms.token, { keepLease: true }), GRACE_MS);
    }
  }

  /** In order: no new reads, the running handler may finish, settled, released, announced with its heir. */
  private async release(
    id: string,
    owned: Owned,
    heir: Heir,
    timeoutMs: number,
    graceMs: number,
    beforeRelease?: Promise<void>,
  ): Promise<void> {
    const { lease, consumption, watcher } = owned;
    const { leases, keeper, events, announcements, announcedAs, group, instance } = this.deps;
    const inOrder = await consumption.drain(timeoutMs, graceMs);
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
      this.report(error, 0);
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
    this.reconcileSoon();
  }

  private forget(id: string, owned: Owned): void {
    this.owned.delete(id);
    this.closing.add(id);
    const ending = this.deps.onEnded(owned.lease).finally(() => this.endings.delete(ending));
    this.endings.add(ending);
    void owned.consumption.finished().then(() => {
      this.closing.delete(id);
      this.reconcileSoon();
    });
  }

  private async run(): Promise<void> {
    const { connection, clock, events, random, group, announcedAs, instance, announcements, rebalanceIntervalMs } =
      this.deps;
    const { signal } = this.stopping;
    let announced = false;
    let faultSince: number | undefined;
    while (!signal.aborted) {
      let waitMs = rebalanceIntervalMs;
      this.requested = false;
      try {
        if (!announced) {
          if (!(await connection.whenReady(rebalanceIntervalMs, signal))) continue;
          await this.deps.membership.beat();
          announcements.publish({ type: 'joined', group: announcedAs, instance });
          announced = true;
          await pause(clock, 100 + 50 * random(), signal);
          if (signal.aborted) break;
        }
        waitMs = await this.runOnce();
        if (faultSince !== undefined)
          events.emit('recovered', { component: `ownership:${group}`, afterMs: clock.monotonic() - faultSince });
        faultSince = undefined;
        this.backoff.reset();
      } catch (error) {
        if (signal.aborted) break;
        waitMs = this.backoff.next();
        faultSince ??= clock.monotonic();
        this.report(error, waitMs);
      }
      if (this.requested) continue;
      const woken = new AbortController();
      this.wake = () => woken.abort();
      await pause(clock, waitMs, woken.signal);
      this.wake = undefined;
    }
  }

  private heard(announcement: Announcement): void {
    const { announcedAs, instance } = this.deps;
    if (announcement.type === 'topic') {
      if (this.deps.topics.has(announcement.topic)) this.reconcileSoon();
      return;
    }
    if (announcement.type === 'due' || announcement.group !== announcedAs || announcement.instance === instance) return;
    if (announcement.type === 'released' && announcement.heir === instance) {
      const { topic, partition } = announcement;
      // Whoever names us has seen us join: there is no need to wait for the first look of our own.
      const isKnown =
        !this.hasReconciled || this.partitions.some((ref) => ref.topic === topic && ref.partition === partition);
      if (isKnown && this.deps.topics.has(topic))
        this.acquirePartition({ topic, partition }).catch(() => this.reconcileSoon());
    }
    if (announcement.type !== 'released' || announcement.heir !== instance) this.reconcileSoon();
  }

  /** Several announcements in a row lead to one look. */
  private reconcileSoon(): void {
    if (this.stopping.signal.aborted || this.debounce !== undefined) return;
    this.debounce = this.deps.clock.setTimer(
      () => {
        this.debounce = undefined;
        this.requested = true;
        this.wake?.();
      },
      20 + 20 * this.deps.random(),
    );
  }

  private heirsWithoutMe(): ReadonlyMap<string, string | null> {
    const { instance } = this.deps;
    const others = this.members.filter((member) => member.id !== instance);
    const theirs = new Map([...this.owners].filter(([, owner]) => owner !== instance));
    return assign(others, this.running, theirs).owners;
  }
}
