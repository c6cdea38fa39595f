import type { PartitionRef } from '../core/events.js';
import { isStreamId, nextStreamId } from '../core/stream-id.js';
import { retentionProblem, type RetentionChange, type TopicRetention } from '../core/topic-retention.js';
import { call } from '../redis/script.js';
import type { PartitionStats } from '../redis/scripts/stats.script.js';
import { trim } from '../redis/scripts/trim.script.js';
import { valueOf } from '../redis/spread.js';
import { chosen, forEachOf, invalidArgument, requireTopic, topicNotFound, type AdminDeps } from './admin-deps.js';

/** What of each partition is to go: all but the newest `maxLen`, what is older, or what stands before a message. */
export type TrimRule = { readonly maxLen: number } | { readonly olderThanMs: number } | { readonly beforeId: string };

/** Which messages a purge takes. */
export interface PurgeOptions {
  /** @defaultValue all of the topic */
  readonly partition?: number;
  /**
   * Also what some group has not settled, which it then never handles.
   * @defaultValue false
   */
  readonly force?: boolean;
}

/** Which messages a trimming by hand may take. */
export type TrimOptions = PurgeOptions;

/** What trimming did to one partition. */
export interface PartitionTrim {
  readonly partition: number;
  readonly removed: number;
  /** How many of them some group had not settled; 0 without `force`. */
  readonly unsettled: number;
  /** The group for which messages were kept that the rule would remove; `null` also where no group has read the partition. */
  readonly pinnedBy: string | null;
}

/** What a trimming by hand has removed. */
export interface TrimReport {
  readonly topic: string;
  readonly rule: 'maxLen' | 'olderThanMs' | 'beforeId' | 'purge';
  readonly removed: number;
  readonly unsettled: number;
  readonly partitions: readonly PartitionTrim[];
}

interface Bounds {
  readonly maxLen: number;
  readonly maxAgeMs: number;
  readonly beforeId: string;
}

/** Entries that one script looks at. */
const LIMIT = 1_000;

/** Removing messages by hand, and the bounds by which owners remove them. */
export class Trimming {
  constructor(private readonly deps: AdminDeps) {}

  /** @throws MqAdminError `MQ_INVALID_ARGUMENT`, `MQ_TOPIC_NOT_FOUND` */
  trim(topic: string, rule: TrimRule, options: TrimOptions = {}): Promise<TrimReport> {
    const named = parse(rule);
    return this.remove(topic, named.rule, () => named.bounds, options);
  }

  /** @throws MqAdminError `MQ_INVALID_ARGUMENT`, `MQ_TOPIC_NOT_FOUND` */
  purge(topic: string, options: PurgeOptions = {}): Promise<TrimReport> {
    // Not what is sent meanwhile.
    const everything = ({ lastId }: PartitionStats): Bounds => ({
      maxLen: 0,
      maxAgeMs: 0,
      beforeId: lastId === null ? '' : nextStreamId(lastId),
    });
    return this.remove(topic, 'purge', everything, options);
  }

  /** @throws MqAdminError `MQ_INVALID_ARGUMENT`, `MQ_TOPIC_NOT_FOUND` */
  async setRetention(topic: string, change: RetentionChange): Promise<TopicRetention> {
    const problem = retentionProblem(change);
    if (problem !== undefined) throw invalidArgument(problem);
    await requireTopic(this.deps, topic);
    const { retention } = this.deps;
    const { maxLen, hardMaxLen } = { ...(await retention.of(topic)), ...given(change) };
    if (hardMaxLen > 0 && hardMaxLen < maxLen) {
      throw invalidArgument(`hardMaxLen ${hardMaxLen} must not be below maxLen ${maxLen}, which keeps what is settled`);
    }
    if (!(await retention.set(topic, change))) throw topicNotFound(topic);
    return retention.of(topic);
  }

  private async remove(
    topic: string,
    rule: TrimReport['rule'],
    boundsOf: (stats: PartitionStats) => Bounds,
    options: PurgeOptions,
  ): Promise<TrimReport> {
    const { partition, force = false } = options;
    const { partitionCount } = await requireTopic(this.deps, topic);
    const numbers = chosen(partition === undefined ? undefined : [partition], partitionCount);
    // As they are now: what comes meanwhile is not meant, or emptying a partition might never end.
    const refs = numbers.map((number) => ({ topic, partition: number }));
    const looks = (await this.deps.statistics.ofPartitions(refs, { countLimit: 0 })).map(valueOf);
    const partitions = await forEachOf([...looks.keys()], (i) =>
      this.removeFrom(refs[i]!, looks[i]!.length, boundsOf(looks[i]!), force),
    );
    return {
      topic,
      rule,
      removed: partitions.reduce((sum, of) => sum + of.removed, 0),
      unsettled: partitions.reduce((sum, of) => sum + of.unsettled, 0),
      partitions,
    };
  }

  private async removeFrom(
    { topic, partition }: PartitionRef,
    left: number,
    bounds: Bounds,
    force: boolean,
  ): Promise<PartitionTrim> {
    const { connection, keys } = this.deps;
    const place = keys.partition(topic, partition);
    const of = { removed: 0, unsettled: 0, pinnedBy: null as string | null };
    while (of.removed < left) {
      const limit = Math.min(LIMIT, left - of.removed);
      const args = { ...bounds, hardMaxLen: 0, limit, guarded: 1, force: force ? 1 : 0, abandonedMs: 0 };
      const { byLength, byAge, byId, byHardBound, pinnedBy } = await connection.run(call(trim, place, args));
      const removed = byLength + byAge + byId + byHardBound;
      of.removed += removed;
      of.unsettled += byHardBound;
      if (removed < limit) {
        of.pinnedBy = pinnedBy || null;
        break;
      }
    }
    return { partition, ...of };
  }
}

function parse(rule: unknown): { readonly rule: TrimReport['rule']; readonly bounds: Bounds } {
  const none = { maxLen: 0, maxAgeMs: 0, beforeId: '' };
  const names = typeof rule === 'object' && rule !== null ? Object.keys(rule) : [];
  const { maxLen, olderThanMs, beforeId } = (names.length === 1 ? rule : {}) as Record<string, unknown>;
  if (Number.isSafeInteger(maxLen) && (maxLen as number) >= 1) {
    return { rule: 'maxLen', bounds: { ...none, maxLen: maxLen as number } };
  }
  if (maxLen !== undefined) {
    throw invalidArgument(
      'maxLen must be an integer, 1 or more, and applies to each partition; to remove everything use purge()',
    );
  }
  if (Number.isSafeInteger(olderThanMs) && (olderThanMs as number) >= 1) {
    return { rule: 'olderThanMs', bounds: { ...none, maxAgeMs: olderThanMs as number } };
  }
  if (isStreamId(beforeId)) return { rule: 'beforeId', bounds: { ...none, beforeId } };
  throw invalidArgument(
    'give one of { maxLen: 1 or more }, { olderThanMs: 1 or more } and { beforeId: the id of a message }',
  );
}

/** Without the bounds that are given back to the options, which are looked at when they are used. */
function given(change: RetentionChange): Partial<TopicRetention> {
  return Object.fromEntries(Object.entries(change).filter(([, value]) => typeof value === 'number'));
}
