import { Command } from 'ioredis';

const SLOTS = 16_384;

export const slotOf = (key: string): number => new Command('GET', [key]).getSlot()!;

/** Which shard (a master and its replicas, by number) has which slot; while a slot moves, both have it. */
export class ClusterSlots {
  private readonly shards: (readonly number[])[];

  /** At the start each shard has its even share, in order. */
  constructor(readonly shardCount: number) {
    this.shards = Array.from({ length: SLOTS }, (_, slot) => [Math.floor((slot * shardCount) / SLOTS)]);
  }

  of(shard: number): number[] {
    return this.shards.flatMap((owners, slot) => (owners.includes(shard) ? [slot] : []));
  }

  begin(slot: number, to: number): void {
    this.shards[slot] = [...this.shards[slot]!, to];
  }

  end(slot: number, to: number): void {
    this.shards[slot] = [to];
  }

  /** As it is now: whether that shard is responsible for a key. */
  snapshot(shard: number): (key: string) => boolean {
    const shards = [...this.shards];
    return (key) => shards[slotOf(key)]!.includes(shard);
  }
}
