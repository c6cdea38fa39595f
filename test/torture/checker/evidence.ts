import type { DeadReason } from '../../../libs/redis-streams-mq/src/core/events.js';
import type { Life } from '../child.js';
import type { Fault } from '../faults/catalog.js';
import type { MessageName, Outcome, RecordOf, TortureRecord, Witnessed } from '../programs/record.js';
import { HANDLER_TIMEOUT_MS } from '../programs/setup.js';
import type { Failover } from '../servers/servers.js';

/** An entry of a partition's stream; a list of them is in the stream's order. */
export interface StoredMessage extends MessageName {
  readonly partition: number;
  readonly id: string;
  readonly eventId: string;
}

export interface BuriedMessage extends MessageName {
  readonly group: string;
  readonly partition: number;
  readonly eventId: string;
  readonly reason: DeadReason;
  readonly attempts: number;
}

/** All that is known when a run is over. */
export interface Evidence {
  readonly groups: readonly string[];
  readonly maxAttempts: number;
  readonly leaseMs: number;
  /** In the order of their times. */
  readonly records: readonly Witnessed[];
  readonly lives: readonly Life[];
  readonly faults: readonly Fault[];
  readonly failovers: readonly Failover[];
  readonly streamKey: (partition: number) => string;
  readonly stored: readonly StoredMessage[];
  readonly buried: readonly BuriedMessage[];
  /** What did not go as it must beside the messages: not drained in time, a process that did not end or come back. */
  readonly mishaps: readonly string[];
  /** When the traffic began, and when the last fault was over and nothing more was sent. */
  readonly from: number;
  readonly to: number;
}

/** One call of a handler. */
export interface Call extends MessageName {
  readonly process: string;
  readonly group: string;
  readonly partition: number;
  readonly id: string;
  readonly eventId: string;
  readonly attempt: number;
  readonly epoch: number;
  readonly from: number;
  /** The end of its process where that came first; `Infinity` when it has not ended. */
  readonly to: number;
  /** `cut`: by the end of its process. */
  readonly outcome: Outcome | 'cut' | 'endless';
}

export function recordsOf<T extends TortureRecord['type']>(
  records: readonly Witnessed[],
  type: T,
): Witnessed<RecordOf<T>>[] {
  return records.filter((record) => record.type === type) as Witnessed<RecordOf<T>>[];
}

/** In the order of their starts. */
export function callsOf({ records, lives }: Pick<Evidence, 'records' | 'lives'>): Call[] {
  const ends = new Map(recordsOf(records, 'ended').map((ended) => [`${ended.process}/${ended.call}`, ended]));
  const lifeEnds = new Map(lives.map((life) => [life.process, life.to]));
  return recordsOf(records, 'started')
    .map(({ at, call, process, ...started }): Call => {
      const ended = ends.get(`${process}/${call}`);
      const to = ended?.at ?? lifeEnds.get(process) ?? Infinity;
      return { ...started, process, from: at, to, outcome: ended?.outcome ?? (to === Infinity ? 'endless' : 'cut') };
    })
    .sort((a, b) => a.from - b.from);
}

/** When the engine may have counted the call as a failed attempt; `Infinity` if it cannot have. */
export function failedAt({ outcome, from, to }: Call): number {
  if (outcome === 'failed') return to;
  // What ran until its time was over has failed then, whatever has ended it later.
  const isOverdue = outcome === 'timed out' || (outcome !== 'success' && to - from >= HANDLER_TIMEOUT_MS);
  return isOverdue ? from + HANDLER_TIMEOUT_MS : Infinity;
}

export function grouped<T>(items: Iterable<T>, keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}

export const placeOf = ({ group, partition }: { group: string; partition: number }): string => `${group}:${partition}`;
export const nameOf = ({ key, seq }: MessageName): string => `${key}#${seq}`;

export function about(call: Call): string {
  const { id, attempt, process, epoch } = call;
  return `${nameOf(call)} ${id} attempt ${attempt} of ${placeOf(call)} in ${process} at ${Math.round(call.from)} under ${epoch}`;
}
