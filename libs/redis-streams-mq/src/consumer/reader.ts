import { pause, within, type Clock } from '../core/clock.js';
import { thrownText } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import { Backoff } from '../core/retry-policy.js';
import type { Command, Connection } from '../redis/connection.js';
import type { Connections } from '../redis/connections.js';
import { classifyRedisError, isConnectionError, redisTimeout, replyCode } from '../redis/redis-errors.js';
import { asStreams, type Outcome, type RawEntry, type Reply } from '../redis/reply.js';
import { call } from '../redis/script.js';
import { openWake } from '../redis/scripts/wake.script.js';
import { LEAST_ROOM, type InFlight } from './in-flight.js';
import type { PartitionConsumer } from './partition-consumer.js';

export interface ReaderDeps {
  readonly group: string;
  readonly consumer: string;
  readonly connections: Connections;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly inFlight: InFlight;
  /** Longest time one read blocks while there are messages, in milliseconds. */
  readonly pollTimeoutMs: number;
  /** How much longer than it blocks a read may take before its socket counts as dead. */
  readonly slackMs: number;
  /** The stream that wakes this reader; absent in Cluster, where a read can name one slot only. */
  readonly wakeStream: string | undefined;
  /** False when all connections that may block are taken (Cluster): it then polls, on the shared connection. */
  readonly blocking: boolean;
}

const WAKE_TTL_MS = 60_000;
/** Reads of a group without messages block up to that many times as long, where a wake can end them. */
export const LONGEST_IDLE = 4;
/** How long a read blocks when `maxInFlight` leaves no room to name all partitions: the others have their turn then. */
const CROWDED_MS = 25;
/** How long a polling reader waits after an empty read: at first, and at most. */
const POLL_MS = { first: 1, most: 50 };
/** One wake of a call over many streams costs Redis time for each: with more than this many, calls keep apart. */
const MANY_PARTITIONS = 64;

/**
 * Reads new entries for a set of partitions on a connection of its own, in one call that blocks on all that have room.
 * A reply is handed to its partitions, and the next call waits until each has compared its ledger with the server.
 *
 * A read without an answer in time, or one whose connection broke, may have taken entries: the socket is destroyed and
 * replaced, and every partition that the read named checks its ledger.
 */
export class Reader {
  private readonly partitions = new Set<PartitionConsumer>();
  private readonly stopping = new AbortController();
  private readonly backoff = new Backoff({ minMs: 50, maxMs: 2_000 });
  private connection: Connection | undefined;
  private loop: Promise<void> | undefined;
  private named: ReadonlySet<PartitionConsumer> = new Set();
  private readEnded: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;
  private changed: (() => void) | undefined;
  private blocked = false;
  private pollMs = POLL_MS.first;
  /** How long the next read blocks: longer while nothing comes. */
  private waitMs: number;
  private wakeReady = false;
  private wakeRefreshedAt = 0;
  private tickedAt: number;
  private failing: { readonly since: number; readonly why: string } | undefined;

  constructor(private readonly deps: ReaderDeps) {
    this.tickedAt = deps.clock.monotonic();
    this.waitMs = deps.pollTimeoutMs;
  }

  get lastTickAgoMs(): number {
    return this.deps.clock.monotonic() - this.tickedAt;
  }

  /** How long a read of this reader may block. */
  get longestReadMs(): number {
    return this.deps.pollTimeoutMs * (this.deps.wakeStream === undefined ? 1 : LONGEST_IDLE);
  }

  get failure(): string | undefined {
    return this.failing?.why;
  }

  get isBlocking(): boolean {
    return this.deps.blocking;
  }

  add(partition: PartitionConsumer): void {
    this.partitions.add(partition);
    this.readableChanged();
  }

  remove(partition: PartitionConsumer): void {
    this.partitions.delete(partition);
    this.readableChanged();
  }

  start(): void {
    if (this.loop !== undefined) return;
    this.deps.inFlight.addReader();
    this.loop = this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.changed?.();
    if (this.connection !== undefined) this.deps.connections.discard(this.connection);
    await this.loop;
  }

  /** The set of partitions to read is no longer what the outstanding read names. */
  readableChanged(): void {
    this.changed?.();
    if (this.blocked && this.wakeIsWorthIt()) this.wake();
  }

  /** Resolves when no read that names `partition` is unanswered. */
  async outside(partition: PartitionConsumer): Promise<void> {
    while (this.named.has(partition)) {
      if (this.blocked) this.wake();
      await this.readEnded?.promise;
    }
  }

  private wakeIsWorthIt(): boolean {
    for (const partition of this.partitions) if (partition.room > 0 !== this.named.has(partition)) return true;
    return false;
  }

  private wake(): void {
    const { wakeStream, connections } = this.deps;
    this.blocked = false;
    if (wakeStream === undefined) return;
    // Lost or refused by a full Redis: the read ends by itself when its time is over.
    connections.command.send('XADD', wakeStream, 'MAXLEN', 1, '*', 'wake', '1').catch(() => undefined);
  }

