import { pause } from '../core/clock.js';
import type { HandlerDefinition } from '../core/handler.js';
import { errorText } from '../consumer/settle-steps.js';
import { MqEvents, type GroupPartitionRef } from '../core/events.js';
import { Keys } from '../core/keys.js';
import type { ResolvedMqOptions } from '../core/options.js';
import { composeMq, type ComposeDeps } from '../nest/compose.js';
import type { MqRuntime } from '../nest/runtime.js';
import { delegate } from './delegate.js';
import { MemoryClient } from './server/memory-client.js';
import { MemoryServer } from './server/memory-server.js';
import type { VirtualClock } from './virtual-clock.js';

const HOUR_MS = 3_600_000;
const LEASE_MS = 10 * 365 * 24 * HOUR_MS;
/** Below the time after which a reader looks after its wake stream. */
const POLL_MS = 15_000;
/** Longer than an instance takes to own what nobody else has. */
const START_MS = 5_000;

/** One life of the instance: from its start to its end or crash. */
interface Life {
  readonly runtime: MqRuntime;
  readonly clients: MemoryClient[];
  /** Handlers that are running, by name. */
  readonly running: Map<string, number>;
}

interface FailureRef extends GroupPartitionRef {
  /** Of the message on its stream. */
  readonly id: string;
}

function failureKey({ topic, partition, group, id }: FailureRef): string {
  return `${topic} ${partition} ${group} ${id}`;
}

/** Waits for `work` while time passes. */
export type WhileTimePasses = <T>(work: Promise<T>) => Promise<T>;

/**
 * One module instance on an in-memory server: all of the engine is the real one, its scripts included; the server, the
 * clients and the clock are not. Loops that only guard against other processes and faults run seldom.
 */
export class InMemoryEngine {
  readonly server: MemoryServer;
  readonly keys: Keys;
  readonly events: MqEvents;
  /** For the module: it stays the same when the instance crashes and begins anew. */
  readonly runtime: MqRuntime;
  private readonly failures = new Map<string, string>();
  private readonly options: ResolvedMqOptions;
  private life: Life;
  private handlerEvents = 0;
  private started: readonly HandlerDefinition[] | undefined;
  private isStopped: (handler: HandlerDefinition) => boolean = () => false;

  constructor(
    options: ResolvedMqOptions,
    private readonly deps: ComposeDeps,
    private readonly clock: VirtualClock,
    private readonly whileTimePasses: WhileTimePasses,
  ) {
    this.options = Object.freeze({
      ...options,
      leaseTtlMs: LEASE_MS,
      renewIntervalMs: HOUR_MS,
      rebalanceIntervalMs: HOUR_MS,
      pendingScanIntervalMs: HOUR_MS,
      retryMoverIntervalMs: HOUR_MS,
      consumerPollTimeoutMs: POLL_MS,
      ackFlushMs: 0,
      metricsIntervalMs: HOUR_MS,
    });
    this.server = new MemoryServer(clock);
    this.keys = new Keys(options.keyPrefix, options.streamKeyPrefix);
    this.events = new MqEvents((error, event) => deps.logger.error('a listener of the queue threw', { event, error }));
    this.events.on('retried', ({ error, ...which }) => this.failures.set(failureKey(which), errorText(error)));
    this.life = this.begin();
    this.runtime = this.makeRuntime();
  }

  get handlers(): readonly HandlerDefinition[] {
    return this.started ?? [];
  }

  /** By the server's clock, in milliseconds. */
  get now(): number {
    return this.clock.now();
  }

  get serializer(): ResolvedMqOptions['serializer'] {
    return this.options.serializer;
  }

  /** Changes when something happens: a command, or the begin or end of a handler's call. */
  get activity(): number {
    return this.server.commandCount + this.handlerEvents;
  }

  /** Names of the handlers that run now. */
  get running(): readonly string[] {
    return [...this.life.running].filter(([, count]) => count > 0).map(([name]) => name);
  }

