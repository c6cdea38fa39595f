import { pause, within, type Clock } from '../core/clock.js';
import type { GroupPartitionRef, MqEvents } from '../core/events.js';
import type { HandlerDefinition } from '../core/handler.js';
import type { LetterAccess } from './letter-desk.js';
import type { Keys } from '../core/keys.js';
import type { ResolvedMqOptions } from '../core/options.js';
import type { Announcements } from '../redis/announcements.js';
import type { Connections } from '../redis/connections.js';
import type { TopicRegistry } from '../redis/topic-registry.js';
import { GroupConsumer, type HandlerState, type PartitionLoop, type RetrySchedule } from './group-consumer.js';
import { RateLimiter } from './rate-limiter.js';
import { Slots } from './slots.js';
import { Turns } from './turns.js';
import { Baton } from './baton.js';
import { InFlight } from './in-flight.js';
import { LeaseKeeper } from './lease-keeper.js';
import { ServerClock } from './server-clock.js';

interface Loop {
  readonly lastTickAgoMs: number;
  start(): void;
  stop(): Promise<void>;
}

export interface ConsumerDeps {
  /** Unique: it names the leases and the consumers of this process. */
  readonly instance: string;
  readonly connections: Connections;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly random: () => number;
  readonly events: MqEvents;
  readonly options: ResolvedMqOptions;
  readonly topics: TopicRegistry;
  readonly announcements: Announcements;
  /** The mover, which the owner of a partition runs. */
  readonly retries: RetrySchedule & Loop & { readonly lastSuccessAgoMs: number };
  readonly retention: PartitionLoop & Loop & { readonly intervalMs: number };
  readonly letters: LetterAccess;
}

export interface ConsumerLoop {
  readonly name: string;
  readonly lastTickAgoMs: number;
  /** Where its turns lie further apart than those of the others. */
  readonly intervalMs?: number;
  readonly failure?: string | undefined;
}

const STOP_LOOPS_MS = 1_000;

/** All consumption of one module instance: its groups, their leases and the bounds they share. */
export class MqConsumer {
  private readonly serverClock: ServerClock;
  private readonly keeper: LeaseKeeper;
  private readonly inFlight: InFlight;
  private readonly scanning = new AbortController();
  private groups: readonly GroupConsumer[] = [];
  private scanner: Promise<void> | undefined;
  private state: 'new' | 'started' | 'stopped' = 'new';
  private stopped: Promise<void> | undefined;

  constructor(private readonly deps: ConsumerDeps) {
    const { connections, clock, events, options } = deps;
    this.serverClock = new ServerClock(clock);
    this.keeper = new LeaseKeeper({
      connection: connections.control,
      isCluster: connections.isCluster,
      clock,
      events,
      renewIntervalMs: options.renewIntervalMs,
    });
    this.inFlight = new InFlight(options.maxInFlight);
  }

  get isStarted(): boolean {
    return this.state === 'started';
  }

  /** Whether it has handlers, and with them loops; an application that only sends starts as well. */
  private get isConsuming(): boolean {
    return this.isStarted && this.groups.length > 0;
  }

  /** Milliseconds since the mover's last turn that succeeded; `undefined` while there is none. */
  get moverAgeMs(): number | undefined {
    return this.isConsuming ? this.deps.retries.lastSuccessAgoMs : undefined;
  }

  get inFlightCount(): number {
    return this.inFlight.count;
  }

  /** For how long the oldest handler call that has not ended has been running, in milliseconds; 0 when none runs. */
  get oldestCallMs(): number {
    const ages = this.groups.flatMap((group) => [...group.consumers].map((partition) => partition.busyForMs ?? 0));
    return Math.max(0, ...ages);
  }

  get ownedCount(): number {
    return this.groups.reduce((sum, group) => sum + group.owned, 0);
  }

  /** Every partition owned, with its group; not those whose dead letters alone are handled. */
  get ownedPartitions(): readonly GroupPartitionRef[] {
    const ofMessages = this.groups.filter((group) => !group.consumesLetters);
    return ofMessages.flatMap((group) =>
      [...group.consumers].map(({ lease: { terms } }) => ({
        topic: terms.topic,
        partition: terms.partition,
        group: terms.group,
      })),
    );
  }

  get eligibleCount(): number {
    return this.groups.reduce((sum, group) => sum + group.eligible, 0);
  }

  get unowned(): readonly string[] {
    return this.groups.flatMap((group) => group.unowned.map((id) => `${id}:${group.group}`));
  }

  /** Handlers that ran longer than their time and did not end, and partitions that cannot be consumed. */
  get troubles(): {
    readonly stuckHandlers: readonly { readonly partition: string; readonly forMs: number }[];
    readonly failingPartitions: readonly { readonly partition: string; readonly error: string }[];
  } {
    const stuckHandlers: { partition: string; forMs: number }[] = [];
    const failingPartitions: { partition: string; error: string }[] = [];
    for (const group of this.groups) {
      for (const consumer of group.consumers) {
        const { topic, partition } = consumer.lease.terms;
        const name = `${topic}:p:${partition}:${group.group}`;
        const stuckMs = consumer.stuckForMs;
        if (stuckMs !== null) stuckHandlers.push({ partition: name, forMs: stuckMs });
        if (consumer.failing !== undefined) failingPartitions.push({ partition: name, error: consumer.failing });
      }
    }
    return { stuckHandlers, failingPartitions };
  }

