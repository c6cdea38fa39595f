import type { Clock } from '../core/clock.js';
import type { DeadLetter } from '../core/dead-letter.js';
import { MqAdminError } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { Keys } from '../core/keys.js';
import { nameProblem } from '../core/names.js';
import type { Connection } from '../redis/connection.js';
import type { Arg } from '../redis/reply.js';
import { call } from '../redis/script.js';
import { replay, type ReplayResult } from '../redis/scripts/replay.script.js';
import { checkFilter, type DeadLetterFilter } from './dead-letter-filter.js';
import { parsePlace } from './dead-letter-place.js';
import type { DeadLetterReader } from './dead-letter-reader.js';
import { BULK_OPTIONS, checkBulk, Pace, type BulkOptions } from './pace.js';

/** Why a group takes no replays. */
export type ReplayRefusal = 'MQ_GROUP_PAUSED' | 'MQ_GROUP_NOT_FOUND';

/** What a replay did. */
export interface ReplayReport {
  readonly replayed: number;
  /** Gone meanwhile: replayed or deleted by someone else. */
  readonly gone: number;
  /** Their fields cannot be read back; they stay. */
  readonly failed: number;
  /** An earlier replay or a retry of the same message has not been handled yet; they stay. */
  readonly waiting: number;
  /** Letters that stay because their group takes none, and why. */
  readonly refused: readonly { readonly group: string; readonly code: ReplayRefusal; readonly count: number }[];
  /** `aborted`: by the signal. `limit`: there may be more. */
  readonly outcome: 'done' | 'limit' | 'aborted';
}

/** Which dead letters are replayed, and in what steps. */
export interface ReplayOptions extends DeadLetterFilter, BulkOptions<ReplayReport> {
  /** Letters a second, so that the group's handlers are not flooded. @defaultValue as fast as it goes */
  readonly ratePerSecond?: number;
}

export interface DeadLetterReplayDeps {
  readonly connection: Connection;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly events: MqEvents;
  readonly reader: DeadLetterReader;
  /** Something became due in a bucket: its owner's mover should look. */
  readonly onDue: (topic: string, partition: number, group: string) => void;
}

type Outcome = ReplayResult | ReplayRefusal;
type Counts = { replayed: number; gone: number; failed: number; waiting: number };
type Head = Pick<DeadLetter, 'id' | 'topic' | 'partition' | 'group'>;

/** Puts dead letters back before their groups. */
export class DeadLetterReplay {
  constructor(private readonly deps: DeadLetterReplayDeps) {}

  /** @throws MqAdminError when it is there and cannot be replayed */
  async one(letter: Head, edits: readonly Arg[]): Promise<boolean> {
    const [outcome] = await this.together([letter], edits);
    if (outcome === 'replayed') return true;
    if (outcome === 'gone') return false;
    throw refusal(outcome!, letter);
  }

  /** Everything that matches, oldest first; a refusal of a group is reported, and thrown when that group was named. */
  async all(topic: string, partitionCount: number, options: ReplayOptions): Promise<ReplayReport> {
    const filter = checkFilter(options, [...BULK_OPTIONS, 'ratePerSecond']);
    const limit = checkBulk(options as BulkOptions<never>);
    const { signal, onProgress, ratePerSecond } = options;
    const pace = new Pace(this.deps.clock, ratePerSecond);
    const counts: Counts = { replayed: 0, gone: 0, failed: 0, waiting: 0 };
    const refused = new Map<string, { group: string; code: ReplayRefusal; count: number }>();
    const report = (outcome: ReplayReport['outcome']): ReplayReport => ({
      ...counts,
      refused: [...refused.values()].map((each) => ({ ...each })),
      outcome,
    });
    if (limit === 0) return report('limit');
    for await (const page of this.deps.reader.heads(topic, partitionCount, filter)) {
      for (let at = 0; at < page.length;) {
        await pace.turn(signal);
        if (signal?.aborted) return report('aborted');
        const step = page.slice(at, at + Math.min(pace.stepSize, limit - counts.replayed));
        at += step.length;
        const outcomes = await this.together(step, []);
        pace.took(step.length);
        for (const [i, outcome] of outcomes.entries()) this.count(counts, refused, step[i]!, outcome);
        const first = refused.values().next().value;
        if (filter.group !== undefined && counts.replayed === 0 && first !== undefined)
          throw refusal(first.code, { ...step[0]!, group: first.group });
        onProgress?.(report('done'));
        if (counts.replayed >= limit) return report('limit');
      }
      if (signal?.aborted) return report('aborted');
    }
    return report('done');
  }

