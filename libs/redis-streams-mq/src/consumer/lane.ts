import type { ResolvedHandlerOptions } from '../core/handler.js';
import type { Entry } from './entry.js';

/** The lane of an entry: entries of one lane are handled one after the other. `undefined`: it has nobody to wait for. */
export type LaneRule = (entry: Entry) => string | undefined;

/** `null` when order needs no lanes: one entry at a time in the order of the queue, or no order at all. */
export function laneRule({ concurrency, ordering }: ResolvedHandlerOptions): LaneRule | null {
  return ordering === 'key' && concurrency > 1 ? keyLane : null;
}

const KEY = Buffer.from('key');

/**
 * The message's key as it is stored. The last one, as the codec has it, and without decoding the rest: this runs when an
 * entry is queued. A message without a key is sent to any partition, so there is no order that its lane could keep.
 */
function keyLane({ fields }: Entry): string | undefined {
  let key: string | undefined;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (fields[i]!.equals(KEY)) key = fields[i + 1]!.toString('latin1');
  }
  return key;
}
