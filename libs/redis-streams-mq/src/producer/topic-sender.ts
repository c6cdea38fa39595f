import type { Timer } from '../core/clock.js';
import { MqError, MqInvalidMessageError, MqRedisError, MqSendError, thrownText } from '../core/errors.js';
import { checkPartition, type DefaultPartitioner, type Partitioner } from '../core/partitioner.js';
import { classifyRedisError, replyCode } from '../redis/redis-errors.js';
import type { TopicMeta, TopicRegistry } from '../redis/topic-registry.js';
import { FINAL, Lane, type LaneDeps, type LaneItem } from './lane.js';

export interface TopicSenderDeps extends Omit<LaneDeps, 'partition' | 'incarnation' | 'restoreTopic' | 'moveOn'> {
  readonly topics: TopicRegistry;
  readonly defaultPartitioner: DefaultPartitioner;
  readonly partitioner: Partitioner | undefined;
  readonly autoCreateTopics: boolean;
  readonly defaultPartitionCount: number;
  /** Meta older than this is read again beside the sends, in milliseconds. */
  readonly metaMaxAgeMs: number;
}

/** All sends to one topic: waits for its meta once, then deals messages to the partitions' lanes in call order. */
export class TopicSender {
  private readonly lanes: Lane[] = [];
  private meta: TopicMeta | null = null;
  /** Sends that came before the meta; a later one may not overtake them. */
  private waiting: LaneItem[] = [];
  private loading = false;
  private timer: Timer | undefined;
  private timerAt = Infinity;
  private metaReadAt = 0;
  /** The topic has changed while its meta was being read. */
  private isStale = false;
  private closed = false;

  constructor(private readonly deps: TopicSenderDeps) {}

  get size(): number {
    return this.waiting.length + this.lanes.reduce((sum, lane) => sum + lane.size, 0);
  }

  push(item: LaneItem): void {
    if (this.meta !== null) {
      this.place(item, this.meta);
      this.refreshWhenOld();
      return;
    }
    this.waiting.push(item);
    this.watchDeadline(item.deadline);
    if (!this.loading) {
      this.loading = true;
      void this.load();
    }
  }

  close(): void {
    this.closed = true;
    this.timer?.cancel();
    for (const item of this.waiting.splice(0)) {
      this.reject(item, 'MQ_CLOSED', 'the producer was closed before the message was sent');
    }
    for (const lane of this.lanes) lane.close();
  }

  private refreshWhenOld(): void {
    const { clock, metaMaxAgeMs } = this.deps;
    if (clock.monotonic() - this.metaReadAt >= metaMaxAgeMs) this.refresh();
  }

  /** Beside the sends, so that a raised partition count or a deletion is noticed without a send waiting for it. */
  refresh(): void {
    this.isStale = this.meta === null;
    if (this.isStale) return;
    this.metaReadAt = this.deps.clock.monotonic();
    // The sends themselves will meet the same fault and report it.
    this.look().catch(() => undefined);
  }

  private async look(): Promise<void> {
    const { topics, topic } = this.deps;
    const meta = await topics.refresh(topic);
    if (meta !== null) this.meta = meta;
    // Otherwise the server has lost it, and a send makes it again as it was.
    else if (await topics.isDeleted(topic)) this.meta = null;
  }

  private place(item: LaneItem, meta: TopicMeta): void {
    let partition: number;
    try {
      partition = this.partitionOf(item, meta.partitionCount);
    } catch (error) {
      if (item.settled) return;
      item.settled = true;
      item.reject(error as MqSendError);
      return;
    }
    item.placed(partition);
    this.lane(partition).push(item);
  }

  private partitionOf({ message }: LaneItem, count: number): number {
    if (message.partition !== undefined) return this.checked(message.partition, count);
    const { topic, partitioner, defaultPartitioner } = this.deps;
    if (partitioner === undefined) return defaultPartitioner(message.partitionKey, count, topic);
    const key = message.partitionKey === null ? null : Buffer.from(message.partitionKey, 'utf8');
    let chosen: unknown;
    try {
      chosen = partitioner(key, count, topic);
    } catch (error) {
      throw new MqInvalidMessageError('MQ_INVALID_PARTITION', `the partitioner threw for topic ${topic}`, {
        cause: error,
        context: { topic },
      });
    }
    return this.checked(chosen, count);
  }

