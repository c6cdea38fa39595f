import type { Cluster, Redis } from 'ioredis';
import type { Connection } from './connection.js';

/** One server that holds data, as `INFO` tells of it. */
export interface ServerState {
  readonly usedMemory: number;
  /** 0: no limit. */
  readonly maxMemory: number;
  /** `maxmemory_policy`; empty when it is not told. */
  readonly policy: string;
  /** Keys that it threw away for want of memory since its start. */
  readonly evictedKeys: number;
}

/** All masters that are connected; none when the user may not run `INFO`. Never rejects. */
export async function serverStates({ client }: Connection): Promise<ServerState[]> {
  const nodes = client.isCluster ? (client as Cluster).nodes('master') : [client as Redis];
  const states = await Promise.all(nodes.filter((node) => node.status === 'ready').map(stateOf));
  return states.filter((state) => state !== null);
}

async function stateOf(node: Redis): Promise<ServerState | null> {
  try {
    const fields = new Map([...infoFields(await node.info('memory')), ...infoFields(await node.info('stats'))]);
    if (!fields.has('used_memory')) return null;
    return {
      usedMemory: Number(fields.get('used_memory')),
      maxMemory: Number(fields.get('maxmemory') ?? 0),
      policy: fields.get('maxmemory_policy') ?? '',
      evictedKeys: Number(fields.get('evicted_keys') ?? 0),
    };
  } catch {
    // Refused, or gone meanwhile: nothing can be said.
    return null;
  }
}

/** Name and value of each line of `INFO`. */
export function infoFields(text: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const line of text.split('\r\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1));
  }
  return fields;
}
