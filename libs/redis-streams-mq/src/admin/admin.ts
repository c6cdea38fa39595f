import { MqAdminError } from '../core/errors.js';
import { assertTopicName } from '../core/names.js';
import { MAX_PARTITION_COUNT } from '../core/options.js';
import type { RetentionChange, TopicRetention } from '../core/topic-retention.js';
import type { TopicMeta } from '../redis/topic-registry.js';
import type { AdminDeps } from './admin-deps.js';
import { EventSearch, type EventSearchOptions, type EventSearchResult } from './event-search.js';
import {
  Groups,
  type GroupDescribeOptions,
  type GroupDescription,
  type GroupListOptions,
  type GroupOnTopic,
} from './groups.js';
import { Messages, type MessageRangeOptions } from './messages.js';
import type { Page } from './paging.js';
import { PendingEntries, type PendingListOptions, type PendingPage } from './pending-entries.js';
import { Pausing, type PauseOptions, type PauseReport } from './pausing.js';
import { Positions, type ResetOptions, type ResetReport } from './positions.js';
import { GroupDeletion, type GroupDeletionReport } from './group-deletion.js';
import { RangeReplay, type ReplayRangeOptions, type ReplayRangeReport } from './range-replay.js';
import type { ResetTarget } from './reset-target.js';
import type { RetainedMessage } from './retained-message.js';
import { TopicDeletion, type TopicDeletionOptions, type TopicDeletionReport } from './topic-deletion.js';
import { TopicGrowth } from './topic-growth.js';
import { Trimming, type PurgeOptions, type TrimOptions, type TrimReport, type TrimRule } from './trimming.js';
import {
  Topics,
  type TopicDescribeOptions,
  type TopicDescription,
  type TopicListOptions,
  type TopicSummary,
} from './topics.js';

/** What people who run the queue ask of it from code. Reads keys by name and never scans the keyspace. */
export class MqAdmin {
  private readonly pausing: Pausing;
  private readonly topics: Topics;
  private readonly positions: Positions;
  private readonly rangeReplay: RangeReplay;
  private readonly groups: Groups;
  private readonly messages: Messages;
  private readonly events: EventSearch;
  private readonly pending: PendingEntries;
  private readonly growth: TopicGrowth;
  private readonly topicDeletion: TopicDeletion;
  private readonly groupDeletion: GroupDeletion;
  private readonly trimming: Trimming;

  constructor(private readonly deps: AdminDeps) {
    this.pausing = new Pausing(deps);
    this.topics = new Topics(deps);
    this.positions = new Positions(deps);
    this.rangeReplay = new RangeReplay(deps);
    this.groups = new Groups(deps, this.topics);
    this.messages = new Messages(deps);
    this.events = new EventSearch(deps);
    this.pending = new PendingEntries(deps);
    this.growth = new TopicGrowth(deps, this.pausing);
    this.topicDeletion = new TopicDeletion(deps, this.pausing);
    this.groupDeletion = new GroupDeletion(deps);
    this.trimming = new Trimming(deps);
  }

  /** The registered topics, a page at a time, in no particular order. While topics come and go one may be on two pages. */
  listTopics(options: TopicListOptions = {}): Promise<Page<TopicSummary>> {
    return this.topics.list(options);
  }

  /** Whether the topic is there, and not deleted. */
  topicExists(topic: string): Promise<boolean> {
    return this.topics.exists(topic);
  }

