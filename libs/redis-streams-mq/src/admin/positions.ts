import { MqAdminError, thrownText } from '../core/errors.js';
import { compareStreamIds, nextStreamId, previousStreamId } from '../core/stream-id.js';
import { call } from '../redis/script.js';
import { dropRetries, resetPosition, walkStream } from '../redis/scripts/position.script.js';
import { valueOf } from '../redis/spread.js';
import type { GroupStats } from '../redis/scripts/stats.script.js';
import { chosen, requireGroup, requireTopic, type AdminDeps } from './admin-deps.js';
import { whileIdle, type AdminHold } from './admin-leases.js';
import { START, wantedOn, type ResetTarget, type Wanted } from './reset-target.js';

/** How a position is reset. */
export interface ResetOptions {
  /** Only says what would happen; also of a group that is running. @defaultValue false */
  readonly dryRun?: boolean;
  /** @defaultValue all of the topic */
  readonly partitions?: readonly number[];
  /**
   * Retries that wait go on waiting, except those of messages that the group will read again. False: all of them are
   * dropped. @defaultValue true
   */
  readonly keepRetries?: boolean;
}

/** What a reset did, or would do, on one partition. */
export interface PartitionReset {
  readonly partition: number;
  /** Everything up to this id was settled before; `null` when the group had no position here. */
  readonly from: string | null;
  /** Reading goes on behind this id. */
  readonly to: string;
  /** `back`: messages are handled again. `forward`: messages are skipped. */
  readonly direction: 'back' | 'forward' | 'none';
  /** How many messages of the partition lie between the two. */
  readonly messages: number;
  /** Messages that an owner had begun and not settled: they are skipped, or read anew, as they lie before or behind `to`. */
  readonly pendingDropped: number;
  readonly retriesDropped: number;
}

/** What a reset did, or would do. */
export interface ResetReport {
  readonly topic: string;
  readonly group: string;
  readonly dryRun: boolean;
  readonly partitions: readonly PartitionReset[];
}

/** A partition on which a reset failed, or whose answer was lost: it may have been done. */
export interface ResetFailure {
  readonly partition: number;
  readonly error: string;
  /** With it, and this partition alone, the call may be repeated: it leads to the position that was meant, also when it is there. */
  readonly target: ResetTarget;
}

/** Entries that one script looks at. */
const PAGE = 1_000;
/** Stands where no lease is asked for. */
const NO_TOKEN = '';

/** Where groups are in their topics, and moving them. */
export class Positions {
  constructor(private readonly deps: AdminDeps) {}

  /**
   * Moves a group to another position, each partition in one script, while no instance can own it.
   * @throws MqAdminError `MQ_GROUP_RUNNING` unless the group is paused or stopped (nothing was changed), `MQ_GROUP_NOT_FOUND`,
   * `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`, `MQ_RESET_INCOMPLETE` when some partitions failed: its context has the report
   * of those that were done, and of the others the failures with the target to repeat them with (`ResetFailure`)
   */
  async reset(topic: string, group: string, target: ResetTarget, options: ResetOptions = {}): Promise<ResetReport> {
    const { dryRun = false, keepRetries = true } = options;
    const meta = await requireTopic(this.deps, topic);
    const partitions = chosen(options.partitions, meta.partitionCount);
    const wanted = new Map(partitions.map((partition) => [partition, wantedOn(target, partition)]));
    await requireGroup(this.deps, meta, group);
    const done: PartitionReset[] = [];
    const failed: ResetFailure[] = [];
    const each = async (hold: AdminHold | null): Promise<void> => {
      for (const partition of partitions) {
        let meant = target;
        const onMeant = (to: string): void => void (meant = { id: nextStreamId(to) });
        try {
          const of = { topic, group, partition, wanted: wanted.get(partition)!, keepRetries, hold, onMeant };
          done.push(await this.resetOne(of));
        } catch (error) {
          failed.push({ partition, error: thrownText(error), target: meant });
        }
      }
    };
    await (dryRun ? each(null) : whileIdle(this.deps, topic, group, partitions, each));
    const report = { topic, group, dryRun, partitions: done };
    if (failed.length === 0) return report;
    throw new MqAdminError(
      'MQ_RESET_INCOMPLETE',
      `the position of group ${group} was moved on ${done.length} partitions of ${topic} and not on ${failed.length}; ` +
        'call again for each of those with its partition and the target that `failed` has for it',
      { retryable: true, context: { report, failed } },
    );
  }

