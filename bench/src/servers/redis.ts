import { Redis } from 'ioredis';
import { findServer } from '../../../scripts/find-server.mjs';
import { ServerProcess } from '../../../scripts/server-process.mjs';
import { waitFor } from '../../../test/support/wait-for.js';
import type { Durability } from '../environment.js';
import type { RunningServer } from './running-server.js';

export async function startRedis(durability: Durability): Promise<RunningServer> {
  const binary = findServer();
  if (binary === undefined) throw new Error('no redis-server or valkey-server on the PATH');
  const server = await ServerProcess.start(binary, { args: durabilityArgs(durability) });
  return {
    urls: { redis: server.url },
    pids: [server.pid],
    empty: () => emptyRedis(server.url, durability),
    stop: () => server.stop(),
  };
}

export function durabilityArgs(durability: Durability): string[] {
  if (durability === 'off') return ['--appendonly', 'no'];
  // A rewrite in the middle of a round would hit one contender and not the other.
  return ['--appendonly', 'yes', '--appendfsync', durability, '--auto-aof-rewrite-percentage', '0'];
}

export async function emptyRedis(url: string, durability: Durability): Promise<void> {
  const client = new Redis(url);
  try {
    await client.flushall('SYNC');
    if (durability === 'off') return;
    await client.bgrewriteaof();
    await waitFor(
      async () => /aof_rewrite_in_progress:0[^]*aof_rewrite_scheduled:0/.test(await client.info('persistence')),
      {
        describe: 'the end of a rewrite of the append-only file',
      },
    );
  } finally {
    client.disconnect();
  }
}
