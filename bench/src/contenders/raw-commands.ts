import type { ChainableCommander } from 'ioredis';
import type { Topic } from './contender.js';

export type StreamReply = readonly (readonly [stream: string, entries: readonly RawEntry[]])[] | null;
export type RawEntry = readonly [id: string, fields: readonly string[]];

export const RAW_BATCH = 100;

/** With the hash tags of ours, so that in Cluster each partition is on the same master. */
export function streamsOf({ name, partitions }: Topic): string[] {
  return Array.from({ length: partitions }, (_, partition) => `raw:{${name}:p:${partition}}`);
}

export async function run(pipeline: ChainableCommander): Promise<void> {
  for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
}