  /**
   * Makes a topic; one that exists is left as it is and returned with the count it has, with a warning if another was asked for.
   * One that was deleted is made anew.
   * @throws MqAdminError `MQ_INVALID_ARGUMENT`, `MQ_TOPIC_BEING_DELETED`; MqInvalidNameError
   */
  async createTopic(topic: string, options: { readonly partitionCount?: number } = {}): Promise<TopicMeta> {
    assertTopicName(topic);
    const count = options.partitionCount ?? this.deps.defaultPartitionCount;
    if (!Number.isInteger(count) || count < 1 || count > MAX_PARTITION_COUNT) {
      throw new MqAdminError(
        'MQ_INVALID_ARGUMENT',
        `partitionCount must be an integer from 1 to ${MAX_PARTITION_COUNT}`,
      );
    }
    const meta = await this.deps.topics.ensure(topic, count, { anew: true });
    this.deps.announce({ type: 'topic', topic, change: 'created' });
    if (options.partitionCount !== undefined && meta.partitionCount !== count) {
      this.deps.events.emit('warning', {
        message: 'a topic exists with another partition count than was asked for, and keeps it',
        fields: { topic, partitionCount: meta.partitionCount, asked: count },
      });
    }
    return meta;
  }

  /**
   * Its partitions with their lengths, ids, bytes, dead letters and delayed messages, per group on them the owner and the lag, and
   * what is kept.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`
   */
  describeTopic(topic: string, options: TopicDescribeOptions = {}): Promise<TopicDescription> {
    return this.topics.describe(topic, options);
  }

  /**
   * The groups of a topic, or of all topics, those of `limit` topics a page: what Redis has, whether instances run or not.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  listGroups(options: GroupListOptions = {}): Promise<Page<GroupOnTopic>> {
    return this.groups.list(options);
  }

  /**
   * Its state, its living members, and per partition the owner, the position, and what is left to do, wherever it waits.
   * @throws MqAdminError `MQ_GROUP_NOT_FOUND`, `MQ_TOPIC_NOT_FOUND`
   */
  describeGroup(group: string, options: GroupDescribeOptions = {}): Promise<GroupDescription> {
    return this.groups.describe(group, options);
  }

  /**
   * Retained messages of a partition, handled or not, in either direction. A page ends after 16 MB, too.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  getMessages(topic: string, partition: number, options: MessageRangeOptions = {}): Promise<Page<RetainedMessage>> {
    return this.messages.range(topic, partition, options);
  }

  /**
   * The newest `count` (1 to 1000) messages of all partitions together, newest first.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  newest(topic: string, count: number = 20): Promise<readonly RetainedMessage[]> {
    return this.messages.newest(topic, count);
  }

  /**
   * One message, or `null` when it is not (or no longer) there.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  getMessage(topic: string, partition: number, id: string): Promise<RetainedMessage | null> {
    return this.messages.get(topic, partition, id);
  }

  /**
   * Looks for a retained message by its event id: around the time that a UUIDv7 carries, then everywhere else, until
   * `maxScanned` entries were looked at. `cursor` goes on from there, or behind the one that was found.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  findByEventId(topic: string, eventId: string, options: EventSearchOptions = {}): Promise<EventSearchResult> {
    return this.events.find(topic, eventId, options);
  }

  /**
   * What consumers of the group were given and have not settled, on the partitions and on the group's retry streams.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_GROUP_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  listPending(topic: string, group: string, options: PendingListOptions = {}): Promise<PendingPage> {
    return this.pending.list(topic, group, options);
  }

  /**
   * Stops handling of a topic, or of one group on it, in all instances, those that start later too, until `resume()`. Resolves when
   * nothing is in flight: no handler runs and everything handled is settled. Publishing goes on.
   * @throws MqAdminError `MQ_PAUSE_TIMEOUT` (handlers still run; it stays paused), `MQ_PAUSE_CHANGED`, `MQ_TOPIC_NOT_FOUND`
   */
  pause(topic: string, options: PauseOptions = {}): Promise<PauseReport> {
    return this.pausing.pause(topic, options);
  }

  /**
   * Ends a pause: with `group` that of the group, else that of the whole topic. Handling goes on at once.
   * @throws MqAdminError `MQ_PAUSE_CHANGED`, `MQ_TOPIC_NOT_FOUND`
   */
  resume(topic: string, options: { readonly group?: string } = {}): Promise<void> {
    return this.pausing.resume(topic, options);
  }

