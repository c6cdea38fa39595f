import type { ChainableCommander } from 'ioredis';
import type { Topic } from './contender.js';

export type StreamReply = readonly (readonly [stream: string, entries: readonly RawEntry[]])[] | null;
export type RawEntry = readonly [id: string, fields: readonly string[]];

export const RAW_BATCH = 100;

export function streamsOf({ name, partitions }: Topic): string[] {
  return Array.from({ length: partitions }, (_, partition) => `raw:{${name}:${partition}}`);
}

export async function run(pipeline: ChainableCommander): Promise<void> {
  for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error;
}
