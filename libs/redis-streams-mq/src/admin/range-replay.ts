import { pause } from '../core/clock.js';
import { MqAdminError, thrownText } from '../core/errors.js';
import { compareStreamIds, isStreamId } from '../core/stream-id.js';
import { call } from '../redis/script.js';
import { replayRange } from '../redis/scripts/replay-range.script.js';
import { valueOf } from '../redis/spread.js';
import { chosen, groupNotFound, invalidArgument, requireGroup, requireTopic, type AdminDeps } from './admin-deps.js';

/** The id of a message, or a time: milliseconds since the epoch, or a Date. */
export type RangeEnd = string | number | Date;

/** Which retained messages are handed to the group once more. */
export interface ReplayRangeOptions {
  /** First message, itself included. @defaultValue the oldest that is retained */
  readonly from?: RangeEnd;
  /** Last message, itself included. @defaultValue the one that the group was given last */
  readonly to?: RangeEnd;
  /** @defaultValue all of the topic, one after the other */
  readonly partition?: number;
  /** At most so many messages. @defaultValue no limit */
  readonly limit?: number;
  /** At most so many messages a second. @defaultValue no limit */
  readonly rate?: number;
}

/** What was handed over. */
export interface ReplayRangeReport {
  readonly topic: string;
  readonly group: string;
  readonly replayed: number;
  /** False when `limit` ended it and more may be in the range. */
  readonly complete: boolean;
  readonly partitions: readonly {
    readonly partition: number;
    readonly replayed: number;
    /** Go on behind it, with `from`, to replay the rest; `null` when the range was empty. */
    readonly lastId: string | null;
  }[];
}

/** A report while it grows. */
interface Running {
  readonly topic: string;
  readonly group: string;
  replayed: number;
  complete: boolean;
  readonly partitions: ReplayRangeReport['partitions'][number][];
}

/** Messages that one script copies. */
const PAGE = 200;
const LAST_OF_A_MS = '18446744073709551615';

/** Hands retained messages to one group once more, beside what it reads. */
export class RangeReplay {
  constructor(private readonly deps: AdminDeps) {}

  /**
   * Puts the messages of a range before one group again, with their attempts reset and their event ids kept; the group may be
   * running. They come as retries do: beside newer messages, in order among themselves.
   * What the group has not been given yet is not in the range: it comes by itself, and would come twice.
   * @throws MqAdminError `MQ_GROUP_NOT_FOUND`, also when it is deleted meanwhile, `MQ_TOPIC_NOT_FOUND`, `MQ_INVALID_ARGUMENT`,
   * `MQ_REPLAY_INCOMPLETE` when it failed on the way: its context has the report of what was replayed before
   */
  async replay(topic: string, group: string, options: ReplayRangeOptions = {}): Promise<ReplayRangeReport> {
    const { limit = Infinity, rate = Infinity } = options;
    if (limit !== Infinity && (!Number.isSafeInteger(limit) || limit < 1)) {
      throw invalidArgument('limit must be an integer, 1 or more');
    }
    if (typeof rate !== 'number' || !(rate > 0))
      throw invalidArgument('rate must be a number of messages a second above 0');
    const from = rangeEnd('from', options.from ?? '-', '0');
    const to = rangeEnd('to', options.to ?? '+', LAST_OF_A_MS);
    const meta = await requireTopic(this.deps, topic);
    const partitions = chosen(options.partition === undefined ? undefined : [options.partition], meta.partitionCount);
    await requireGroup(this.deps, meta, group);
    const report: Running = { topic, group, replayed: 0, complete: true, partitions: [] };
    let isThere: boolean;
    try {
      isThere = await this.copyRange(report, partitions, { from, to, limit, rate });
    } catch (error) {
      throw incomplete({ ...report, complete: false }, error);
    }
    if (!isThere) throw groupNotFound(topic, group, { report: { ...report, complete: false } });
    return report;
  }

  /** False when the group is gone. */
  private async copyRange(
    report: Running,
    partitions: readonly number[],
    { from, to, limit, rate }: { from: string; to: string; limit: number; rate: number },
  ): Promise<boolean> {
    const { topic, group } = report;
    // As it is now: what is delivered meanwhile is not in the range, or it might never end.
    const ends = await this.deps.statistics.ofPartitions(
      partitions.map((partition) => ({ topic, partition })),
      { countLimit: 0 },
    );
    const startedAt = this.deps.clock.monotonic();
    for (const [i, partition] of partitions.entries()) {
      const { groups } = valueOf(ends[i]!);
      const seen = { partition, replayed: 0, lastId: null as string | null };
      report.partitions.push(seen);
      const given = groups.find((of) => of.group === group)?.position;
      if (given === undefined) continue;
      const end = to === '+' || compareStreamIds(to, given) > 0 ? given : to;
      let after = from;
      for (;;) {
        const left = Math.min(PAGE, limit - report.replayed, Math.max(1, Math.floor(rate / 10)));
        if (left === 0) {
          report.complete = false;
          return true;
        }
        const page = await this.copy(topic, partition, group, after, end, left);
        if (page.status === 'no-group') return false;
        seen.replayed += page.count;
        report.replayed += page.count;
        seen.lastId = page.last ?? seen.lastId;
        if (page.count > 0) this.deps.onDue(topic, partition, group);
        if (!page.more || page.last === null) break;
        after = `(${page.last}`;
        const dueMs = (report.replayed / rate) * 1_000 - (this.deps.clock.monotonic() - startedAt);
        if (dueMs > 0) await pause(this.deps.clock, dueMs);
      }
    }
    return true;
  }

  private copy(topic: string, partition: number, group: string, from: string, to: string, limit: number) {
    const keys = this.deps.keys.groupPartition(topic, partition, group);
    return this.deps.connection.run(call(replayRange, keys, { group, from, to, limit }));
  }
}

function incomplete(report: ReplayRangeReport, cause: unknown): MqAdminError {
  const { topic, group, replayed } = report;
  const text = `${replayed} messages of topic ${topic} were replayed to group ${group}, and then: ${thrownText(cause)}`;
  return new MqAdminError('MQ_REPLAY_INCOMPLETE', text, { retryable: true, context: { report }, cause });
}

/** As XRANGE takes it; `sequence` is which message of a millisecond is meant by the time alone. */
function rangeEnd(name: string, value: RangeEnd, sequence: string): string {
  if (value === '-' || value === '+' || isStreamId(value)) return value;
  const ms = typeof value === 'string' ? NaN : Number(value);
  if (Number.isSafeInteger(ms) && ms >= 0) return `${ms}-${sequence}`;
  throw invalidArgument(`${name} must be the id of a message, milliseconds since the epoch, or a Date`);
}
