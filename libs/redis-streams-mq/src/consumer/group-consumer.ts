import type { Member } from '../core/assignment.js';
import { pause, type Clock } from '../core/clock.js';
import { MqError } from '../core/errors.js';
import type { MqEvents, PartitionRef } from '../core/events.js';
import type { HandlerDefinition, PartitionShare } from '../core/handler.js';
import type { Keys, PartitionKeys } from '../core/keys.js';
import type { ResolvedMqOptions } from '../core/options.js';
import type { Announcements } from '../redis/announcements.js';
import type { Connections } from '../redis/connections.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call } from '../redis/script.js';
import { dropConsumer } from '../redis/scripts/pending.script.js';
import { partitionCreate } from '../redis/scripts/topic-create.script.js';
import type { TopicRegistry } from '../redis/topic-registry.js';
import { startPosition } from './group-position.js';
import type { RateLimiter } from './rate-limiter.js';
import type { Slots } from './slots.js';
import type { Turns } from './turns.js';
import type { Baton } from './baton.js';
import { HandlerGate } from './handler-gate.js';
import type { InFlight } from './in-flight.js';
import { LeaseClient } from './lease-client.js';
import type { Lease, LeaseTerms } from './lease.js';
import type { LeaseKeeper } from './lease-keeper.js';
import { LetterDesk, type LetterAccess } from './letter-desk.js';
import { Membership } from './membership.js';
import type { Consumption } from './holdings.js';
import { Ownership } from './ownership.js';
import { PartitionConsumer } from './partition-consumer.js';
import { Reader } from './reader.js';
import type { ServerClock } from './server-clock.js';

/** A loop of the instance that has work on the partitions owned. */
export interface PartitionLoop {
  add(terms: LeaseTerms): void;
  remove(terms: LeaseTerms): void;
}

/** Whoever moves what becomes due on the partitions owned. */
export interface RetrySchedule extends PartitionLoop {
  due(inMs: number): void;
}

const DELETED = 'a handler names a topic that was deleted; it is not made again';

export interface GroupConsumerDeps {
  readonly group: string;
  /** One per topic. */
  readonly handlers: ReadonlyMap<string, HandlerDefinition>;
  /** Topics whose handlers are not to run until they are started. */
  readonly stoppedTopics: ReadonlySet<string>;
  readonly instance: string;
  readonly connections: Connections;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly random: () => number;
  readonly events: MqEvents;
  readonly options: ResolvedMqOptions;
  readonly topics: TopicRegistry;
  readonly announcements: Announcements;
  readonly keeper: LeaseKeeper;
  readonly slots: Slots;
  readonly turns: Turns;
  readonly baton: Baton;
  /** By the options that ask for them: those of one handler with several topics are the same. */
  readonly rateLimiters: ReadonlyMap<HandlerDefinition['options'], RateLimiter>;
  readonly inFlight: InFlight;
  readonly serverClock: ServerClock;
  readonly retries: RetrySchedule;
  readonly retention: PartitionLoop;
  /** Of a group that consumes dead letters; its keys are those of such groups. */
  readonly letters: LetterAccess | undefined;
  /** Connections that may block in Cluster, where each partition wants one; bounded for the instance. */
  readonly blockingReaders: Slots;
}

/** What becomes of the messages of a handler in this instance: they are handled, they wait here, or others have them. */
export type HandlerState = 'running' | 'paused' | 'stopped';

const LOOK_MS = 10;

/** One consumer group in this instance: its ownership, its reader, and the partitions it owns. */
export class GroupConsumer {
  private readonly ownership: Ownership;
  private readonly partitions = new Map<Lease, PartitionConsumer>();
  /** One for all partitions; in Cluster one each, since a blocking call can name one slot only. */
  private readonly readers = new Map<PartitionConsumer | null, Reader>();
  /** What this instance consumes at present. */
  private readonly subscriptions: Map<string, PartitionShare>;
  private readonly gates: ReadonlyMap<string, HandlerGate>;
  private readonly knownCounts = new Map<string, number>();
  private readonly warned = new Set<string>();
  private hasStopped = false;
  /** Streams on which this process has had the group, and their topics. */
  private readonly seen = new Map<string, string>();

