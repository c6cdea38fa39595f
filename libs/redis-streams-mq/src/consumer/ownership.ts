import { assign, partitionId, type Assignment, type Member } from '../core/assignment.js';
import { pause, within, type Timer } from '../core/clock.js';
import type { MqEventMap, PartitionRef } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import type { Announcement } from '../redis/announcements.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { GRACE_MS, Holdings, NO_HEIR, type HoldingsDeps } from './holdings.js';
import type { Holders } from './lease-client.js';
import type { Membership } from './membership.js';
import { OverCapWarning } from './over-cap-warning.js';

export interface OwnershipDeps extends HoldingsDeps {
  /** Never one that blocks. */
  readonly connection: Connection;
  readonly random: () => number;
  readonly membership: Membership;
  readonly rebalanceIntervalMs: number;
  /** All partitions of these topics that exist; makes those of this instance's own topics that do not. */
  readonly partitionsOf: (topics: ReadonlySet<string>) => Promise<PartitionRef[]>;
}

const RECHECK_MS = 500;

/**
 * Decides with all members of the group, by the same pure function, who owns what; acquires what is free and its own in
 * the target, gives up what the target gives to another living member, and takes from nobody.
 */
export class Ownership {
  private readonly holdings: Holdings;
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
    this.holdings = new Holdings(deps, {
      withoutOwner: (id, freeForMs) => this.withoutOwner(id, freeForMs),
      onFreed: () => this.reconcileSoon(),
      onFault: (error) => this.report(error, 0),
    });
    this.tickedAt = deps.clock.monotonic();
  }

  get lastTickAgoMs(): number {
    return this.deps.clock.monotonic() - this.tickedAt;
  }

  get ownedCount(): number {
    return this.holdings.size;
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
    const acquired = this.holdings.close();
    const left = (async () => {
      await within(clock, Promise.all([this.loop, acquired]), Math.min(1_000, drainTimeoutMs));
      await within(clock, membership.leave(), 1_000);
      // Others may have taken partitions since the last look, and an heir is named by what each of them has.
      await within(clock, this.lookAtOwners(), 1_000);
      heirs = this.heirsWithoutMe();
    })();
    await this.holdings.giveUpAll((id) => heirs.get(id) ?? null, {
      timeoutMs: drainTimeoutMs,
      graceMs: Math.min(GRACE_MS, drainTimeoutMs / 10),
      beforeRelease: left,
    });
    await left;
    await within(clock, this.holdings.ended(), GRACE_MS);
    const { announcements, announcedAs, instance } = this.deps;
    announcements.publish({ type: 'left', group: announcedAs, instance });
  }

  /** The topics of this instance have changed: it says so, and takes or gives up what follows. */
  topicsChanged(): void {
    this.reconcileSoon();
  }

  /** Whether a partition of `topic` is owned or being acquired, or code of the user still runs for it. */
  holds(topic: string): boolean {
    return this.holdings.holds(topic);
  }

  /** Whether code of the user still runs for a partition of `topic` that is owned no more. */
  isEnding(topic: string): boolean {
    return this.holdings.isEnding(topic);
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
    const { instance, events, group, leases, topics } = this.deps;
    const { holdings } = this;
    const alive = new Set(this.members.map((member) => member.id));
    let nextMs = Infinity;
    let givenUp = 0;
    const wanted: PartitionRef[] = [];
    const unowned = new Map<string, number>();
    for (const ref of this.partitions) {
      const id = partitionId(ref.topic, ref.partition);
      const owner = target.get(id) ?? null;
      const holder = holders.of(ref);
      if (holdings.has(id)) {
        if (holder?.paused) holdings.pause(id);
        else if (owner !== null && owner !== instance && alive.has(owner) && !holdings.isLeaving(id)) {
          givenUp++;
          holdings.handOver(id, () => owner);
        } else if (!topics.has(ref.topic) && !holdings.isLeaving(id)) {
          givenUp++;
          holdings.handOver(id, NO_HEIR);
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
      } else if (holder.instance === instance && !holdings.isBetween(id)) {
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
    for (const id of holdings.ids) if (!target.has(id)) holdings.handOver(id, NO_HEIR);
    const before = holdings.size;
    const attempts = await Promise.allSettled(wanted.map((ref) => holdings.acquire(ref)));
    const refused = attempts.find((attempt) => attempt.status === 'rejected');
    const acquired = holdings.size - before;
    if (acquired > 0 || givenUp > 0) {
      events.emit('rebalanced', { group, members: this.members.length, owned: holdings.size, acquired, givenUp });
    }
    if (refused !== undefined) this.report(refused.reason, RECHECK_MS);
    if (acquired < wanted.length) nextMs = Math.min(nextMs, RECHECK_MS);
    return nextMs;
  }

  private report(error: unknown, retryInMs: number): void {
    const component = `ownership:${this.deps.group}`;
    this.deps.events.emit('fault', { component, class: classifyRedisError(error), error, retryInMs });
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
        this.holdings.acquire({ topic, partition }).catch(() => this.reconcileSoon());
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
