import { pause, type Clock } from '../core/clock.js';
import type { GroupPartitionRef, PartitionRef } from '../core/events.js';
import type { Keys, PartitionKeys } from '../core/keys.js';
import type { Connection } from '../redis/connection.js';
import type { Outcome } from '../redis/reply.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call } from '../redis/script.js';
import { dlqCount } from '../redis/scripts/dlq.script.js';
import type { GroupStats, PartitionStats } from '../redis/scripts/stats.script.js';
import { serverStates } from '../redis/server-state.js';
import type { Statistics } from '../redis/statistics.js';
import type { TopicMeta, TopicRegistry } from '../redis/topic-registry.js';
import { readingsOf, type DeadLetterCount, type Readings, type TopicSample } from './cluster-sample.js';
import { DeadLetterTally } from './dead-letter-tally.js';

export interface ClusterSamplerDeps {
  readonly connection: Connection;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly topics: TopicRegistry;
  readonly statistics: Statistics;
  /** How long one step may take, in milliseconds. */
  readonly timeoutMs: number;
}

export interface ClusterSample {
  readonly readings: Readings;
  /** Topics that could not be read whole. */
  readonly leftOut: number;
}

/** Topics or partitions in one step: about a millisecond of the server's time, on a connection that others use too. */
const TOGETHER = 32;
const NAMES_TOGETHER = 500;
/** Pauses are that many times as long as the step before: reading takes a fifth of the server's time at most. */
const REST = 4;
const MIN_REST_MS = 5;
const MAX_REST_MS = 250;
/** Pages of dead letters counted in one sample; a page is bounded by the script. */
const TALLY_PAGES = 50;
const TALLY_LIMIT = 1_000;

/** Why a sample was given up. */
class Interrupted extends Error {}

interface Draft {
  readonly meta: TopicMeta;
  readonly partitions: PartitionStats[];
  readonly groups: Map<string, GroupStats[]>;
  readonly deadLetters: DeadLetterCount[];
}

/** The dead letters of a partition. */
interface Tallied {
  readonly draft: Draft;
  readonly keys: PartitionKeys;
  readonly stats: PartitionStats;
  readonly tally: DeadLetterTally;
}

/**
 * Reads what all instances share, in small steps with pauses between them, whatever the number of topics. A topic of
 * which a part cannot be read is left out: a sum without one of its parts would be wrong.
 */
export class ClusterSampler {
  private readonly tallies = new Map<string, DeadLetterTally>();
  /** The dead letters that were counted last. */
  private countedUpTo: string | undefined;

  constructor(private readonly deps: ClusterSamplerDeps) {}

  /**
   * `null` when `goesOn` said no meanwhile.
   * @throws when Redis is away, or nothing of it may be read
   */
  async sample(goesOn: () => boolean, signal: AbortSignal): Promise<ClusterSample | null> {
    try {
      return await this.read(new Pace(this.deps, goesOn, signal));
    } catch (error) {
      if (error instanceof Interrupted) return null;
      throw error;
    }
  }

  private async read(pace: Pace): Promise<ClusterSample> {
    const { connection, topics, statistics } = this.deps;
    const servers = await pace.step(() => serverStates(connection));
    const names = await this.topicNames(pace);
    const drafts = new Map<string, Draft>();
    const failures = new Map<string, unknown>();
    await pace.each(
      names,
      (some) => Promise.all(some.map((topic) => outcomeOf(topics.refresh(topic)))),
      (topic, found) => {
        if (!found.ok) failures.set(topic, found.error);
        else if (found.value !== null) drafts.set(topic, draftOf(found.value));
      },
    );
    await pace.each(
      [...drafts.values()].flatMap(({ meta }) => partitionsOf(meta)),
      (some) => statistics.ofPartitions(some, { countLimit: 0 }),
      ({ topic }, stats) => {
        if (stats.ok) drafts.get(topic)!.partitions.push(stats.value);
        else failures.set(topic, stats.error);
      },
    );
    await pace.each(
      [...drafts.values()].flatMap(groupsOf),
      (some) => statistics.ofGroups(some),
      ({ topic, group }, stats) => {
        const { groups } = drafts.get(topic)!;
        if (!stats.ok) failures.set(topic, stats.error);
        else groups.set(group, [...(groups.get(group) ?? []), stats.value]);
      },
    );
    for (const topic of failures.keys()) drafts.delete(topic);
    this.throwIfNothing(names.length, failures);
    await this.countDeadLetters([...drafts.values()], pace);
    const samples = [...drafts.values()].map((draft): TopicSample => ({ ...draft, topic: draft.meta.topic }));
    return { readings: readingsOf(samples, servers), leftOut: failures.size };
  }

