import { Redis } from 'ioredis';
import type { QueueOptions } from './queue-options.js';

/**
 * Removes what a run has stored in Redis, key by key: the prefixes are the run's own, so nobody else needs them. An
 * application deletes nothing; its keys are those of the table in docs/architecture.md. The few that are missing here
 * expire by themselves.
 */
export async function cleanUp(options: QueueOptions, topic: string, groups: readonly string[]): Promise<void> {
  const redis = new Redis(options.redis, { maxRetriesPerRequest: 0, retryStrategy: null });
  // A failed connection also rejects the command below.
  redis.on('error', () => undefined);
  try {
    await redis.unlink(...keysOf(options, topic, groups));
  } finally {
    redis.disconnect();
  }
}

function keysOf(
  { keyPrefix, streamKeyPrefix, defaultPartitionCount }: QueueOptions,
  topic: string,
  groups: readonly string[],
) {
  const keys = [
    `${keyPrefix}:topics`,
    `${keyPrefix}:topic:{${topic}}:meta`,
    `${keyPrefix}:topic:{${topic}}:partitions`,
  ];
  for (const group of groups) keys.push(`${keyPrefix}:members:{${group}}`, `${keyPrefix}:members:{${group}}:info`);
  for (let partition = 0; partition < defaultPartitionCount; partition++) {
    const tag = `{${topic}:p:${partition}}`;
    keys.push(`${streamKeyPrefix}:${tag}`, `${streamKeyPrefix}:${tag}:dlq`, `${keyPrefix}:commit:${tag}`);
    for (const group of groups) {
      keys.push(`${streamKeyPrefix}:${tag}:retry:${group}`, `${keyPrefix}:retry:${tag}:${group}:items`);
      for (const kind of ['epoch', 'lease', 'retry', 'held', 'crash'])
        keys.push(`${keyPrefix}:${kind}:${tag}:${group}`);
    }
  }
  return keys;
}
