/** Keys of one partition that every group shares. All carry the partition's hash tag: one slot in Cluster. */
export interface PartitionKeys {
  readonly stream: string;
  readonly dlq: string;
  /** Which dead letters were imported, and when. */
  readonly imports: string;
  readonly delayed: string;
  readonly delayedItems: string;
  readonly delayedSeq: string;
  readonly commit: string;
  /** When an owner of each group was last there, by the server's clock. */
  readonly activity: string;
  /** Pause flag for all groups. */
  readonly pausedAll: string;
  /** The last change of each pause flag that came here, by its number. */
  readonly pauseChanges: string;
  /** Which making of the partition this is. */
  readonly incarnation: string;
}

/** Keys of one group on one partition, in the partition's slot. */
export interface GroupPartitionKeys extends PartitionKeys {
  readonly retryStream: string;
  readonly lease: string;
  readonly epoch: string;
  readonly retry: string;
  readonly retryItems: string;
  readonly held: string;
  readonly crash: string;
  readonly paused: string;
}

export type OwnershipKeys = Pick<GroupPartitionKeys, 'lease' | 'paused' | 'pausedAll'>;

export interface TopicKeys {
  readonly meta: string;
  readonly partitions: string;
}

export interface MemberKeys {
  readonly members: string;
  readonly info: string;
}

/**
 * The one place where key names are built; no other line of TypeScript or Lua concatenates one.
 * The braces are the Cluster hash tag, so what must change together for a partition is in one slot.
 */
export class Keys {
  /** Registry of topic names. */
  readonly topics: string;
  /** Pub/sub channel on which members announce themselves and what they release. */
  readonly announcements: string;
  /** Who reports what concerns all instances. */
  readonly reporter: string;

  constructor(
    protected readonly control: string,
    protected readonly data: string,
  ) {
    this.topics = `${control}:topics`;
    this.announcements = `${control}:announcements`;
    this.reporter = `${control}:reporter`;
  }

  topic(topic: string): TopicKeys {
    return {
      meta: `${this.control}:topic:{${topic}}:meta`,
      partitions: `${this.control}:topic:{${topic}}:partitions`,
    };
  }

  stream(topic: string, partition: number): string {
    return `${this.data}:{${topic}:p:${partition}}`;
  }

  partition(topic: string, partition: number): PartitionKeys {
    const tag = `{${topic}:p:${partition}}`;
    const delayed = `${this.control}:delayed:${tag}`;
    return {
      stream: `${this.data}:${tag}`,
      dlq: `${this.data}:${tag}:dlq`,
      imports: `${this.control}:imports:${tag}`,
      delayed,
      delayedItems: `${delayed}:items`,
      delayedSeq: `${delayed}:seq`,
      commit: `${this.control}:commit:${tag}`,
      activity: `${this.control}:activity:${tag}`,
      pausedAll: `${this.control}:paused:${tag}`,
      pauseChanges: `${this.control}:pause-changes:${tag}`,
      incarnation: `${this.control}:incarnation:${tag}`,
    };
  }

  groupPartition(topic: string, partition: number, group: string): GroupPartitionKeys {
    const tag = `{${topic}:p:${partition}}:${group}`;
    const retry = `${this.control}:retry:${tag}`;
    return {
      ...this.partition(topic, partition),
      retryStream: `${this.data}:{${topic}:p:${partition}}:retry:${group}`,
      lease: `${this.control}:lease:${tag}`,
      epoch: `${this.control}:epoch:${tag}`,
      retry,
      retryItems: `${retry}:items`,
      held: `${this.control}:held:${tag}`,
      crash: `${this.control}:crash:${tag}`,
      paused: `${this.control}:paused:${tag}`,
    };
  }

  /** Of a group's keys on a partition those that say who owns it: each look asks for them on every partition there is. */
  ownership(topic: string, partition: number, group: string): OwnershipKeys {
    const tag = `{${topic}:p:${partition}}`;
    return {
      lease: `${this.control}:lease:${tag}:${group}`,
      paused: `${this.control}:paused:${tag}:${group}`,
      pausedAll: `${this.control}:paused:${tag}`,
    };
  }

  dedup(topic: string, partition: number, dedupId: string): string {
    return `${this.control}:dedup:{${topic}:p:${partition}}:${dedupId}`;
  }

  members(group: string): MemberKeys {
    const members = `${this.control}:members:{${group}}`;
    return { members, info: `${members}:info` };
  }

  /** Keys that exist for a moment at the boot, when the rights of our user are tried. */
  probe(instance: string): { readonly control: string; readonly data: string } {
    return { control: `${this.control}:probe:{${instance}}`, data: `${this.data}:{${instance}}:probe` };
  }

  /** Stream that wakes one instance's blocked reader of one group. */
  wake(instance: string, group: string): string {
    return `${this.control}:wake:${instance}:${group}`;
  }

  /** The keys of groups that consume the dead letters of a topic: what is the stream to others is the DLQ to them. */
  ofDeadLetters(): Keys {
    return new DeadLetterKeys(this, this.control, this.data);
  }
}

/** Beside those of the topic's own groups, whatever their names are. */
class DeadLetterKeys extends Keys {
  override readonly topics: string;
  override readonly announcements: string;

  constructor(
    private readonly ofTopics: Keys,
    control: string,
    data: string,
  ) {
    super(`${control}:dlq`, data);
    this.topics = ofTopics.topics;
    this.announcements = ofTopics.announcements;
  }

  override topic(topic: string): TopicKeys {
    return this.ofTopics.topic(topic);
  }

  override stream(topic: string, partition: number): string {
    return this.ofTopics.partition(topic, partition).dlq;
  }

  override partition(topic: string, partition: number): PartitionKeys {
    return { ...super.partition(topic, partition), stream: this.stream(topic, partition) };
  }

  override groupPartition(topic: string, partition: number, group: string): GroupPartitionKeys {
    const keys = super.groupPartition(topic, partition, group);
    return { ...keys, retryStream: `${keys.dlq}:retry:${group}` };
  }
}