  private checked(partition: unknown, count: number): number {
    try {
      return checkPartition(partition, count);
    } catch (error) {
      const { topic } = this.deps;
      const context = { topic, partitionCount: count };
      throw new MqInvalidMessageError('MQ_INVALID_PARTITION', `message for topic ${topic}: ${thrownText(error)}`, {
        context,
      });
    }
  }

  private lane(partition: number): Lane {
    let lane = this.lanes[partition];
    if (lane === undefined) {
      // Filled without holes, so that iterating meets no undefined lane.
      for (let p = this.lanes.length; p <= partition; p++) {
        this.lanes[p] = new Lane({
          ...this.deps,
          partition: p,
          incarnation: () => this.meta?.incarnation ?? '',
          restoreTopic: async () => p < (await this.restore()),
          moveOn: (items) => this.moveOn(items),
        });
      }
      lane = this.lanes[partition]!;
    }
    return lane;
  }

  private async load(): Promise<void> {
    const { topic, topics, connection, clock, autoCreateTopics, defaultPartitionCount } = this.deps;
    while (this.meta === null && this.waiting.length > 0) {
      if (connection.isDestroyed) {
        this.close();
        break;
      }
      const left = this.earliest() - clock.monotonic();
      if (!(await connection.whenReady(Math.max(1, left)))) continue;
      try {
        const found = autoCreateTopics
          ? await connection.withTimeout(topics.ensure(topic, defaultPartitionCount), Math.max(1, left))
          : await connection.withTimeout(topics.find(topic), Math.max(1, left));
        if (found === null && (await topics.isDeleted(topic)))
          throw new MqSendError('MQ_TOPIC_DELETED', `topic ${topic} was deleted`, '');
        if (found === null)
          throw new MqSendError('MQ_TOPIC_NOT_FOUND', `topic ${topic} does not exist and autoCreateTopics is off`, '');
        this.meta = found;
        this.metaReadAt = clock.monotonic();
      } catch (error) {
        if (classifyRedisError(error) === 'transient' && replyCode(error) !== 'OOM') {
          await new Promise<void>((resolve) => clock.setTimer(resolve, 50));
          continue;
        }
        this.refuseWaiting(error);
      }
    }
    this.loading = false;
    if (this.meta === null) return;
    if (this.isStale) this.refresh();
    for (const item of this.waiting.splice(0)) this.place(item, this.meta);
  }

  /**
   * The stream was not there. Meta that is gone as well means that the server lost its data: it is made again as it was.
   * Returns how many partitions there are.
   */
  private async restore(): Promise<number> {
    const { topic, topics } = this.deps;
    const known = this.meta;
    topics.forget(topic);
    const meta = await topics.ensure(topic, known?.partitionCount ?? this.deps.defaultPartitionCount);
    await topics.ensureStreams(meta);
    this.meta = meta;
    return meta.partitionCount;
  }

  /** The topic was made again with fewer partitions: what was bound for one that is no more goes where its key goes now. */
  private moveOn(items: readonly LaneItem[]): void {
    for (const item of items) this.place(item, this.meta!);
  }

  private refuseWaiting(error: unknown): void {
    const code = error instanceof MqError && !(error instanceof MqRedisError) ? error.code : 'MQ_SEND_REFUSED';
    const message = thrownText(error);
    for (const item of this.waiting.splice(0)) this.reject(item, code, message, error);
  }

  private earliest(): number {
    return this.waiting.reduce((min, item) => Math.min(min, item.deadline), Infinity);
  }

  private watchDeadline(deadline: number): void {
    if (deadline >= this.timerAt) return;
    const { clock } = this.deps;
    this.timer?.cancel();
    this.timerAt = deadline;
    this.timer = clock.setTimer(() => this.expire(), Math.max(1, deadline - clock.monotonic()));
  }

  private expire(): void {
    this.timerAt = Infinity;
    const now = this.deps.clock.monotonic();
    this.waiting = this.waiting.filter((item) => {
      if (item.deadline > now) return true;
      this.reject(
        item,
        'MQ_SEND_TIMEOUT',
        `the message for topic ${this.deps.topic} was not sent in time and is withdrawn`,
      );
      return false;
    });
    if (this.waiting.length > 0) this.watchDeadline(this.earliest());
  }

  private reject(item: LaneItem, code: string, message: string, cause?: unknown): void {
    if (item.settled) return;
    item.settled = true;
    const { topic } = this.deps;
    item.reject(
      new MqSendError(code, message, item.message.eventId, {
        cause,
        retryable: !FINAL.has(code),
        context: { topic },
      }),
    );
  }
}