  private async resetOne(job: {
    readonly topic: string;
    readonly group: string;
    readonly partition: number;
    readonly wanted: Wanted;
    readonly keepRetries: boolean;
    readonly hold: AdminHold | null;
    /** Called with the position before anything is changed. */
    readonly onMeant: (to: string) => void;
  }): Promise<PartitionReset> {
    const { topic, group, partition, wanted, keepRetries, hold } = job;
    const keys = this.deps.keys.groupPartition(topic, partition, group);
    let token = hold === null ? NO_TOKEN : await hold.token(partition);
    const { stats, end } = await this.look(topic, partition, group);
    const from = settledUpTo(stats);
    let to = 'by' in wanted ? await this.moved(keys.stream, from ?? START, wanted.by) : wanted.position;
    if (to === 'latest' || compareStreamIds(to, end) > 0) to = end;
    job.onMeant(to);
    const order = compareStreamIds(to, from ?? START);
    const direction = order === 0 ? 'none' : order < 0 ? 'back' : 'forward';
    const messages = order === 0 ? 0 : await this.count(keys.stream, ...between(from ?? START, to));
    let pendingDropped = stats.pending;
    let retriesDropped = keepRetries ? 0 : stats.bucket + stats.retryLength;
    if (hold !== null) {
      // Counting may have taken a while.
      token = await hold.token(partition);
      const args = { token, group, position: to, keepRetries: keepRetries ? 1 : 0 };
      const done = checked(await this.deps.connection.run(call(resetPosition, keys, args)));
      ({ position: to, pendingDropped, retriesDropped } = done);
      hold.settled(partition);
    }
    if (keepRetries) retriesDropped = await this.dropReread(job, to, token);
    return { partition, from, to, direction, messages, pendingDropped, retriesDropped };
  }

  /** After the position, so that a crash between them leaves a retry too many and none too few. */
  private async dropReread(
    { topic, group, partition, hold }: { topic: string; group: string; partition: number; hold: AdminHold | null },
    position: string,
    firstToken: string,
  ): Promise<number> {
    const keys = this.deps.keys.groupPartition(topic, partition, group);
    const isDry = hold === null ? 1 : 0;
    let next = { token: firstToken, after: '-', skip: 0 };
    let dropped = 0;
    for (;;) {
      const args = { ...next, group, position, limit: PAGE, isDry };
      const page = checked(await this.deps.connection.run(call(dropRetries, keys, args)));
      dropped += page.dropped;
      if (!page.more) return dropped;
      const token = hold === null ? firstToken : await hold.token(partition);
      next = { token, after: page.after ?? '', skip: page.skip };
    }
  }

  private async look(topic: string, partition: number, group: string): Promise<{ stats: GroupStats; end: string }> {
    const [ofGroup] = await this.deps.statistics.ofGroups([{ topic, partition, group }], { countLimit: 0 });
    const [ofPartition] = await this.deps.statistics.ofPartitions([{ topic, partition }], { countLimit: 0 });
    return { stats: valueOf(ofGroup!), end: valueOf(ofPartition!).lastGeneratedId ?? START };
  }

  /** The position `by` messages away from another; the stream's end, or its beginning, where there are not so many. */
  private async moved(stream: string, from: string, by: number): Promise<string> {
    if (by === 0) return from;
    const { connection } = this.deps;
    let left = Math.abs(by);
    let at = from;
    while (left > 0) {
      const range = by > 0 ? { from: `(${at}`, to: '+', reverse: 0 } : { from: '-', to: at, reverse: 1 };
      const { count, last, more } = await connection.run(
        call(walkStream, { stream }, { ...range, limit: Math.min(PAGE, left) }),
      );
      if (last !== null) at = by > 0 || last === START ? last : previousStreamId(last);
      left -= count;
      if (!more) break;
    }
    return left > 0 && by < 0 ? START : at;
  }

  private async count(stream: string, from: string, to: string): Promise<number> {
    let counted = 0;
    let after = from;
    for (;;) {
      const args = { from: after, to, limit: PAGE, reverse: 0 };
      const { count, last, more } = await this.deps.connection.run(call(walkStream, { stream }, args));
      counted += count;
      if (!more || last === null) return counted;
      after = `(${last}`;
    }
  }
}

/** The range of entries behind the one position up to the other, whichever comes first. */
function between(a: string, b: string): [string, string] {
  const [low, high] = compareStreamIds(a, b) < 0 ? [a, b] : [b, a];
  return [nextStreamId(low), high];
}

function settledUpTo({ oldestPending, position }: GroupStats): string | null {
  if (oldestPending !== null && oldestPending.id !== START) return previousStreamId(oldestPending.id);
  return position;
}

type Refused = { readonly status: 'fenced' | 'missing' };

function checked<R extends { readonly status: string }>(reply: R): Exclude<R, Refused> {
  if (reply.status === 'fenced') throw new MqAdminError('MQ_LEASE_LOST', 'the hold on the partition ended');
  if (reply.status === 'missing')
    throw new MqAdminError('MQ_PARTITION_MISSING', 'the stream of the partition is not there');
  return reply as Exclude<R, Refused>;
}