  private count(
    counts: Counts,
    refused: Map<string, { group: string; code: ReplayRefusal; count: number }>,
    { group }: Head,
    outcome: Outcome,
  ): void {
    switch (outcome) {
      case 'replayed':
      case 'gone':
      case 'waiting':
        counts[outcome]++;
        break;
      case 'MQ_GROUP_PAUSED':
      case 'MQ_GROUP_NOT_FOUND': {
        const known = refused.get(group + outcome) ?? { group, code: outcome, count: 0 };
        known.count++;
        refused.set(group + outcome, known);
        break;
      }
      case 'other-group':
      case 'unreadable':
      case 'later':
        counts.failed++;
    }
  }

  /** One script for each partition and group among them. In the order of the letters. */
  private async together(letters: readonly Head[], edits: readonly Arg[]): Promise<Outcome[]> {
    const outcomes: Outcome[] = Array<Outcome>(letters.length).fill('unreadable');
    const scripts = new Map<string, number[]>();
    for (const [i, { partition, group }] of letters.entries()) {
      // The group becomes part of a key; one that is no name was written by someone else.
      if (nameProblem('group', group) !== undefined) continue;
      const name = `${partition}/${group}`;
      scripts.set(name, [...(scripts.get(name) ?? []), i]);
    }
    await Promise.all(
      [...scripts.values()].map(async (places) => {
        const results = await this.ofOneGroup(
          places.map((place) => letters[place]!),
          edits,
        );
        for (const [i, place] of places.entries()) outcomes[place] = results[i]!;
      }),
    );
    return outcomes;
  }

  private async ofOneGroup(letters: readonly Head[], edits: readonly Arg[]): Promise<Outcome[]> {
    const { connection, keys, clock, onDue } = this.deps;
    const { topic, partition, group } = letters[0]!;
    const places = keys.groupPartition(topic, partition, group);
    const startedAt = clock.monotonic();
    const outcomes: Outcome[] = [];
    let ids = letters.map(({ id }) => parsePlace(id).id);
    while (ids.length > 0) {
      const reply = await connection.run(call(replay, places, { group, edits: edits.length }, [...edits, ...ids]));
      if (reply.status !== 'ok') {
        const code = reply.status === 'paused' ? 'MQ_GROUP_PAUSED' : 'MQ_GROUP_NOT_FOUND';
        outcomes.push(...ids.map(() => code as Outcome));
        break;
      }
      const done = reply.results.filter((result) => result !== 'later');
      outcomes.push(...done);
      if (done.includes('replayed')) onDue(topic, partition, group);
      ids = ids.slice(done.length);
    }
    this.tell(letters[0]!, outcomes, clock.monotonic() - startedAt);
    return outcomes;
  }

  private tell({ topic, partition, group }: Head, outcomes: readonly Outcome[], tookMs: number): void {
    for (const outcome of outcomes) {
      const result = outcome === 'replayed' || outcome === 'gone' ? outcome : 'failed';
      const durationMs = tookMs / outcomes.length;
      this.deps.events.emit('replayed', { topic, partition, group, result, durationMs });
    }
  }
}

function refusal(outcome: Outcome, { topic, group, id }: Head): MqAdminError {
  const context = { topic, group, id };
  if (outcome === 'MQ_GROUP_PAUSED')
    return new MqAdminError(outcome, `group ${group} is paused on topic ${topic}; resume it, then replay`, { context });
  if (outcome === 'MQ_GROUP_NOT_FOUND') {
    const text = `topic ${topic} has no group ${group}; start its consumer once, then replay`;
    return new MqAdminError(outcome, text, { context });
  }
  if (outcome === 'waiting') {
    const text = `a retry or an earlier replay of the message of dead letter ${id} of ${topic} has not been handled yet`;
    return new MqAdminError('MQ_RETRY_PENDING', text, { context, retryable: true });
  }
  const text = `dead letter ${id} of ${topic} cannot be put back: its fields cannot be read`;
  return new MqAdminError('MQ_DEAD_LETTER_UNREADABLE', text, { context });
}
