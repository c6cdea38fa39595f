import { pause } from '../core/clock.js';
import { MqAdminError } from '../core/errors.js';
import type { Keys } from '../core/keys.js';
import { assertGroupName, assertTopicName } from '../core/names.js';
import { asTextOrNull } from '../redis/reply.js';
import { call } from '../redis/script.js';
import { flagPause, notePause, pauseState, type PauseState } from '../redis/scripts/pause.script.js';
import { checkTimeout, forEachOf, partitionsOf, topicNotFound, type AdminDeps } from './admin-deps.js';

/** What is paused, and how long that may take. */
export interface PauseOptions {
  /** Only this group; without it all groups of the topic, also those that come later. */
  readonly group?: string;
  /** How long to wait until nothing is in flight, in milliseconds. @defaultValue 60000 */
  readonly timeoutMs?: number;
}

/** What has been paused. */
export interface PauseReport {
  readonly topic: string;
  /** `null`: all groups. */
  readonly group: string | null;
  readonly partitions: number;
  /** How long it took until nothing was in flight, in milliseconds. */
  readonly waitedMs: number;
}

/** A lease that still holds up a pause. */
interface Held {
  readonly partition: number;
  readonly group: string;
  readonly lease: string;
  readonly owner: string;
}

const TIMEOUT_MS = 60_000;
const POLL_MS = 50;
const NAMED = 20;
/** Stands for all groups in scripts. */
const ALL = '';

/**
 * Pausing, for all instances and through restarts, by a flag on each partition that acquiring and renewing a lease look at.
 * Owners finish the running handler, settle, and give their leases up.
 */
export class Pausing {
  constructor(private readonly deps: AdminDeps) {}

  /**
   * Resolves when nothing of the topic (of `group`) is in flight: no handler runs, everything handled is settled.
   * @throws MqAdminError `MQ_PAUSE_TIMEOUT` when that takes longer than `timeoutMs`: it stays paused, and a second call goes on
   * waiting; `MQ_PAUSE_CHANGED` when someone resumes it meanwhile; `MQ_TOPIC_NOT_FOUND`
   */
  async pause(topic: string, options: PauseOptions = {}): Promise<PauseReport> {
    const { group, timeoutMs = TIMEOUT_MS } = options;
    checkTimeout(timeoutMs);
    const startedAt = this.deps.clock.monotonic();
    const { partitionCount, groups } = await this.set(topic, group, true);
    this.deps.announce({ type: 'topic', topic, change: 'paused' });
    const leases = this.leasesOf(this.deps.keys, topic, group === undefined ? groups : groups.map(() => [group]));
    const held = await this.heldAt(startedAt + timeoutMs, leases, async () => {
      if (!isPaused(await this.state(topic), group)) throw changed(topic, group);
    });
    if (held.length > 0) throw this.timedOut(topic, group, held);
    return {
      topic,
      group: group ?? null,
      partitions: partitionCount,
      waitedMs: this.deps.clock.monotonic() - startedAt,
    };
  }

  /**
   * Ends a pause; handling goes on at once. Of two pauses, of a topic and of one of its groups, each is ended by itself.
   * @throws MqAdminError `MQ_TOPIC_NOT_FOUND`, `MQ_PAUSE_CHANGED`
   */
  async resume(topic: string, options: { readonly group?: string } = {}): Promise<void> {
    await this.set(topic, options.group, false);
    this.deps.announce({ type: 'topic', topic, change: 'resumed' });
  }

  /** What is paused of a topic; nothing of one that does not exist. */
  state(topic: string): Promise<PauseState> {
    assertTopicName(topic);
    return this.deps.connection.run(call(pauseState, this.deps.keys.topic(topic), {}));
  }

  /** Flags partitions that nobody reads yet as the topic's meta says; `known` are groups that may have a flag there. */
  async applyTo(
    topic: string,
    partitions: readonly number[],
    state: PauseState,
    known: readonly string[],
  ): Promise<void> {
    await this.flag(topic, partitions, ALL, state.all, state.change);
    for (const group of new Set([...known, ...state.groups])) {
      await this.flag(topic, partitions, group, state.groups.includes(group), state.change);
    }
  }

  /** Whether no lease of `groups`, which are given by partition, is held any more by the deadline. */
  async areFreeBy(
    keys: Keys,
    topic: string,
    groups: readonly (readonly string[])[],
    deadline: number,
  ): Promise<boolean> {
    return (await this.heldAt(deadline, this.leasesOf(keys, topic, groups))).length === 0;
  }

