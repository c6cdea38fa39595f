import type { Servers, ServersKind } from './servers.js';
import { startStandalone } from './standalone.js';

const STARTERS: Readonly<Partial<Record<ServersKind, () => Promise<Servers>>>> = {
  standalone: startStandalone,
};

/** The servers of a run, whole and empty. */
export async function startServers(kind: ServersKind): Promise<Servers> {
  const start = STARTERS[kind];
  if (start === undefined) throw new Error(`torture cannot start ${kind} yet`);
  return start();
}