  private async topicNames(pace: Pace): Promise<string[]> {
    const names = new Set<string>();
    let cursor = '0';
    do {
      const step = await pace.step(() => this.deps.topics.scan(cursor, '', NAMES_TOGETHER));
      for (const name of step.names) names.add(name);
      cursor = step.cursor;
    } while (cursor !== '0');
    // In order: what is beyond a limit of labels is the same from sample to sample.
    return [...names].sort();
  }

  private throwIfNothing(asked: number, failures: ReadonlyMap<string, unknown>): void {
    for (const error of failures.values()) {
      if (failures.size === asked || classifyRedisError(error) === 'configuration') throw error;
    }
  }

  /** As many pages as one sample reads, beginning behind where the last one ended: none is left out for ever. */
  private async countDeadLetters(drafts: readonly Draft[], pace: Pace): Promise<void> {
    const counted = drafts.flatMap((draft) => this.talliesOf(draft));
    const present = new Set(counted.map(({ keys }) => keys.dlq));
    for (const dlq of this.tallies.keys()) if (!present.has(dlq)) this.tallies.delete(dlq);
    const first = counted.findIndex(({ keys }) => keys.dlq === this.countedUpTo) + 1;
    let pages = TALLY_PAGES;
    for (const { keys, tally, stats } of [...counted.slice(first), ...counted.slice(0, first)]) {
      if (pages === 0) break;
      this.countedUpTo = keys.dlq;
      for (let isMore = true; isMore && pages > 0; pages--) isMore = await this.countPage(keys, tally, stats, pace);
    }
    for (const { draft, tally } of counted) draft.deadLetters.push(...tally.result);
  }

  /** Of the partitions that have dead letters. */
  private talliesOf(draft: Draft): Tallied[] {
    const { meta, partitions } = draft;
    return partitions.flatMap((stats, partition) => {
      if (stats.deadLetters === 0) return [];
      const keys = this.deps.keys.partition(meta.topic, partition);
      const tally = this.tallies.get(keys.dlq) ?? new DeadLetterTally();
      this.tallies.set(keys.dlq, tally);
      // Also where this sample does not look, all that are there are shown.
      tally.next(stats.deadLetters);
      return [{ draft, keys, stats, tally }];
    });
  }

  /** True when there is more to count. */
  private async countPage(
    keys: PartitionKeys,
    tally: DeadLetterTally,
    stats: PartitionStats,
    pace: Pace,
  ): Promise<boolean> {
    const after = tally.next(stats.deadLetters);
    if (after === null) return false;
    const args = { low: `(${after}`, high: '+', scan: TALLY_LIMIT, failedFrom: '', failedTo: '' };
    return tally.add(await pace.step(() => this.deps.connection.run(call(dlqCount, keys, args))));
  }
}

/** Steps that are short for the server, and in time. */
class Pace {
  constructor(
    private readonly deps: Pick<ClusterSamplerDeps, 'connection' | 'clock' | 'timeoutMs'>,
    private readonly goesOn: () => boolean,
    private readonly signal: AbortSignal,
  ) {}

  async step<T>(work: () => Promise<T>): Promise<T> {
    const { connection, clock, timeoutMs } = this.deps;
    if (!this.goesOn()) throw new Interrupted();
    const before = clock.monotonic();
    const result = await connection.withTimeout(work(), timeoutMs);
    const rest = REST * (clock.monotonic() - before);
    await pause(clock, Math.min(MAX_REST_MS, Math.max(MIN_REST_MS, rest)), this.signal);
    return result;
  }

  async each<T, R>(
    items: readonly T[],
    ask: (some: readonly T[]) => Promise<readonly R[]>,
    take: (item: T, answer: R) => void,
  ): Promise<void> {
    for (let i = 0; i < items.length; i += TOGETHER) {
      const some = items.slice(i, i + TOGETHER);
      const answers = await this.step(() => ask(some));
      for (const [at, item] of some.entries()) take(item, answers[at]!);
    }
  }
}

function draftOf(meta: TopicMeta): Draft {
  return { meta, partitions: [], groups: new Map(), deadLetters: [] };
}

function partitionsOf({ topic, partitionCount }: TopicMeta): PartitionRef[] {
  return Array.from({ length: partitionCount }, (_, partition) => ({ topic, partition }));
}

/** Every group of the topic on every partition: one may not have come to a new partition yet. */
function groupsOf({ meta, partitions }: Draft): GroupPartitionRef[] {
  const groups = new Set(partitions.flatMap((stats) => stats.groups.map(({ group }) => group)));
  return [...groups].flatMap((group) => partitionsOf(meta).map((ref) => ({ ...ref, group })));
}

function outcomeOf<T>(answer: Promise<T>): Promise<Outcome<T>> {
  return answer.then(
    (value) => ({ ok: true, value }),
    (error: unknown) => ({ ok: false, error: error as Error }),
  );
}
