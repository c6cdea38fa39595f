import type { Member } from '../core/assignment.js';
import type { Lag } from '../redis/statistics.js';
import { ownerOf, type GroupReading } from './group-partition.js';

/**
 * - `active`: each partition that some member wants is owned by a member.
 * - `rebalancing`: some are not, or are still owned by one that is gone, or a pause waits for the last handlers, or none of
 *   the topics is there yet.
 * - `paused`: all its partitions are, and nobody owns one.
 * - `idle`: nobody takes part, and nobody owns a partition.
 */
export type GroupState = 'active' | 'rebalancing' | 'paused' | 'idle';

export function stateOf(members: readonly Member[], readings: readonly GroupReading[]): GroupState {
  const isOwned = readings.some(({ stats }) => stats.token !== null);
  if (!isOwned && readings.length > 0 && readings.every(({ stats }) => stats.isPaused)) return 'paused';
  if (!isOwned && members.length === 0) return 'idle';
  const living = new Set(members.map(({ id }) => id));
  const isSettled =
    readings.length > 0 &&
    readings.every((reading) => {
      const owner = ownerOf(reading.stats);
      if (owner !== null) return living.has(owner.instance) && !reading.stats.isPaused;
      return reading.stats.isPaused || !members.some((member) => wants(member, reading));
    });
  return isSettled ? 'active' : 'rebalancing';
}

/** All together: the messages of all, the age of the oldest, and how sure that is. */
export function sumOf(readings: readonly GroupReading[]): { readonly lag: Lag; readonly pending: number } {
  const certainties = readings.map(({ lag }) => lag.certainty);
  return {
    lag: {
      messages: readings.reduce((sum, { lag }) => sum + lag.messages, 0),
      ms: readings.reduce((most, { lag }) => Math.max(most, lag.ms), 0),
      certainty: (['at-least', 'reported'] as const).find((one) => certainties.includes(one)) ?? 'exact',
    },
    pending: readings.reduce((sum, { stats }) => sum + stats.pending + stats.retryPending, 0),
  };
}

function wants({ subscriptions }: Member, { ref }: GroupReading): boolean {
  const share = subscriptions.get(ref.topic);
  return share !== undefined && ref.partition % share.modulo === share.remainder;
}