  constructor(private readonly deps: GroupConsumerDeps) {
    const { group, instance, connections, keys, clock, events, options, handlers } = deps;
    // Membership ends before a dead member's leases do, so that its partitions have heirs when they become free.
    const memberTtlMs = options.leaseTtlMs - options.renewIntervalMs;
    const started = [...handlers.values()].filter(({ topic }) => !deps.stoppedTopics.has(topic));
    this.subscriptions = new Map(started.map((h) => [h.topic, h.options.share]));
    this.gates = new Map([...handlers.keys()].map((topic) => [topic, new HandlerGate()]));
    const { subscriptions } = this;
    const self: Member = { id: instance, cap: options.maxLeasedPartitionsPerConsumer, subscriptions };
    this.ownership = new Ownership({
      ...deps,
      announcedAs: this.nameAmongAll,
      connection: connections.control,
      leases: new LeaseClient({
        group,
        instance,
        connection: connections.control,
        isCluster: connections.isCluster,
        keys,
        clock,
        leaseTtlMs: options.leaseTtlMs,
      }),
      membership: new Membership({
        ...deps,
        connection: connections.control,
        keys: keys.members(group),
        clock,
        self,
        ttlMs: memberTtlMs,
      }),
      rebalanceIntervalMs: Math.min(options.rebalanceIntervalMs, Math.floor(memberTtlMs / 3)),
      topics: subscriptions,
      handOverTimeoutMs: (topic) => handlers.get(topic)?.options.handlerTimeoutMs || options.drainTimeoutMs,
      partitionsOf: (topics) => this.partitionsOf(topics),
      consume: (lease) => this.consume(lease),
      onEnded: (lease) => this.ended(lease),
      events,
    });
  }

  get topics(): readonly string[] {
    return [...this.deps.handlers.keys()];
  }

  get group(): string {
    return this.deps.group;
  }

  /** A group of dead letters may be called as one that handles messages is. */
  private get nameAmongAll(): string {
    return this.deps.letters === undefined ? this.deps.group : `dlq:${this.deps.group}`;
  }

  get consumesLetters(): boolean {
    return this.deps.letters !== undefined;
  }

  get owned(): number {
    return this.ownership.ownedCount;
  }

  get eligible(): number {
    return this.ownership.eligibleCount;
  }

  get unowned(): readonly string[] {
    return this.ownership.unownedPartitions;
  }

  get consumers(): Iterable<PartitionConsumer> {
    return this.partitions.values();
  }

  /** Milliseconds since each loop last went round, and why it cannot do its work, if it cannot. */
  get loops(): readonly {
    readonly name: string;
    readonly lastTickAgoMs: number;
    readonly intervalMs?: number;
    readonly failure?: string | undefined;
  }[] {
    const { group } = this.deps;
    return [
      { name: `ownership:${group}`, lastTickAgoMs: this.ownership.lastTickAgoMs },
      ...[...this.readers.values()].map((reader) => ({
        name: `reader:${group}`,
        lastTickAgoMs: reader.lastTickAgoMs,
        intervalMs: reader.longestReadMs,
        failure: reader.failure,
      })),
    ];
  }

  stateOf(topic: string): HandlerState {
    if (!this.subscriptions.has(topic)) return 'stopped';
    return this.gates.get(topic)?.isOpen === false ? 'paused' : 'running';
  }

  /** Consumes `topic` again after `stopTopic`, and goes on after `pauseTopic`. */
  startTopic(topic: string): void {
    const handler = this.deps.handlers.get(topic);
    if (handler === undefined) return;
    this.gates.get(topic)?.open();
    if (this.subscriptions.has(topic)) return;
    this.subscriptions.set(topic, handler.options.share);
    this.ownership.topicsChanged();
  }

  /** Gives up the partitions of `topic` in order; resolves when none is left and none of its calls runs. */
  async stopTopic(topic: string): Promise<void> {
    this.subscriptions.delete(topic);
    this.ownership.topicsChanged();
    await this.until(() => this.subscriptions.has(topic) || !this.ownership.holds(topic));
  }