  get loops(): readonly ConsumerLoop[] {
    if (!this.isConsuming) return [];
    return [
      { name: 'lease-keeper', lastTickAgoMs: this.keeper.lastTickAgoMs },
      { name: 'mover', lastTickAgoMs: this.deps.retries.lastTickAgoMs },
      {
        name: 'trimmer',
        lastTickAgoMs: this.deps.retention.lastTickAgoMs,
        intervalMs: this.deps.retention.intervalMs,
      },
      ...this.groups.flatMap((group) => group.loops),
    ];
  }

  /** The handlers given to `start`, and what they do at present. */
  get handlers(): readonly {
    readonly topic: string;
    readonly group: string;
    readonly state: HandlerState;
    readonly partitions: number;
  }[] {
    return this.groups.flatMap((group) =>
      group.topics.map((topic) => ({
        topic,
        group: group.group,
        state: this.state === 'started' ? group.stateOf(topic) : ('stopped' as const),
        partitions: [...group.consumers].filter(({ lease }) => lease.terms.topic === topic).length,
      })),
    );
  }

  /** The part of a group that one handler has; `undefined` for one that is not there. */
  groupOf({ topic, group }: { readonly topic: string; readonly group: string }): GroupConsumer | undefined {
    return this.groups.find((each) => each.group === group && each.topics.includes(topic));
  }

  /**
   * Begins to consume; returns at once, also with Redis away. A second call does nothing.
   * @param isStopped - handlers that are not to run until they are started.
   */
  start(
    handlers: readonly HandlerDefinition[],
    isStopped: (handler: HandlerDefinition) => boolean = () => false,
  ): void {
    if (this.state !== 'new') return;
    this.state = 'started';
    if (handlers.length === 0) return;
    const slots = new Slots(this.deps.options.workerThreads);
    const turns = new Turns(this.deps.clock);
    const baton = new Baton();
    const blockingReaders = new Slots(this.deps.options.maxBlockingConnections);
    const rateLimiters = new Map<HandlerDefinition['options'], RateLimiter>();
    for (const { options } of handlers) {
      if (options.rateLimit !== undefined)
        rateLimiters.set(options, new RateLimiter(options.rateLimit, this.deps.clock));
    }
    // A group of the dead letters has nothing in common with one of the same name that handles messages.
    const kindOf = (handler: HandlerDefinition): string =>
      `${handler.deadLetters === undefined ? '' : 'dlq:'}${handler.group}`;
    const byGroup = new Map<string, Map<string, HandlerDefinition>>();
    for (const handler of handlers) {
      const topics = byGroup.get(kindOf(handler)) ?? new Map<string, HandlerDefinition>();
      byGroup.set(kindOf(handler), topics.set(handler.topic, handler));
    }
    const { keeper, inFlight, serverClock } = this;
    const { keys, retention, letters, events } = this.deps;
    const ofLetters = {
      keys: keys.ofDeadLetters(),
      // The owners of the partitions themselves keep their dead letters within bounds.
      retention: { add: () => undefined, remove: () => undefined },
      // A letter that is replayed or deleted by someone else is no loss.
      events: events.without('payloadMissing'),
    };
    this.groups = [...byGroup].map(
      ([kind, topics]) =>
        new GroupConsumer({
          ...this.deps,
          ...(kind.startsWith('dlq:') ? { ...ofLetters, letters } : { retention, letters: undefined }),
          group: [...topics.values()][0]!.group,
          handlers: topics,
          stoppedTopics: new Set([...topics.values()].filter(isStopped).map(({ topic }) => topic)),
          keeper,
          slots,
          turns,
          baton,
          rateLimiters,
          inFlight,
          serverClock,
          blockingReaders,
        }),
    );
    this.deps.announcements.start();
    keeper.start();
    this.deps.retries.start();
    this.deps.retention.start();
    for (const group of this.groups) group.start();
    this.scanner = this.scan();
  }

  /** Drains within `drainTimeoutMs` and gives everything up. Idempotent, safe before start, bounded. */
  stop(drainTimeoutMs: number): Promise<void> {
    this.stopped ??= this.stopNow(drainTimeoutMs);
    return this.stopped;
  }

  private async stopNow(drainTimeoutMs: number): Promise<void> {
    this.state = 'stopped';
    this.scanning.abort();
    await Promise.all(this.groups.map((group) => group.stop(drainTimeoutMs)));
    // Nothing is owned any more; what still waits for an answer of Redis need not be waited for.
    await within(
      this.deps.clock,
      Promise.all([this.deps.retries.stop(), this.deps.retention.stop(), this.keeper.stop(), this.scanner]),
      STOP_LOOPS_MS,
    );
  }

  private async scan(): Promise<void> {
    const { signal } = this.scanning;
    while (!signal.aborted) {
      await pause(this.deps.clock, this.deps.options.pendingScanIntervalMs, signal);
      if (!signal.aborted) for (const group of this.groups) group.scan();
    }
  }
}