  /** Whether the whole topic is paused, and which of its groups are by themselves. */
  async paused(topic: string): Promise<{ readonly all: boolean; readonly groups: readonly string[] }> {
    const { all, groups } = await this.pausing.state(topic);
    return { all, groups };
  }

  /**
   * Moves a group to another position on a topic; see `ResetTarget`. It must be paused or stopped; with `dryRun` it may run.
   * @throws MqAdminError `MQ_GROUP_RUNNING`, `MQ_GROUP_NOT_FOUND`, `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`,
   * `MQ_RESET_INCOMPLETE` (done on some partitions only: its context says which)
   */
  resetPosition(topic: string, group: string, target: ResetTarget, options: ResetOptions = {}): Promise<ResetReport> {
    return this.positions.reset(topic, group, target, options);
  }

  /**
   * Hands retained messages that a group was given already to it once more, while it runs: with their attempts reset and their event
   * ids kept.
   * @throws MqAdminError `MQ_GROUP_NOT_FOUND`, `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`, `MQ_REPLAY_INCOMPLETE` (its context says
   * what was replayed before it failed)
   */
  replayRange(topic: string, group: string, options: ReplayRangeOptions = {}): Promise<ReplayRangeReport> {
    return this.rangeReplay.replay(topic, group, options);
  }

  /**
   * Gives a topic more partitions. Instances follow at once, at the latest after `rebalanceIntervalSec`. Keys move to other partitions,
   * and what is in the old ones is not waited for.
   * @throws MqAdminError `MQ_PARTITION_COUNT_LOWERED`, `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`
   */
  raisePartitionCount(topic: string, partitionCount: number): Promise<TopicMeta> {
    return this.growth.raise(topic, partitionCount);
  }

  /**
   * Deletes a topic with all its messages, retries, dead letters and positions. Running instances go on with their other topics, and sends
   * reject with `MQ_TOPIC_DELETED` until `createTopic()` makes it anew. A deletion that broke off is finished by calling again.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_TOPIC_MADE_ANEW` (by others meanwhile: the new one was left alone), `MQ_INVALID_ARGUMENT`
   */
  deleteTopic(topic: string, options: TopicDeletionOptions = {}): Promise<TopicDeletionReport> {
    return this.topicDeletion.delete(topic, options);
  }

  /**
   * Deletes a group that nobody runs, on one topic or on all: its positions, pending entries and retries. Its dead letters stay.
   * @throws MqAdminError `MQ_GROUP_RUNNING`, `MQ_GROUP_NOT_FOUND`, `MQ_TOPIC_NOT_FOUND`
   */
  deleteGroup(group: string, options: { readonly topic?: string } = {}): Promise<GroupDeletionReport> {
    return this.groupDeletion.delete(group, options);
  }

  /**
   * Removes the oldest messages of each partition, by length, age or id; never what some group has not settled, unless `force`.
   * @throws MqAdminError `MQ_INVALID_ARGUMENT`, `MQ_TOPIC_NOT_FOUND`
   */
  async trimTopic(topic: string, rule: TrimRule, options: TrimOptions = {}): Promise<TrimReport> {
    return this.trimming.trim(topic, rule, options);
  }

  /**
   * Removes everything that is retained and settled by all groups; with `force` also what is not. Retries, delayed messages and dead
   * letters stay.
   * @throws MqAdminError `MQ_INVALID_ARGUMENT`, `MQ_TOPIC_NOT_FOUND`
   */
  async purge(topic: string, options: PurgeOptions = {}): Promise<TrimReport> {
    return this.trimming.purge(topic, options);
  }

  /**
   * Gives a topic bounds of its own in place of the options' (`null`: the options' again). All instances follow within `trimIntervalSec`.
   * @throws MqAdminError `MQ_INVALID_ARGUMENT`, `MQ_TOPIC_NOT_FOUND`
   */
  async setRetention(topic: string, change: RetentionChange): Promise<TopicRetention> {
    return this.trimming.setRetention(topic, change);
  }
}