  /** Begins no call for `topic`, keeps its partitions; resolves when none of its calls runs or is being begun. */
  async pauseTopic(topic: string): Promise<void> {
    const gate = this.gates.get(topic);
    gate?.close();
    const isBusy = (): boolean =>
      this.ownership.isEnding(topic) ||
      [...this.partitions.values()].some((partition) => partition.lease.terms.topic === topic && partition.isBusy);
    await this.until(() => gate?.isOpen !== false || !isBusy());
  }

  private async until(isSo: () => boolean): Promise<void> {
    while (!this.hasStopped && !isSo()) await pause(this.deps.clock, LOOK_MS);
  }

  start(): void {
    if (!this.deps.connections.isCluster) this.openReader(null);
    this.ownership.start();
  }

  async stop(drainTimeoutMs: number): Promise<void> {
    this.hasStopped = true;
    await this.ownership.stop(drainTimeoutMs);
    await Promise.all([...this.readers.values()].map((reader) => reader.stop()));
  }

  /** A timer's look at what is pending against what is held, for partitions that no traffic checks. */
  scan(): void {
    for (const partition of this.partitions.values()) partition.requestCheck();
  }

  private consume(lease: Lease): Consumption {
    const { deps } = this;
    const { topic } = lease.terms;
    const handler = deps.handlers.get(topic)!;
    const { connections, keys, options } = deps;
    const { serializer, ackFlushMs, claimBatchSize } = options;
    const { letters } = deps;
    const subscription = handler.deadLetters;
    const connection = connections.command;
    const desk =
      letters === undefined || subscription === undefined
        ? undefined
        : new LetterDesk({ ...deps, letters, subscription, lease, connection });
    const partition: PartitionConsumer = new PartitionConsumer({
      ...deps,
      handler,
      lease,
      gate: this.gates.get(topic)!,
      rateLimiter: deps.rateLimiters.get(handler.options),
      consumer: deps.instance,
      connection,
      desk,
      serializer,
      ackFlushMs,
      pageSize: claimBatchSize,
      serverNow: deps.serverClock.now,
      startPosition: () =>
        startPosition(connection, keys.topic(topic).meta, this.nameAmongAll, handler.options.startFrom),
      restoreStream: () => this.restoreStream(topic, lease.terms.keys),
      hadGroup: () => this.seenGroup(lease),
      onReadableChanged: () => this.readerOf(partition)?.readableChanged(),
      outsideRead: async () => this.readerOf(partition)?.outside(partition),
      onRetryDue: (inMs) => deps.retries.due(inMs),
    });
    this.partitions.set(lease, partition);
    return {
      start: () => {
        partition.start();
        if (connections.isCluster) this.openReader(partition);
        this.readerOf(partition)?.add(partition);
        deps.retries.add(lease.terms);
        deps.retention.add(lease.terms);
      },
      pendingSeen: (stream, retryStream) => partition.pendingSeen(stream, retryStream),
      drain: (timeoutMs, graceMs) => partition.drain(timeoutMs, graceMs),
      finished: () => partition.finished(),
    };
  }

  private seenGroup({ terms }: Lease): boolean {
    const had = this.seen.has(terms.keys.stream);
    this.seen.set(terms.keys.stream, terms.topic);
    return had;
  }

  private async ended(lease: Lease): Promise<void> {
    const partition = this.partitions.get(lease);
    if (partition === undefined) return;
    this.partitions.delete(lease);
    this.deps.retries.remove(lease.terms);
    this.deps.retention.remove(lease.terms);
    const reader = this.readerOf(partition);
    reader?.remove(partition);
    if (this.readers.delete(partition)) {
      if (reader?.isBlocking) this.deps.blockingReaders.give();
      void reader?.stop();
    }
    await this.dropConsumer(lease);
  }

  /** Best effort: a consumer that has entries pending stays, and the next owner takes them over. */
  private async dropConsumer({ terms }: Lease): Promise<void> {
    const { connections, instance, group } = this.deps;
    const calls = [terms.keys.stream, terms.keys.retryStream].map((source) =>
      call(dropConsumer, { source }, { group, consumer: instance }),
    );
    await connections.command.runAll(calls).catch(() => undefined);
  }

