import type { DeadReason } from '../../../libs/redis-streams-mq/src/core/events.js';
import type { Fault } from './fault-injector.js';
import type { Life } from './soak-process.js';
import type { MessageName, Outcome, RecordOf, SoakRecord, Witnessed } from './soak-record.js';

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

/** All that is known when a soak run is over. */
export interface Evidence {
  readonly groups: readonly string[];
  readonly maxAttempts: number;
  readonly leaseMs: number;
  readonly records: readonly Witnessed[];
  readonly lives: readonly Life[];
  readonly faults: readonly Fault[];
  readonly stored: readonly StoredMessage[];
  readonly buried: readonly BuriedMessage[];
  /** What did not go as it must beside the messages: not drained in time, a process that did not end or come back. */
  readonly mishaps: readonly string[];
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

export function recordsOf<T extends SoakRecord['type']>(
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

const SETTLING_MS = 1_000;

/** Faults that may have disturbed `process` (or everybody, through Redis) between these times. */
export function faultsNear({ faults, leaseMs }: Evidence, process: string, from: number, to: number): Fault[] {
  const child = process.slice(0, process.lastIndexOf('#'));
  // The lease that a fault has cost ends some time after it.
  const before = from - leaseMs - SETTLING_MS;
  return faults.filter(
    (fault) =>
      !fault.missed && (fault.target === 'redis' || fault.target === child) && fault.from <= to && fault.to >= before,
  );
}
