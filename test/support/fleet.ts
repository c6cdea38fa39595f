import type { Redis } from 'ioredis';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { ChildBehaviour } from './child-protocol.js';
import { Child } from './child.js';
import type { EventLog } from './event-log.js';
import type { HandlerCall, HandlingRecord } from './handling-record.js';
import { waitFor } from './wait-for.js';

export interface FleetSetup {
  readonly topic: string;
  readonly group: string;
  readonly partitions: number;
  readonly options: MqOptions;
  readonly behaviour?: ChildBehaviour;
  readonly record: HandlingRecord;
}

/** A change of owner of one partition. */
export interface HandOver {
  readonly partition: number;
  readonly epoch: number;
  /** On the clock of `nowMs`; undefined when the former owner gave it up with no word. */
  readonly releasedAt: number | undefined;
  readonly acquiredAt: number;
}

/** Instances of one service, each in a process of its own, that come and go as in a deployment. */
export class Fleet {
  readonly alive: Child[] = [];
  /** Of all that ever belonged to it. */
  readonly logs: EventLog[] = [];
  private readonly spare: Child[] = [];
  private named = 0;

  constructor(private readonly setup: FleetSetup) {}

  /** Processes that are ready to start: loading takes a second or two of a whole core, which would be in the way later. */
  async load(count: number): Promise<void> {
    while (this.spare.length < count) {
      this.spare.push(...(await Promise.all([Child.load(), Child.load()])));
    }
  }

  async join(): Promise<Child> {
    const child = this.spare.pop()!;
    const { topic, group, options, behaviour = {}, record } = this.setup;
    await child.begin({ name: `instance-${++this.named}`, options, handlers: [{ topic, group, behaviour }] }, record);
    this.alive.push(child);
    this.logs.push(child.events);
    return child;
  }

  /** The oldest member, which is one no more. */
  takeOldest(): Child {
    return this.alive.shift()!;
  }

  /** Resolves when the living share all partitions, none having more than one more than another. */
  async balanced(client: Redis, timeoutMs = 10_000): Promise<void> {
    const { partitions } = this.setup;
    const shares = (): number[] => this.alive.map(({ events }) => ownedBy(events).size);
    await waitFor(
      async () => {
        const owned = shares();
        const total = owned.reduce((sum, count) => sum + count, 0);
        return (
          total === partitions &&
          Math.max(...owned) - Math.min(...owned) <= 1 &&
          (await this.leases(client)).every(Boolean)
        );
      },
      { timeoutMs, describe: `${partitions} partitions to be shared by ${this.alive.length} instances` },
    );
  }

  leases(client: Redis): Promise<(string | null)[]> {
    const { topic, group, partitions, options } = this.setup;
    const keys = new Keys(options.keyPrefix ?? 'streaming:mq', options.streamKeyPrefix ?? 'stream:topic');
    return client.mget(Array.from({ length: partitions }, (_, p) => keys.groupPartition(topic, p, group).lease));
  }

  get acquisitions(): number {
    return this.logs.reduce((sum, log) => sum + log.count('leaseAcquired'), 0);
  }

  /** All but the first ownership of each partition, in the order in which they began. */
  get handOvers(): HandOver[] {
    const acquired = this.logs.flatMap((log) => log.timed('leaseAcquired')).toSorted((a, b) => a.at - b.at);
    const released = this.logs.flatMap((log) => log.timed('leaseReleased'));
    const seen = new Set<number>();
    const changes: HandOver[] = [];
    for (const { partition, epoch, at } of acquired) {
      const before = released.filter((event) => event.partition === partition && event.epoch < epoch);
      const last = before.toSorted((a, b) => a.epoch - b.epoch).at(-1);
      if (seen.has(partition)) changes.push({ partition, epoch, releasedAt: last?.at, acquiredAt: at });
      seen.add(partition);
    }
    return changes;
  }

  /** Ends whatever still runs. */
  async end(): Promise<void> {
    await Promise.all([...this.alive.splice(0), ...this.spare.splice(0)].map((child) => child.kill()));
  }
}

/** Epoch by partition, of what the instance said that it owns. */
export function ownedBy(events: EventLog): Map<number, number> {
  const owned = new Map(events.all('leaseAcquired').map(({ partition, epoch }) => [partition, epoch]));
  for (const { partition, epoch } of [...events.all('leaseReleased'), ...events.all('leaseLost')]) {
    if (owned.get(partition) === epoch) owned.delete(partition);
  }
  return owned;
}

/**
 * How long the hand-over kept a message of the partition waiting at most, in milliseconds: the longest time from its being
 * accepted to the start of its handler, among those that were accepted by the time the new owner had the lease, and its
 * first one.
 */
export function pauseOf(
  { partition, epoch, acquiredAt }: HandOver,
  record: HandlingRecord,
  acceptedAt: ReadonlyMap<number, number>,
): number {
  const calls = record.of(partition).filter((call) => call.epoch === epoch);
  const waited = (call: HandlerCall): number => Math.max(0, call.startedAt - acceptedAt.get(call.n)!);
  return Math.max(0, ...calls.filter((call, i) => i === 0 || acceptedAt.get(call.n)! <= acquiredAt).map(waited));
}

/** The value below which `share` of them are. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