  private openReader(partition: PartitionConsumer | null): void {
    const { group, instance, connections, clock, events, inFlight, options, keys, handlers } = this.deps;
    const reader = new Reader({
      group,
      consumer: instance,
      connections,
      clock,
      events,
      inFlight,
      pollTimeoutMs: Math.min(...[...handlers.values()].map((handler) => handler.options.pollTimeoutMs)),
      slackMs: options.redisTimeoutMs,
      wakeStream: partition === null ? keys.wake(instance, group) : undefined,
      blocking: partition === null || this.deps.blockingReaders.tryTake(),
    });
    this.readers.set(partition, reader);
    reader.start();
  }

  private readerOf(partition: PartitionConsumer): Reader | undefined {
    return this.readers.get(partition) ?? this.readers.get(null);
  }

  private async partitionsOf(topics: ReadonlySet<string>): Promise<PartitionRef[]> {
    const refs: PartitionRef[] = [];
    for (const topic of topics) {
      const count = await this.partitionCount(topic);
      for (let partition = 0; partition < count; partition++) refs.push({ topic, partition });
    }
    return refs;
  }

  /** 0 for a topic that is not there and is not ours to make. */
  private async partitionCount(topic: string): Promise<number> {
    const { handlers, options, topics } = this.deps;
    let meta = await this.refreshed(topic);
    if (meta === null && handlers.has(topic)) {
      const known = this.knownCounts.get(topic);
      if (options.autoCreateTopics || known !== undefined) {
        meta = await this.make(topic, known ?? this.definedCount(topic));
      } else {
        this.warn(topic, 'a handler names a topic that does not exist, and autoCreateTopics is off');
      }
    }
    if (meta === null) return 0;
    this.warned.delete(topic + DELETED);
    if (handlers.has(topic)) void topics.register(topic);
    const { partitionCount } = meta;
    const before = this.knownCounts.get(topic) ?? partitionCount;
    if (before !== partitionCount) this.countChanged(topic, before, partitionCount);
    const defined = handlers.get(topic)?.partitionCount ?? partitionCount;
    if (defined !== partitionCount) {
      this.warn(topic, 'a topic has another number of partitions than its definition says; it keeps its own');
    }
    this.knownCounts.set(topic, partitionCount);
    return partitionCount;
  }

  private definedCount(topic: string): number {
    return this.deps.handlers.get(topic)?.partitionCount ?? this.deps.options.defaultPartitionCount;
  }

  private countChanged(topic: string, before: number, partitionCount: number): void {
    const message =
      partitionCount > before
        ? 'the partition count of a topic was raised: keys have moved to other partitions'
        : 'the partition count of a topic was lowered: what waits in the partitions beyond it is not read';
    this.deps.events.emit('warning', { message, fields: { topic, group: this.deps.group, before, partitionCount } });
  }

  /** With the shard of its meta away, a topic is as it was when last seen; the other topics do not wait for it. */
  private async refreshed(topic: string): ReturnType<TopicRegistry['find']> {
    try {
      return await this.deps.topics.refresh(topic);
    } catch (error) {
      const cached = this.deps.topics.cached(topic);
      if (cached === undefined || classifyRedisError(error) !== 'transient') throw error;
      return cached;
    }
  }

  private async make(topic: string, partitionCount: number): ReturnType<TopicRegistry['find']> {
    try {
      return await this.deps.topics.ensure(topic, partitionCount);
    } catch (error) {
      if (!(error instanceof MqError) || error.code !== 'MQ_TOPIC_DELETED') throw error;
      this.warn(topic, DELETED);
      // Made again on purpose, it is another topic.
      this.knownCounts.delete(topic);
      for (const [stream, of] of this.seen) if (of === topic) this.seen.delete(stream);
      return null;
    }
  }

  private async restoreStream(topic: string, keys: PartitionKeys): Promise<boolean> {
    const { topics } = this.deps;
    topics.forget(topic);
    const meta = await this.make(topic, this.knownCounts.get(topic) ?? this.definedCount(topic));
    if (meta === null) return false;
    await topics.ensureStreams(meta);
    // Nobody makes a DLQ before there is a letter.
    if (this.consumesLetters) await this.deps.connections.command.run(call(partitionCreate, keys, {}));
    return true;
  }

  private warn(topic: string, message: string): void {
    if (this.warned.has(topic + message)) return;
    this.warned.add(topic + message);
    this.deps.events.emit('warning', { message, fields: { topic, group: this.deps.group } });
  }
}
