import { assertTopicName } from '../core/names.js';
import { compareStreamIds, streamIdTime } from '../core/stream-id.js';
import type { PartitionStats } from '../redis/scripts/stats.script.js';
import { valueOf } from '../redis/spread.js';
import type { Lag } from '../redis/statistics.js';
import { forEachOf, invalidArgument, partitionsOf, requireTopic, type AdminDeps } from './admin-deps.js';
import { ownerOf, readGroups, type PartitionOwner } from './group-partition.js';
import { badCursor, limitOf, type Page, type PageOptions } from './paging.js';
import type { TopicRetention } from '../core/topic-retention.js';

/** A topic in a list. */
export interface TopicSummary {
  readonly topic: string;
  readonly partitionCount: number;
  /** By the server's clock, in milliseconds. */
  readonly createdAt: number;
}

/** Which topics are listed. */
export interface TopicListOptions extends PageOptions {
  /** Only topics whose names begin like this. */
  readonly prefix?: string;
}

/** What of a topic is described. */
export interface TopicDescribeOptions {
  /** First partition to describe. @defaultValue 0 */
  readonly from?: number;
  /** Partitions to describe, 1 to 1000. @defaultValue 256 */
  readonly limit?: number;
}

/** A group on one partition. */
export interface PartitionGroup {
  readonly group: string;
  /** `null` when nobody holds the lease. */
  readonly owner: PartitionOwner | null;
  readonly isPaused: boolean;
  /** False when the stream has lost the group and only its commit position is known. */
  readonly isPresent: boolean;
  readonly lag: Lag;
  readonly pending: number;
}

/** One partition: its messages and its groups. */
export interface PartitionDescription {
  readonly partition: number;
  /** Entries in the stream, handled ones that are retained included. */
  readonly length: number;
  readonly firstId: string | null;
  readonly lastId: string | null;
  /** Entries ever added; `null` before Redis 7. */
  readonly entriesAdded: number | null;
  /** Estimate of the stream's memory; `null` when Redis does not let this user ask. */
  readonly bytes: number | null;
  readonly deadLetters: number;
  /** Messages sent with a delay that are not due. */
  readonly delayed: number;
  readonly nextDelayedDue: number | null;
  readonly groups: readonly PartitionGroup[];
  /** The group for which messages are kept that retention would remove; `null` when there is none. */
  readonly pinnedBy: string | null;
  /** Keys whose type is not ours. What they would say is missing above. */
  readonly unreadable: readonly string[];
}

/** A topic, and a page of its partitions. */
export interface TopicDescription extends TopicSummary {
  /** What is kept of a partition, as this instance's options and the topic's own settings say. */
  readonly retention: TopicRetention;
  /** All groups of the partitions below. */
  readonly groups: readonly string[];
  readonly partitions: readonly PartitionDescription[];
  /** `from` of the next page of partitions; `null` after the last. */
  readonly next: number | null;
}

/** Calls of SSCAN for one page at most: a prefix that nothing has must not read a large registry in one go. */
const SCANS = 50;
const PARTITIONS = 256;

/** What is known of topics. */
export class Topics {
  constructor(private readonly deps: AdminDeps) {}

  async list(options: TopicListOptions = {}): Promise<Page<TopicSummary>> {
    const limit = limitOf(options.limit);
    const { prefix = '' } = options;
    if (!/^[A-Za-z0-9._-]{0,249}$/.test(prefix)) throw invalidArgument('prefix must be the beginning of a topic name');
    let place = parseCursor(options.cursor);
    const items: TopicSummary[] = [];
    for (let scans = 0; scans < SCANS; scans++) {
      const { names, cursor } = await this.deps.topics.scan(place.scan, prefix, limit);
      const { after } = place;
      const left = names.filter((name) => after === null || name > after);
      const taken = left.slice(0, limit - items.length);
      items.push(...(await this.summaries(taken)));
      if (taken.length < left.length) {
        place = { scan: place.scan, after: taken.at(-1) ?? after };
        if (items.length >= limit) break;
        continue;
      }
      if (cursor === '0') return { items, cursor: null };
      place = { scan: cursor, after: null };
      if (items.length >= limit) break;
    }
    return { items, cursor: place.after === null ? place.scan : `${place.scan}:${place.after}` };
  }

