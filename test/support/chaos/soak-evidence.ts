import type { DeadReason } from '../../../libs/redis-streams-mq/src/core/events.js';
import type { Fault } from './fault-plan.js';
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

/** What may have disturbed a process (or everybody, through Redis or the proxies) between two times, by its kind. */
export function disturbancesIn(evidence: Evidence): (process: string, from: number, to: number) => string[] {
  const stalls = grouped(recordsOf(evidence.records, 'stall'), ({ process }) => process);
  const faults = evidence.faults.filter(({ missed }) => !missed);
  return (process, from, to) => {
    const child = process.slice(0, process.lastIndexOf('#'));
    // The lease that a fault has cost ends some time after it.
    const before = from - evidence.leaseMs - SETTLING_MS;
    const kinds = faults
      .filter(({ target }) => target === 'redis' || target === child)
      .filter((fault) => fault.from <= to && fault.to >= before)
      .map(({ kind }): string => kind);
    const stalled = (stalls.get(process) ?? []).some(({ at, ms }) => at - ms <= to && at >= before);
    return [...new Set(stalled ? [...kinds, 'a starved process'] : kinds)];
  };
}

const AWAKE_MS = 200;
const ASLEEP_MS = 50;

/**
 * Calls that were the first thing a process did after it had been frozen: it had looked at its lease before, and no
 * process can look and act in one step.
 */
export function firstAfterFreeze({ records, faults }: Evidence): (call: Call) => boolean {
  const freezes = recordsOf(records, 'stall').map(({ process, at, ms }) => ({ process, from: at - ms, to: at }));
  for (const { kind, target, from, to } of faults) {
    if (kind === 'stop a consumer past its lease') freezes.push({ process: target, from, to });
  }
  const byProcess = grouped(records, ({ process }) => process);
  return ({ process, from }) => {
    const before = byProcess.get(process)!.findLast(({ at }) => at < from)?.at ?? 0;
    return freezes.some(
      (freeze) =>
        process.startsWith(freeze.process) &&
        before <= freeze.from + ASLEEP_MS &&
        from >= freeze.from &&
        from <= freeze.to + AWAKE_MS,
    );
  };
}

/**
 * Messages that were on their way while Redis did not run: it may take them from the old connection after it has taken
 * them from the new one, and nobody can see that coming.
 */
export function sentWhileRedisStood({ records, faults }: Evidence): (eventId: string) => boolean {
  const stands = faults.filter(
    ({ kind }) => kind === 'stop Redis' || kind === 'the test had no time' || kind === 'Redis had no time',
  );
  const sent = new Map(recordsOf(records, 'sending').map(({ eventId, at }) => [eventId, at]));
  const settled = [...recordsOf(records, 'accepted'), ...recordsOf(records, 'refused')];
  const until = new Map(settled.map(({ eventId, at }) => [eventId, at]));
  return (eventId) => {
    const from = sent.get(eventId) ?? 0;
    const to = until.get(eventId) ?? Infinity;
    return stands.some((stand) => stand.from <= to && stand.to >= from);
  };
}
