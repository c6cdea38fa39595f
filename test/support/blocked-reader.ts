import type { Redis } from 'ioredis';
import { waitFor } from './wait-for.js';

/** Resolves when a reader of `group` waits in Redis for new entries: its owner is at rest. */
export function blockedReader(raw: Redis, group: string): Promise<boolean> {
  return waitFor(
    async () => {
      const clients = (await raw.client('LIST')) as string;
      return clients.split('\n').some((line) => line.includes(`reader:${group}`) && / flags=\S*b/.test(line));
    },
    { describe: `a reader of ${group} to block` },
  );
}