  /**
   * The process dies: what it did not settle stays pending, its leases end, and a new process with the same handlers
   * takes over. Code that still runs for the old one can settle nothing any more.
   */
  async crash(): Promise<void> {
    const { runtime, clients } = this.life;
    for (const client of clients) client.kill();
    runtime.metrics?.close();
    // Its loops end as time goes on; nobody waits for a dead process.
    runtime.close().catch(() => undefined);
    this.server.data.delete(this.keys.reporter);
    for (const { topic, group, deadLetters } of this.handlers) {
      const keys = deadLetters === undefined ? this.keys : this.keys.ofDeadLetters();
      const { members, info } = keys.members(group);
      for (const key of [members, info]) this.server.data.delete(key);
      for (const partition of this.partitionsOf(topic)) {
        this.server.data.delete(keys.groupPartition(topic, partition, group).lease);
      }
    }
    this.life = this.begin();
    await this.whileTimePasses(this.life.runtime.connect());
    if (this.started !== undefined) await this.start(this.started);
  }

  /** What the last call for that message failed with; empty when that is not known. */
  failureOf(which: FailureRef): string {
    return this.failures.get(failureKey(which)) ?? '';
  }

  partitionsOf(topic: string): number[] {
    const count = Number(this.server.data.hash(this.keys.topic(topic).meta)?.get('partitionCount') ?? 0);
    return Array.from({ length: count }, (_, partition) => partition);
  }

  private begin(): Life {
    const clients: MemoryClient[] = [];
    const runtime = composeMq(this.options, {
      ...this.deps,
      clock: this.clock,
      events: this.events,
      // The whole of each back-off: when a retry comes is then known beforehand.
      random: () => 1 - Number.EPSILON,
      createClient: () => {
        const client = new MemoryClient(this.server);
        clients.push(client);
        return client.asClient();
      },
    });
    return { runtime, clients, running: new Map() };
  }

  private makeRuntime(): MqRuntime {
    // What people ask for may wait for moments of the engine's time; a send waits for nothing but the server.
    const part = <K extends 'admin' | 'deadLetters' | 'health'>(name: K): MqRuntime[K] =>
      delegate(() => this.life.runtime[name], this.whileTimePasses);
    const { metrics } = this.life.runtime;
    const parts: Partial<MqRuntime> = {
      producer: delegate(() => this.life.runtime.producer),
      admin: part('admin'),
      deadLetters: part('deadLetters'),
      health: part('health'),
      metrics: metrics === null ? null : delegate(() => this.life.runtime.metrics ?? metrics),
      connect: (use) => this.whileTimePasses(this.life.runtime.connect(use)),
      control: delegate(() => this.life.runtime.control, this.whileTimePasses),
      start: (handlers, isStopped) => this.start(handlers, isStopped),
      stop: () => this.whileTimePasses(this.life.runtime.stop()),
      close: () => this.whileTimePasses(this.life.runtime.close()),
    };
    return Object.assign(
      delegate(() => this.life.runtime),
      parts,
    );
  }

  /** Resolves when every partition that the handlers can have is owned. */
  private async start(
    handlers: readonly HandlerDefinition[],
    isStopped: (handler: HandlerDefinition) => boolean = this.isStopped,
  ): Promise<void> {
    this.started = handlers;
    this.isStopped = isStopped;
    const { life } = this;
    const groups = new Set(handlers.filter((handler) => !isStopped(handler)).map(({ group }) => group));
    const owned = new AbortController();
    const off = this.events.on('rebalanced', ({ group }) => {
      groups.delete(group);
      if (groups.size === 0) owned.abort();
    });
    if (groups.size === 0) owned.abort();
    await life.runtime.start(
      handlers.map((handler) => this.watched(handler, life)),
      isStopped,
    );
    // A share of partitions may hold none.
    await this.whileTimePasses(pause(this.clock, START_MS, owned.signal));
    off();
  }

  private watched(handler: HandlerDefinition, life: Life): HandlerDefinition {
    const count = (by: number): void => {
      this.handlerEvents++;
      life.running.set(handler.name, (life.running.get(handler.name) ?? 0) + by);
    };
    const entries = Object.entries(handler).map(([name, value]: [string, unknown]) => {
      if (typeof value !== 'function') return [name, value];
      const invoke = value as (...args: unknown[]) => Promise<unknown>;
      const counted = async (...args: unknown[]): Promise<unknown> => {
        count(1);
        try {
          return await invoke(...args);
        } finally {
          count(-1);
        }
      };
      return [name, counted];
    });
    const options = { ...handler.options, pollTimeoutMs: POLL_MS };
    return { ...(Object.fromEntries(entries) as unknown as HandlerDefinition), options };
  }
}
