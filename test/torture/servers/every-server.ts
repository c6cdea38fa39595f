import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { ServerProcess } from '../../../scripts/server-process.mjs';
import { fillUp, flushScripts, killClients, stutter } from './server-faults.js';
import type { ServerFault } from './servers.js';

/** A server of a world, with a connection to look at it and to change its settings. */
export interface WorldServer {
  readonly process: ServerProcess;
  readonly client: Redis;
}

/** The connection is made again whenever the server is there; it never waits for one that is not. */
export function worldServer(process: ServerProcess): WorldServer {
  const client = new Redis({
    port: process.port,
    maxRetriesPerRequest: 0,
    retryStrategy: () => 20,
    disconnectTimeout: 100,
  });
  client.on('error', () => {});
  return { process, client };
}

/** Faults that do the same to each server, whatever its part. */
export function faultsOfAll(servers: readonly WorldServer[]): Record<string, ServerFault> {
  const clients = servers.map(({ client }) => client);
  return {
    'script-flush': () => flushScripts(clients),
    'client-kill': () => killClients(clients),
    'full-redis': () => fillUp(clients),
    'slow-redis': () => stutter(servers.map(({ process }) => process)),
  };
}

/**
 * Cuts the replicas off, then waits, so that what the master accepts meanwhile is nowhere else. It ends with the master's
 * life, which is to end next.
 */
export async function leaveReplicasBehind(master: Redis, forMs: number): Promise<void> {
  await master.call('ACL', 'SETUSER', 'default', '-psync', '-sync');
  await master.call('CLIENT', 'KILL', 'TYPE', 'replica');
  await sleep(forMs);
}