  private leasesOf(keys: Keys, topic: string, groups: readonly (readonly string[])[]): Held[] {
    return groups.flatMap((known, partition) =>
      known.map((group) => {
        const { lease } = keys.groupPartition(topic, partition, group);
        return { partition, group, lease, owner: '' };
      }),
    );
  }

  /** Those of `leases` that are held still; looks until none is, or until the deadline. */
  private async heldAt(
    deadline: number,
    leases: readonly Held[],
    checkMeanwhile?: () => Promise<void>,
  ): Promise<readonly Held[]> {
    const { clock } = this.deps;
    let held = leases;
    for (;;) {
      held = await this.stillHeld(held);
      const left = deadline - clock.monotonic();
      if (held.length === 0 || left <= 0) return held;
      await pause(clock, Math.min(POLL_MS, left));
      await checkMeanwhile?.();
    }
  }

  private async set(
    topic: string,
    group: string | undefined,
    wanted: boolean,
  ): Promise<{ readonly partitionCount: number; readonly groups: readonly (readonly string[])[] }> {
    assertTopicName(topic);
    if (group !== undefined) assertGroupName(group);
    const { connection, keys } = this.deps;
    const args = { group: group ?? ALL, isPaused: wanted ? 1 : 0 };
    const noted = await connection.run(call(notePause, keys.topic(topic), args));
    if (noted.status === 'gone') throw topicNotFound(topic);
    const partitions = partitionsOf(noted);
    const groups = await this.flag(topic, partitions, args.group, wanted, noted.change);
    // The later of two calls has said what is to be, and may have died before its flags were there.
    const state = await this.state(topic);
    if (state.change !== noted.change && isPaused(state, group) !== wanted) {
      // A topic that was deleted meanwhile has no change any more.
      await this.flag(topic, partitions, args.group, !wanted, Math.max(state.change, noted.change));
      throw changed(topic, group);
    }
    return { partitionCount: noted.partitionCount, groups };
  }

  private flag(
    topic: string,
    partitions: readonly number[],
    group: string,
    paused: boolean,
    change: number,
  ): Promise<(readonly string[])[]> {
    const { connection, keys } = this.deps;
    return forEachOf(partitions, (partition) => {
      const of = keys.partition(topic, partition);
      const flag = group === ALL ? of.pausedAll : keys.groupPartition(topic, partition, group).paused;
      return connection.run(call(flagPause, { ...of, flag }, { group, isPaused: paused ? 1 : 0, change }));
    });
  }

  private async stillHeld(leases: readonly Held[]): Promise<Held[]> {
    const byPartition = new Map<number, Held[]>();
    for (const lease of leases) byPartition.set(lease.partition, [...(byPartition.get(lease.partition) ?? []), lease]);
    const held = await forEachOf([...byPartition.values()], async (ofOne) => {
      const outcomes = await this.deps.connection.readAll(ofOne.map(({ lease }) => ['GET', lease]));
      // A key of a wrong type is nobody's lease.
      return ofOne.flatMap((lease, i) => {
        const outcome = outcomes[i]!;
        const owner = outcome.ok ? asTextOrNull(outcome.value) : null;
        return owner === null ? [] : [{ ...lease, owner }];
      });
    });
    return held.flat();
  }

  private timedOut(topic: string, group: string | undefined, held: readonly Held[]): MqAdminError {
    const named = held
      .slice(0, NAMED)
      .map((lease) => ({ partition: lease.partition, group: lease.group, owner: lease.owner }));
    return new MqAdminError(
      'MQ_PAUSE_TIMEOUT',
      `${nameOf(topic, group)} is paused, but handlers of ${held.length} partitions still run; ` +
        'it stays paused, and calling again goes on waiting',
      { retryable: true, context: { topic, group: group ?? null, held: named, heldCount: held.length } },
    );
  }
}

function isPaused({ all, groups }: PauseState, group: string | undefined): boolean {
  return group === undefined ? all : groups.includes(group);
}

function changed(topic: string, group: string | undefined): MqAdminError {
  return new MqAdminError('MQ_PAUSE_CHANGED', `another call paused or resumed ${nameOf(topic, group)} meanwhile`, {
    retryable: true,
    context: { topic, group: group ?? null },
  });
}

function nameOf(topic: string, group: string | undefined): string {
  return group === undefined ? `topic ${topic}` : `group ${group} of topic ${topic}`;
}
