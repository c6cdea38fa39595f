import type { Clock } from '../core/clock.js';
import type { GroupPartitionRef } from '../core/events.js';
import type { Outcome } from '../redis/reply.js';
import { replyCode } from '../redis/redis-errors.js';
import type { GroupStats } from '../redis/scripts/stats.script.js';
import { lagOf } from '../redis/statistics.js';

/** What a group has not settled on a partition that this instance owns. */
export interface PartitionLag {
  readonly partition: string;
  readonly messages: number;
  readonly ageMs: number;
}

/** `failure`: why nothing newer is known, in a word. */
export interface OwnedLagLook {
  readonly lags: readonly PartitionLag[];
  readonly failure?: string;
}

export interface OwnedLagDeps {
  readonly clock: Clock;
  /** Partitions owned now. */
  readonly refs: () => readonly GroupPartitionRef[];
  readonly statistics: (refs: readonly GroupPartitionRef[]) => Promise<readonly Outcome<GroupStats>[]>;
}

/** Probes come from several sides every few seconds; Redis is asked once. */
const CACHE_MS = 5_000;

/** The lag of the partitions that this instance owns, remembered for some seconds. */
export class OwnedLag {
  private last: { readonly at: number; readonly look: OwnedLagLook } | undefined;

  constructor(private readonly deps: OwnedLagDeps) {}

  /** Never rejects, but takes as long as Redis does. */
  async look(): Promise<OwnedLagLook> {
    const { clock } = this.deps;
    if (this.last !== undefined && clock.monotonic() - this.last.at < CACHE_MS) return this.last.look;
    const look = await this.read();
    // What failed is asked for again by the next probe.
    this.last = look.failure === undefined ? { at: clock.monotonic(), look } : undefined;
    return look;
  }

  private async read(): Promise<OwnedLagLook> {
    const refs = this.deps.refs();
    if (refs.length === 0) return { lags: [] };
    try {
      const outcomes = await this.deps.statistics(refs);
      const lags: PartitionLag[] = [];
      let failure: string | undefined;
      for (const [at, { topic, partition, group }] of refs.entries()) {
        const outcome = outcomes[at]!;
        if (outcome.ok) {
          const { messages, ms } = lagOf(outcome.value);
          lags.push({ partition: `${topic}:p:${partition}:${group}`, messages, ageMs: ms });
        } else {
          failure = wordOf(outcome.error);
        }
      }
      return { lags, ...(failure !== undefined && { failure }) };
    } catch (error) {
      return { lags: [], failure: wordOf(error) };
    }
  }
}

/** The code alone: probes are often public. */
function wordOf(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  return replyCode(error) || (typeof code === 'string' ? code : 'unexpected error');
}
