import { startClusterServers } from './cluster.js';
import { startSentinelServers } from './sentinel.js';
import type { Servers, ServersKind } from './servers.js';
import { startStandalone } from './standalone.js';

const STARTERS: Readonly<Record<ServersKind, () => Promise<Servers>>> = {
  standalone: startStandalone,
  sentinel: startSentinelServers,
  cluster: startClusterServers,
};

/** The servers of a run, whole and empty. */
export const startServers = (kind: ServersKind): Promise<Servers> => STARTERS[kind]();
