import type { Member } from '../core/assignment.js';
import { MqAdminError } from '../core/errors.js';
import { parseMember } from '../core/member-description.js';
import { assertGroupName } from '../core/names.js';
import type { Command } from '../redis/connection.js';
import { asArray, asNumber, asText, type Reply } from '../redis/reply.js';
import { call } from '../redis/script.js';
import { livingMembers } from '../redis/scripts/members.script.js';
import type { OldestPending, Undelivered } from '../redis/scripts/stats.script.js';
import { valueOf } from '../redis/spread.js';
import type { Lag } from '../redis/statistics.js';
import type { TopicMeta } from '../redis/topic-registry.js';
import { forEachOf, partitionsOf, requireTopic, type AdminDeps } from './admin-deps.js';
import { ownerOf, readGroups, type GroupReading, type PartitionOwner } from './group-partition.js';
import { stateOf, sumOf, type GroupState } from './group-state.js';
import type { Page, PageOptions } from './paging.js';
import type { Topics } from './topics.js';

/** Which groups are listed. */
export interface GroupListOptions extends PageOptions {
  /** Only groups of this topic. Without it the topics are gone through, `limit` of them a page. */
  readonly topic?: string;
}

/** A group on one topic. */
export interface GroupOnTopic {
  readonly group: string;
  readonly topic: string;
  /** Partitions whose stream has the group. */
  readonly partitions: number;
  /** Partitions that have only its commit position: their streams have lost the group, and its next owner makes it again. */
  readonly lost: number;
}

/** What of a group is described. */
export interface GroupDescribeOptions {
  /** Only on this topic. Without it: on all topics of its members, and on all registered ones that know it. */
  readonly topic?: string;
}

/** An instance that takes part in the group. */
export interface GroupMember {
  readonly instance: string;
  /** For how much longer it counts as alive unless it is heard of again, in milliseconds. */
  readonly aliveMs: number;
  readonly topics: readonly string[];
  /** The most partitions it wants; 0: no cap. */
  readonly cap: number;
  /** Partitions it owns of the topics that are described. */
  readonly owned: number;
}

/** A name in the consumer group of Redis. */
export interface GroupConsumer {
  readonly name: string;
  readonly pending: number;
  /** Since it last asked, in milliseconds. */
  readonly idleMs: number;
}

/** What a group has to do on one partition. */
export interface GroupPartition {
  readonly partition: number;
  readonly owner: PartitionOwner | null;
  readonly isPaused: boolean;
  /** False when the stream does not have the group: its next owner makes it, at the commit position if there is one. */
  readonly isPresent: boolean;
  /** What was delivered last. */
  readonly position: string | null;
  /** Up to where everything is settled, as last written. */
  readonly committed: string | null;
  readonly lag: Lag;
  readonly undelivered: Undelivered;
  readonly pending: number;
  readonly oldestPending: OldestPending | null;
  /** Retries that wait for their time, and when the first is due by the server's clock. */
  readonly retriesWaiting: number;
  readonly nextRetryDue: number | null;
  /** Retries that are due, of which some may be running. */
  readonly retriesDue: number;
  readonly retriesPending: number;
  readonly oldestRetryPending: OldestPending | null;
  /** Original id of the oldest message that is not settled; `lag.ms` is its age. */
  readonly oldestId: string | null;
  readonly consumers: readonly GroupConsumer[];
  /** Keys whose type is not ours. What they would say is missing above. */
  readonly unreadable: readonly string[];
}

/** What a group has to do on one topic. */
export interface GroupTopic {
  readonly topic: string;
  readonly partitionCount: number;
  readonly lag: Lag;
  readonly pending: number;
  readonly partitions: readonly GroupPartition[];
}

/** A group: its members, and what it has to do on each topic. */
export interface GroupDescription {
  readonly group: string;
  readonly state: GroupState;
  readonly members: readonly GroupMember[];
  readonly lag: Lag;
  readonly pending: number;
  readonly topics: readonly GroupTopic[];
  /** False when there are more topics than were gone through (1000), so that the group may be on others too. */
  readonly isComplete: boolean;
}

interface Living {
  readonly member: Member;
  readonly aliveMs: number;
}

/** Registered topics that are asked whether they know a group. */
const TOPICS = 1_000;

/** What is known of consumer groups. */
export class Groups {
  constructor(
    private readonly deps: AdminDeps,
    private readonly topics: Topics,
  ) {}

  async list(options: GroupListOptions = {}): Promise<Page<GroupOnTopic>> {
    const { topic, ...page } = options;
    if (topic !== undefined) return { items: await this.ofTopic(await requireTopic(this.deps, topic)), cursor: null };
    const { items, cursor } = await this.topics.list(page);
    const groups: GroupOnTopic[] = [];
    for (const item of items) groups.push(...(await this.ofTopic(item)));
    return { items: groups, cursor };
  }