  private async run(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      this.tickedAt = this.deps.clock.monotonic();
      try {
        await this.runOnce();
      } catch (error) {
        await this.failed(error);
      }
    }
    this.deps.inFlight.removeReader();
  }

  /** One read and the dealing of its reply; returns at once or after a change when there is nothing to read. */
  async runOnce(): Promise<void> {
    const { inFlight, events, clock, group } = this.deps;
    if (this.readable().length === 0) return this.waitForChange();
    const connection = await this.connected();
    if (connection === null) return;
    // From here until the read is out nothing is awaited: whoever becomes readable later wakes it.
    const readable = this.readable();
    if (readable.length === 0) return;
    const perPartition = Math.min(...readable.map((partition) => partition.room)) * 2;
    const reserved = inFlight.reserveForReader(perPartition * readable.length);
    if (reserved < LEAST_ROOM) {
      inFlight.unreserve(reserved);
      const since = clock.monotonic();
      const cancel = inFlight.onRoom(() => this.changed?.());
      await this.waitForChange();
      cancel();
      events.emit('backpressure', { group, waitedMs: clock.monotonic() - since });
      return;
    }
    try {
      const count = Math.max(1, Math.floor(reserved / (2 * readable.length)));
      const fair = rotate(readable, this.turn++).slice(0, Math.max(1, Math.floor(reserved / (2 * count))));
      await this.read(connection, fair, count, fair.length === readable.length ? this.waitMs : CROWDED_MS);
    } finally {
      inFlight.unreserve(reserved);
    }
  }

  private turn = 0;

  private readable(): PartitionConsumer[] {
    return [...this.partitions].filter((partition) => partition.room > 0 && partition.lease.isTrusted);
  }

  private async read(
    connection: Connection,
    readable: readonly PartitionConsumer[],
    count: number,
    longestMs: number,
  ): Promise<void> {
    const { clock, wakeStream } = this.deps;
    const trust = Math.min(...readable.map((partition) => partition.lease.trustLeftMs));
    const blockMs = Math.floor(Math.min(longestMs, trust / 2));
    if (blockMs < 1) return;
    const streams = readable.flatMap(({ lease: { terms } }) => [terms.keys.stream, terms.keys.retryStream]);
    if (wakeStream !== undefined) streams.unshift(wakeStream);
    this.beginRead(readable);
    let replies: Map<string, RawEntry[]>;
    try {
      const [name, ...args] = this.readCommand(streams, count, this.deps.blocking ? blockMs : undefined);
      replies = asStreams(await this.withDeadline(connection, connection.send(name, ...args), blockMs));
    } catch (error) {
      this.endRead();
      if (isConnectionError(error) || connection.isDestroyed || this.isElsewhere(error))
        this.replace(connection, error);
      if (replyCode(error) === '' || replyCode(error) === 'UNBLOCKED' || classifyRedisError(error) !== 'key') {
        for (const partition of readable) partition.requestCheck();
        throw error;
      }
      await this.readEach(connection, readable, count);
      return;
    }
    this.endRead();
    this.works();
    this.waitMs = replies.size > 0 ? this.deps.pollTimeoutMs : Math.min(this.longestReadMs, 2 * this.waitMs);
    if (wakeStream !== undefined) this.woken(replies.get(wakeStream));
    await this.deal(readable, replies, count);
    if (!this.deps.blocking) await this.keepApart(replies.size > 0);
    if (readable.length > MANY_PARTITIONS && replies.size > 0) await pause(clock, 1, this.stopping.signal);
  }

  /** In Cluster this connection is to one node: the slot has moved, or the node is no longer its master. */
  private isElsewhere(error: unknown): boolean {
    return this.deps.connections.isCluster && classifyRedisError(error) === 'transient';
  }

  private readCommand(streams: readonly string[], count: number, blockMs?: number): Command {
    const { group, consumer } = this.deps;
    const block = blockMs === undefined ? [] : ['BLOCK', blockMs];
    const news = streams.map(() => '>');
    return ['XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, ...block, 'STREAMS', ...streams, ...news];
  }

  private async keepApart(hadEntries: boolean): Promise<void> {
    this.pollMs = hadEntries ? POLL_MS.first : Math.min(POLL_MS.most, this.pollMs * 2);
    await pause(this.deps.clock, this.pollMs, this.stopping.signal);
  }

  /** The named set is fixed while the read is out; whoever must not be read waits for its end. */
  private beginRead(readable: readonly PartitionConsumer[]): void {
    let resolve: () => void = () => undefined;
    const promise = new Promise<void>((r) => (resolve = r));
    this.named = new Set(readable);
    this.readEnded = { promise, resolve };
    this.blocked = true;
  }

  private endRead(): void {
    this.blocked = false;
    this.named = new Set();
    this.readEnded?.resolve();
    this.readEnded = undefined;
  }

  private async deal(
    partitions: readonly PartitionConsumer[],
    replies: ReadonlyMap<string, RawEntry[]>,
    count: number,
  ): Promise<void> {
    const accepted: Promise<void>[] = [];
    for (const partition of partitions) {
      const { keys } = partition.lease.terms;
      const stream = replies.get(keys.stream) ?? [];
      const retry = replies.get(keys.retryStream) ?? [];
      if (stream.length + retry.length === 0) continue;
      // A reply after the end of trust is dropped: the next owner brings these entries back.
      if (!partition.lease.isTrusted) continue;
      accepted.push(partition.accept({ stream, retry }, count));
    }
    await Promise.all(accepted);
  }

  /** A read over many streams fails whole for one bad key: a single read for each finds it, and the rest goes on. */
  private async readEach(
    connection: Connection,
    partitions: readonly PartitionConsumer[],
    count: number,
  ): Promise<void> {
    this.wakeReady = false;
    this.beginRead(partitions);
    this.blocked = false;
    const commands = partitions.map(({ lease: { terms } }) =>
      this.readCommand([terms.keys.stream, terms.keys.retryStream], count),
    );
    let outcomes: Outcome<Reply>[];
    try {
      outcomes = await connection.withTimeout(connection.pipeline(commands), this.deps.slackMs);
    } catch (error) {
      this.endRead();
      this.replace(connection, error);
      for (const partition of partitions) partition.requestCheck();
      throw error;
    }
    this.endRead();
    const accepted: Promise<void>[] = [];
    for (const [i, partition] of partitions.entries()) {
      const outcome = outcomes[i]!;
      if (outcome.ok) accepted.push(this.deal([partition], asStreams(outcome.value), count));
      else partition.readFailed(outcome.error);
    }
    await Promise.all(accepted);
  }

  private async withDeadline<T>(connection: Connection, reply: Promise<T>, blockMs: number): Promise<T> {
    const limitMs = blockMs + this.deps.slackMs;
    if (await within(this.deps.clock, reply, limitMs)) return reply;
    throw redisTimeout(connection.name, limitMs);
  }

  /** The connection, ready to read, with the wake stream in place; `null` when that did not come about in time. */
  private async connected(): Promise<Connection | null> {
    const { connections, group, wakeStream, clock, slackMs } = this.deps;
    if (!this.deps.blocking) {
      const shared = connections.command;
      return (await shared.whenReady(slackMs, this.stopping.signal)) ? shared : null;
    }
    if (this.connection === undefined) {
      this.connection = connections.openReader(
        `reader:${group}`,
        [...this.partitions][0]?.lease.terms.keys.stream ?? '',
      );
      this.wakeReady = false;
    }
    const connection = this.connection;
    if (!connection.isReady && !(await connection.whenReady(slackMs, this.stopping.signal))) {
      if (!this.stopping.signal.aborted) this.replace(connection, redisTimeout(connection.name, slackMs));
      return null;
    }
    if (wakeStream !== undefined && (!this.wakeReady || clock.monotonic() - this.wakeRefreshedAt > WAKE_TTL_MS / 3)) {
      await connections.command.run(call(openWake, { wake: wakeStream }, { group, ttl: WAKE_TTL_MS }));
      this.wakeReady = true;
      this.wakeRefreshedAt = clock.monotonic();
    }
    return connection;
  }

  private woken(entries: readonly RawEntry[] | undefined): void {
    const { wakeStream, group, connections } = this.deps;
    if (entries === undefined || entries.length === 0) return;
    connections.command.send('XACK', wakeStream!, group, ...entries.map((entry) => entry.id)).catch(() => undefined);
  }

  private replace(connection: Connection, error: unknown): void {
    if (this.connection !== connection) return;
    this.connection = undefined;
    this.deps.connections.discard(connection);
    if (replyCode(error) === 'MOVED') this.deps.connections.slotsMoved();
    const reason = thrownText(error);
    if (!this.stopping.signal.aborted) this.deps.events.emit('readerReplaced', { group: this.deps.group, reason });
  }

  private async failed(error: unknown): Promise<void> {
    this.waitMs = this.deps.pollTimeoutMs;
    if (this.stopping.signal.aborted) return;
    const retryInMs = this.backoff.next();
    const kind = classifyRedisError(error);
    this.failing ??= { since: this.deps.clock.monotonic(), why: replyCode(error) || kind };
    this.deps.events.emit('fault', { component: `reader:${this.deps.group}`, class: kind, error, retryInMs });
    await this.deps.connections.command.backOff(retryInMs, this.stopping.signal);
  }

  private works(): void {
    if (this.failing === undefined) return;
    const afterMs = this.deps.clock.monotonic() - this.failing.since;
    this.failing = undefined;
    this.backoff.reset();
    this.deps.events.emit('recovered', { component: `reader:${this.deps.group}`, afterMs });
  }

  private async waitForChange(): Promise<void> {
    if (this.stopping.signal.aborted) return;
    const woken = new AbortController();
    this.changed = () => woken.abort();
    await pause(this.deps.clock, this.deps.pollTimeoutMs, woken.signal);
    this.changed = undefined;
  }
}

function rotate<T>(items: readonly T[], by: number): T[] {
  const at = by % items.length;
  return [...items.slice(at), ...items.slice(0, at)];
}