  async exists(topic: string): Promise<boolean> {
    assertTopicName(topic);
    return (await this.deps.topics.refresh(topic)) !== null;
  }

  async describe(topic: string, options: TopicDescribeOptions = {}): Promise<TopicDescription> {
    const { from = 0 } = options;
    if (!Number.isInteger(from) || from < 0) throw invalidArgument('from must be the number of a partition');
    const limit = options.limit === undefined ? PARTITIONS : limitOf(options.limit);
    const meta = await requireTopic(this.deps, topic);
    const { partitionCount, createdAt } = meta;
    const numbers = partitionsOf(meta).slice(from, from + limit);
    const retention = await this.deps.retention.of(topic);
    const stats = (
      await this.deps.statistics.ofPartitions(
        numbers.map((partition) => ({ topic, partition })),
        { bytes: true },
      )
    ).map(valueOf);
    const groups = await readGroups(
      this.deps,
      stats.flatMap((of, i) => of.groups.map(({ group }) => ({ topic, partition: numbers[i]!, group }))),
    );
    const partitions = stats.map((of, i): PartitionDescription => {
      const { length, firstId, lastId, entriesAdded, bytes, deadLetters, delayed, nextDelayedDue, unreadable } = of;
      return {
        partition: numbers[i]!,
        length,
        firstId,
        lastId,
        entriesAdded,
        bytes,
        deadLetters,
        delayed,
        nextDelayedDue,
        groups: groups
          .filter(({ ref }) => ref.partition === numbers[i])
          .map(({ ref, stats: group, lag }) => ({
            group: ref.group,
            owner: ownerOf(group),
            isPaused: group.isPaused,
            isPresent: group.isPresent,
            lag,
            pending: group.pending + group.retryPending,
          }))
          .sort((a, b) => (a.group < b.group ? -1 : 1)),
        pinnedBy: pinnedBy(of, retention),
        unreadable,
      };
    });
    const names = new Set(partitions.flatMap(({ groups: of }) => of.map(({ group }) => group)));
    const next = from + limit < partitionCount ? from + limit : null;
    return { topic, partitionCount, createdAt, retention, groups: [...names].sort(), partitions, next };
  }

  /** A name without meta is a topic that was deleted, or whose server lost its data: it is not listed. */
  private async summaries(names: readonly string[]): Promise<TopicSummary[]> {
    const metas = await forEachOf(names, (name) => this.deps.topics.refresh(name));
    return metas.flatMap((meta) => {
      if (meta === null) return [];
      const { topic, partitionCount, createdAt } = meta;
      return [{ topic, partitionCount, createdAt }];
    });
  }
}

/** The group whose place retention may not pass, if it would. The same rule as the trimming script's. */
function pinnedBy(stats: PartitionStats, { maxLen, maxAgeMs }: TopicRetention): string | null {
  const { firstId, length, now, groups } = stats;
  if (firstId === null) return null;
  const isWanted = (maxLen > 0 && length > maxLen) || (maxAgeMs > 0 && streamIdTime(firstId) < now - maxAgeMs);
  if (!isWanted) return null;
  const places = groups
    .map(({ group, oldestPendingId, position }) => ({ group, place: oldestPendingId ?? position }))
    .sort((a, b) => compareStreamIds(a.place, b.place));
  const last = places[0];
  return last !== undefined && compareStreamIds(firstId, last.place) >= 0 ? last.group : null;
}

interface ScanPlace {
  readonly scan: string;
  /** Within the answer of that scan: what was listed last. */
  readonly after: string | null;
}

function parseCursor(cursor: string | undefined): ScanPlace {
  if (cursor === undefined) return { scan: '0', after: null };
  const [, scan, after] = /^(\d{1,20})(?::([A-Za-z0-9._-]{1,249}))?$/.exec(String(cursor)) ?? [];
  if (scan === undefined) throw badCursor(cursor);
  return { scan, after: after ?? null };
}