  async describe(group: string, options: GroupDescribeOptions = {}): Promise<GroupDescription> {
    assertGroupName(group);
    const living = await this.living(group);
    const { metas, isComplete } = await this.topicsOf(living, options.topic);
    const refs = metas.flatMap((meta) =>
      partitionsOf(meta).map((partition) => ({ topic: meta.topic, partition, group })),
    );
    const readings = await readGroups(this.deps, refs);
    const subscribed = new Set(living.flatMap(({ member }) => [...member.subscriptions.keys()]));
    const known = new Set(readings.filter(isKnown).map(({ ref }) => ref.topic));
    const described = metas.filter(({ topic }) => known.has(topic) || subscribed.has(topic));
    if (described.length === 0 && living.length === 0) {
      throw new MqAdminError('MQ_GROUP_NOT_FOUND', `there is no group ${group}${ofTopic(options.topic)}`, {
        context: { group, topic: options.topic ?? null },
      });
    }
    const names = new Set(described.map(({ topic }) => topic));
    const own = readings.filter(({ ref }) => names.has(ref.topic));
    const consumers = await this.consumers(own);
    const topics = described
      .map(({ topic, partitionCount }): GroupTopic => {
        const of = own.filter(({ ref }) => ref.topic === topic);
        const partitions = of.map((reading) => toPartition(reading, consumers.get(reading) ?? []));
        return { topic, partitionCount, ...sumOf(of), partitions };
      })
      .sort((a, b) => (a.topic < b.topic ? -1 : 1));
    const members = living.map(({ member, aliveMs }): GroupMember => {
      const owned = own.filter(({ stats }) => ownerOf(stats)?.instance === member.id).length;
      return { instance: member.id, aliveMs, topics: [...member.subscriptions.keys()].sort(), cap: member.cap, owned };
    });
    const state = stateOf(
      living.map(({ member }) => member),
      own,
    );
    return { group, state, members, ...sumOf(own), topics, isComplete };
  }

  /** From the streams and the commit positions of all partitions: what Redis has, whoever lives. */
  private async ofTopic({
    topic,
    partitionCount,
  }: Pick<TopicMeta, 'topic' | 'partitionCount'>): Promise<GroupOnTopic[]> {
    const refs = partitionsOf({ partitionCount }).map((partition) => ({ topic, partition }));
    const stats = (await this.deps.statistics.ofPartitions(refs, { countLimit: 0 })).map(valueOf);
    const groups = new Map<string, { partitions: number; lost: number }>();
    for (const { group, isPresent } of stats.flatMap((of) => of.groups)) {
      const seen = groups.get(group) ?? { partitions: 0, lost: 0 };
      seen[isPresent ? 'partitions' : 'lost']++;
      groups.set(group, seen);
    }
    return [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([group, seen]) => ({ group, topic, ...seen }));
  }

  private async living(group: string): Promise<Living[]> {
    const members = await this.deps.connection.run(call(livingMembers, this.deps.keys.members(group), {}));
    return members.map(({ id, about, aliveMs }) => ({ member: parseMember(id, about), aliveMs }));
  }

  /** Those that may know the group, as Redis has them now. */
  private async topicsOf(
    living: readonly Living[],
    topic: string | undefined,
  ): Promise<{ readonly metas: readonly TopicMeta[]; readonly isComplete: boolean }> {
    if (topic !== undefined) return { metas: [await requireTopic(this.deps, topic)], isComplete: true };
    const names = new Set(living.flatMap(({ member }) => [...member.subscriptions.keys()]));
    let cursor: string | null = '0';
    for (let seen = 0; cursor !== null && seen < TOPICS;) {
      const page: Awaited<ReturnType<Topics['list']>> = await this.topics.list({ limit: TOPICS, cursor });
      for (const item of page.items) names.add(item.topic);
      seen += page.items.length;
      ({ cursor } = page);
    }
    const metas = await forEachOf([...names], (name) => this.deps.topics.refresh(name));
    return { metas: metas.filter((meta) => meta !== null), isComplete: cursor === null };
  }

  private async consumers(readings: readonly GroupReading[]): Promise<Map<GroupReading, GroupConsumer[]>> {
    const some = readings.filter(({ stats }) => stats.consumers > 0);
    const replies = await this.deps.spread.send(
      some.map(({ ref }): Command => [
        'XINFO',
        'CONSUMERS',
        this.deps.keys.stream(ref.topic, ref.partition),
        ref.group,
      ]),
    );
    // The group may have been destroyed since.
    return new Map(
      some.map((reading, i) => {
        const reply = replies[i]!;
        return [reading, reply.ok ? asArray(reply.value).map(toConsumer) : []];
      }),
    );
  }
}

/** Whether the partition has anything of the group. */
function isKnown({ stats }: GroupReading): boolean {
  const { isPresent, committed, token, bucket, retryLength } = stats;
  return isPresent || committed !== null || token !== null || bucket > 0 || retryLength > 0;
}

function toPartition({ ref, stats, lag }: GroupReading, consumers: readonly GroupConsumer[]): GroupPartition {
  const { isPaused, isPresent, position, committed, undelivered, pending, oldestPending, oldestId, unreadable } = stats;
  return {
    partition: ref.partition,
    owner: ownerOf(stats),
    isPaused,
    isPresent,
    position,
    committed,
    lag,
    undelivered,
    pending,
    oldestPending,
    retriesWaiting: stats.bucket,
    nextRetryDue: stats.nextDue,
    retriesDue: stats.retryLength,
    retriesPending: stats.retryPending,
    oldestRetryPending: stats.oldestRetryPending,
    oldestId,
    consumers,
    unreadable,
  };
}

function toConsumer(reply: Reply): GroupConsumer {
  const flat = asArray(reply);
  const fields = new Map<string, Reply>();
  for (let i = 0; i + 1 < flat.length; i += 2) fields.set(asText(flat[i]), flat[i + 1]!);
  return {
    name: asText(fields.get('name')),
    pending: asNumber(fields.get('pending')),
    idleMs: asNumber(fields.get('idle')),
  };
}

function ofTopic(topic: string | undefined): string {
  return topic === undefined ? '' : ` on topic ${topic}`;
}
