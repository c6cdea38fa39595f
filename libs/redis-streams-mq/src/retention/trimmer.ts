import { pause, type Clock } from '../core/clock.js';
import type { GroupPartitionRef, MqEvents } from '../core/events.js';
import type { GroupPartitionKeys } from '../core/keys.js';
import type { TopicRetention } from '../core/topic-retention.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call } from '../redis/script.js';
import { trim, type TrimReply } from '../redis/scripts/trim.script.js';

/** A partition that this instance owns for a group, and with it the duty to keep it within its bounds. */
export interface TrimTarget extends GroupPartitionRef {
  readonly keys: GroupPartitionKeys;
  readonly token: string;
}

/** Bounds of one stream; 0 means none. */
type StreamBounds = Pick<TopicRetention, 'maxLen' | 'maxAgeMs' | 'hardMaxLen'>;

export interface TrimmerDeps {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly intervalMs: number;
  /** A topic's bounds as they are now. */
  readonly retentionOf: (topic: string) => Promise<TopicRetention>;
  /** A group without an owner for longer than this keeps nothing from being trimmed, in milliseconds; 0: it always does. */
  readonly abandonedGroupMs: number;
}

/** Entries looked at by one script: about a millisecond of the server's time. */
const LIMIT = 1_000;
/** Scripts per stream and turn, so that a long stream does not hold up the others. */
const ROUNDS = 50;

/**
 * Keeps the partitions that this instance owns, and their dead letters, within the bounds of the options. What is still
 * needed is decided in the script, from what the server knows: owners of several groups may trim one partition side by side.
 */
export class Trimmer {
  private readonly targets = new Map<string, TrimTarget>();
  private readonly stopping = new AbortController();
  private loop: Promise<void> | undefined;
  private tickedAt: number;

  constructor(private readonly deps: TrimmerDeps) {
    this.tickedAt = deps.clock.monotonic();
  }

  get intervalMs(): number {
    return this.deps.intervalMs;
  }

  get lastTickAgoMs(): number {
    return this.deps.clock.monotonic() - this.tickedAt;
  }

  add(target: TrimTarget): void {
    this.targets.set(target.keys.lease, target);
  }

  remove(target: TrimTarget): void {
    if (this.targets.get(target.keys.lease)?.token === target.token) this.targets.delete(target.keys.lease);
  }

  start(): void {
    this.loop ??= this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.loop;
  }

  /** Trims every partition once. An error of one is reported and keeps no other from its turn. */
  async runOnce(): Promise<void> {
    const { clock } = this.deps;
    const retentions = await this.retentions();
    const partitions = new Map([...this.targets.values()].map((target) => [target.keys.stream, target]));
    for (const target of partitions.values()) {
      if (this.stopping.signal.aborted) return;
      this.tickedAt = clock.monotonic();
      const bounds = retentions.get(target.topic);
      if (bounds === undefined) continue;
      await this.trim(target, 'stream', bounds);
      await this.trim(target, 'dlq', { maxLen: bounds.dlqMaxLen, maxAgeMs: bounds.dlqMaxAgeMs, hardMaxLen: 0 });
    }
    this.tickedAt = clock.monotonic();
  }

  /** A topic whose bounds cannot be learned is not trimmed in this turn: they may be wider than the options'. */
  private async retentions(): Promise<ReadonlyMap<string, TopicRetention>> {
    const { retentionOf, events, intervalMs } = this.deps;
    const found = new Map<string, TopicRetention>();
    for (const topic of new Set([...this.targets.values()].map((target) => target.topic))) {
      if (this.stopping.signal.aborted) break;
      try {
        found.set(topic, await retentionOf(topic));
      } catch (error) {
        const component = `trimmer:${topic}`;
        events.emit('fault', { component, class: classifyRedisError(error), error, retryInMs: intervalMs });
      }
    }
    return found;
  }

  private async trim(target: TrimTarget, which: 'stream' | 'dlq', bounds: StreamBounds): Promise<void> {
    if (bounds.maxLen === 0 && bounds.maxAgeMs === 0 && bounds.hardMaxLen === 0) return;
    const { connection, events, intervalMs, abandonedGroupMs } = this.deps;
    const { topic, partition, keys } = target;
    const place = { ...keys, stream: which === 'dlq' ? keys.dlq : keys.stream };
    const { maxLen, maxAgeMs, hardMaxLen } = bounds;
    const guarded = which === 'dlq' ? 0 : 1;
    const args = {
      maxLen,
      maxAgeMs,
      hardMaxLen,
      beforeId: '',
      limit: LIMIT,
      guarded,
      force: 0,
      abandonedMs: abandonedGroupMs,
    };
    try {
      for (let round = 0; round < ROUNDS && !this.stopping.signal.aborted; round++) {
        const reply = await connection.run(call(trim, place, args));
        this.report(target, which, reply);
        if (reply.byLength + reply.byAge + reply.byHardBound < LIMIT) return;
      }
    } catch (error) {
      const component = `trimmer:${topic}:${partition}`;
      events.emit('fault', { component, class: classifyRedisError(error), error, retryInMs: intervalMs });
    }
  }

  private report({ topic, partition }: TrimTarget, stream: 'stream' | 'dlq', reply: TrimReply): void {
    const { events } = this.deps;
    const { byLength, byAge, byHardBound, pinnedBy } = reply;
    events.emit('trimmed', { topic, partition, stream, byLength, byAge, byHardBound });
    for (const { group, count, idleMs } of reply.abandoned) {
      events.emit('retentionAbandoned', { topic, partition, group, count, idleMs });
    }
    if (pinnedBy !== '') events.emit('retentionPinned', { topic, partition, group: pinnedBy, length: reply.length });
  }

  private async run(): Promise<void> {
    const { clock, intervalMs } = this.deps;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await pause(clock, intervalMs, signal);
      this.tickedAt = clock.monotonic();
      if (!signal.aborted) await this.runOnce();
    }
  }
}
