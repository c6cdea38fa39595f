import { MqAdminError } from '../core/errors.js';
import { parseMember } from '../core/member-description.js';
import { assertGroupName } from '../core/names.js';
import { call } from '../redis/script.js';
import { livingMembers } from '../redis/scripts/members.script.js';
import { deleteGroup } from '../redis/scripts/topic-change.script.js';
import { valueOf } from '../redis/spread.js';
import type { TopicMeta } from '../redis/topic-registry.js';
import { forEachOf, groupNotFound, partitionsOf, requireTopic, type AdminDeps } from './admin-deps.js';
import { running, whileIdle } from './admin-leases.js';

/** What went with a deleted group. */
export interface GroupDeletionReport {
  readonly group: string;
  /** Topics on which it was deleted. */
  readonly topics: readonly string[];
}

const TOPICS_PER_SCAN = 100;

/** Deleting groups that nobody runs. */
export class GroupDeletion {
  constructor(private readonly deps: AdminDeps) {}

  /**
   * Deletes a group on a topic, or on all topics.
   * @throws MqAdminError `MQ_GROUP_RUNNING` (nothing was deleted on that topic and those behind it), `MQ_GROUP_NOT_FOUND`,
   * `MQ_TOPIC_NOT_FOUND`
   */
  async delete(group: string, options: { readonly topic?: string } = {}): Promise<GroupDeletionReport> {
    assertGroupName(group);
    const { topic } = options;
    const topics = await (topic === undefined ? this.topicsOf(group) : this.topicOf(group, topic));
    const subscribed = await this.subscribers(group);
    for (const meta of topics) {
      const members = subscribed.get(meta.topic);
      if (members !== undefined) throw running(meta.topic, group, members);
    }
    for (const meta of topics) await this.deleteOn(meta, group);
    if (topic === undefined && subscribed.size === 0) {
      const { members, info } = this.deps.keys.members(group);
      await this.deps.connection.send('UNLINK', members, info);
    }
    return { group, topics: topics.map((meta) => meta.topic) };
  }

  private async deleteOn(meta: TopicMeta, group: string): Promise<void> {
    const { keys, connection } = this.deps;
    const { topic } = meta;
    const partitions = partitionsOf(meta);
    await whileIdle(this.deps, topic, group, partitions, async (hold) => {
      // First: a deletion that breaks off leaves partitions by which a second call knows the group, and no start or pause without them.
      await connection.send('HDEL', keys.topic(topic).meta, `start:${group}`, `paused:${group}`);
      for (const partition of partitions) {
        const token = await hold.token(partition);
        const reply = await connection.run(
          call(deleteGroup, keys.groupPartition(topic, partition, group), { token, group }),
        );
        if (reply.status === 'fenced') throw new MqAdminError('MQ_LEASE_LOST', 'the hold on the partition ended');
      }
    });
  }

  private async topicOf(group: string, topic: string): Promise<TopicMeta[]> {
    const meta = await requireTopic(this.deps, topic);
    if (!(await this.isOn(meta, group))) throw groupNotFound(topic, group);
    return [meta];
  }

  private async topicsOf(group: string): Promise<TopicMeta[]> {
    const found = new Map<string, TopicMeta>();
    let cursor = '0';
    do {
      const page = await this.deps.topics.scan(cursor, '', TOPICS_PER_SCAN);
      ({ cursor } = page);
      await forEachOf(page.names, async (name) => {
        const meta = await this.deps.topics.refresh(name);
        if (meta !== null && (await this.isOn(meta, group))) found.set(name, meta);
      });
    } while (cursor !== '0');
    if (found.size === 0) throw groupNotFound(null, group);
    return [...found.values()].sort((a, b) => (a.topic < b.topic ? -1 : 1));
  }

  private async isOn(meta: TopicMeta, group: string): Promise<boolean> {
    const refs = partitionsOf(meta).map((partition) => ({ topic: meta.topic, partition, group }));
    const stats = (await this.deps.statistics.ofGroups(refs, { countLimit: 0 })).map(valueOf);
    return stats.some((of) => of.isPresent || of.committed !== null || of.bucket > 0 || of.retryLength > 0);
  }

  /** Living members by topic: one that is paused or has no partition now would make the group again. */
  private async subscribers(group: string): Promise<ReadonlyMap<string, readonly string[]>> {
    const members = await this.deps.connection.run(call(livingMembers, this.deps.keys.members(group), {}));
    const subscribed = new Map<string, string[]>();
    for (const { id, about } of members) {
      for (const topic of parseMember(id, about).subscriptions.keys()) {
        subscribed.set(topic, [...(subscribed.get(topic) ?? []), id]);
      }
    }
    return subscribed;
  }
}
