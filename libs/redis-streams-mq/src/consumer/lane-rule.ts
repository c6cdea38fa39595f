import type { ResolvedHandlerOptions } from '../core/handler.js';
import type { Entry } from './entry.js';

/** The lane of an entry: entries of one lane are handled one after the other. `undefined`: it has nobody to wait for. */
export type LaneRule = (fields: readonly Buffer[]) => string | undefined;

/** `null` when order needs no lanes: one entry at a time in the order of the queue, or no order at all. */
export function laneRule({ concurrency, ordering, retryOrdering }: ResolvedHandlerOptions): LaneRule | null {
  if (retryOrdering === 'partition') return () => '';
  return retryOrdering === 'key' || (ordering === 'key' && concurrency > 1) ? keyLane : null;
}

/**
 * Whether what is behind a failing entry waits for its retry. Not for one without a key, which nothing waits for; nor for
 * one from the group's retry stream (a replay, or a retry from before the option was set), which later ones have passed.
 */
export function waitsInPlace({ retryOrdering }: ResolvedHandlerOptions, { source, lane }: Entry): boolean {
  return retryOrdering !== 'relaxed' && source === 'stream' && lane !== undefined;
}

const KEY = Buffer.from('key');

/**
 * The message's key as it is stored. The last one, as the codec has it, and without decoding the rest: this runs when an
 * entry is queued. A message without a key is sent to any partition, so there is no order that its lane could keep.
 */
function keyLane(fields: readonly Buffer[]): string | undefined {
  let key: string | undefined;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (fields[i]!.equals(KEY)) key = fields[i + 1]!.toString('latin1');
  }
  return key;
}
