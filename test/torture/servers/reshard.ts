import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';

/** The first keys go few at a time, so that the slot is seen half here and half there; the rest at once. */
const FEW = 2;
const MANY = 100;
const SLOW_BATCHES = 4;
const MIGRATE_TIMEOUT_MS = 5_000;

export interface SlotMove {
  readonly slot: number;
  readonly from: Redis;
  readonly to: Redis;
  /** All masters, those two included. */
  readonly masters: readonly Redis[];
  /** How long the slot stays half moved after each of its first batches of keys. */
  readonly halfMovedMs: number;
}

/** Moves one slot as `redis-cli --cluster reshard` does; resolves with the number of keys that went with it. */
export async function moveSlot({ slot, from, to, masters, halfMovedMs }: SlotMove): Promise<number> {
  const [fromId, toId] = (await Promise.all([from.cluster('MYID'), to.cluster('MYID')])) as [string, string];
  await to.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', fromId);
  await from.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', toId);
  let moved = 0;
  for (let batch = 1; ; batch++) {
    const isSlow = batch <= SLOW_BATCHES;
    const keys = (await from.call('CLUSTER', 'GETKEYSINSLOT', slot, isSlow ? FEW : MANY)) as string[];
    if (keys.length === 0) break;
    await from.call('MIGRATE', '127.0.0.1', to.options.port!, '', 0, MIGRATE_TIMEOUT_MS, 'KEYS', ...keys);
    moved += keys.length;
    if (isSlow) await sleep(halfMovedMs);
  }
  // The receiver first: whoever is told by the sender that the slot has moved must find it there.
  for (const master of new Set([to, from, ...masters])) await master.call('CLUSTER', 'SETSLOT', slot, 'NODE', toId);
  return moved;
}
