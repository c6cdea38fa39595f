import type { ServersKind } from '../servers/servers.js';

export interface FaultDefinition {
  /** For `--list`. */
  readonly about: string;
  /** How often it is dealt in one round of the deck. */
  readonly weight: number;
  /**
   * It may cost leases, and so may lead to a take-over, to messages that are handled again and to a handler beside the new
   * owner's. After any other fault the checker takes these for violations.
   */
  readonly costsLeases: boolean;
  /** By so much it holds answers up, which costs a lease only on a machine that has no time either. */
  readonly delayMs?: number;
  /** The kinds of servers that have it; all, if it is done to processes or to the network. */
  readonly kinds?: readonly ServersKind[];
}

const ALL: readonly ServersKind[] = ['standalone', 'sentinel', 'cluster'];

/** Everything that can be injected, by the name that `--faults` takes. */
export const CATALOG = {
  'kill-consumer': { about: 'SIGKILL of a consumer, then a new one', weight: 3, costsLeases: true },
  'kill-producer': { about: 'SIGKILL of a producer, then a new one', weight: 1, costsLeases: false },
  'term-consumer': { about: 'SIGTERM of a consumer, then a new one', weight: 3, costsLeases: false },
  'term-producer': { about: 'SIGTERM of a producer, then a new one', weight: 1, costsLeases: false },
  'stop-consumer': { about: 'SIGSTOP of a consumer past its lease, then SIGCONT', weight: 3, costsLeases: true },
  'rolling-restart': { about: 'SIGTERM and a new one, consumer by consumer', weight: 1, costsLeases: false },
  'cut-connections': { about: 'all connections of a process cut at once', weight: 2, costsLeases: false },
  'cut-read': { about: 'the reply of an XREADGROUP lost with its connection', weight: 2, costsLeases: false },
  'cut-send': { about: 'the reply of an XADD lost with its connection', weight: 2, costsLeases: false },
  'cut-script': { about: 'the reply of some script lost with its connection', weight: 4, costsLeases: false },
  'black-hole': { about: 'bytes of a process swallowed both ways, without RST', weight: 2, costsLeases: true },
  flaps: { about: 'a process cut off five times in three seconds', weight: 1, costsLeases: true },
  'slow-network': { about: 'all replies to a process held back', weight: 1, costsLeases: false, delayMs: 300 },
  'kill-redis': {
    about: 'SIGKILL of Redis, then a restart with its append-only file',
    weight: 2,
    costsLeases: true,
    kinds: ['standalone'],
  },
  'stop-redis': { about: 'SIGSTOP of Redis past the leases, then SIGCONT', weight: 1, costsLeases: true, kinds: ALL },
  'script-flush': { about: 'SCRIPT FLUSH', weight: 1, costsLeases: false, kinds: ALL },
  'client-kill': { about: 'CLIENT KILL of all connections', weight: 1, costsLeases: false, kinds: ALL },
  'full-redis': { about: 'no memory for writes (maxmemory, noeviction)', weight: 1, costsLeases: false, kinds: ALL },
  'slow-redis': {
    about: 'Redis standing still for moments, again and again',
    weight: 1,
    costsLeases: true,
    kinds: ALL,
  },
  readonly: {
    about: 'the master made a replica, then a master again',
    weight: 1,
    costsLeases: true,
    // Elsewhere failovers bring it.
    kinds: ['standalone'],
  },
  'kill-master': {
    about: 'SIGKILL of a master; a replica takes over, and it comes back as its replica',
    weight: 1,
    costsLeases: true,
    kinds: ['sentinel', 'cluster'],
  },
  'stop-master': {
    about: 'SIGSTOP of a master; a replica takes over, then it goes on as if it were the master',
    weight: 1,
    costsLeases: true,
    kinds: ['sentinel', 'cluster'],
  },
  'stop-sentinels': {
    about: 'SIGSTOP of all sentinels while the master is killed, then SIGCONT',
    weight: 1,
    costsLeases: true,
    kinds: ['sentinel'],
  },
  failover: {
    about: 'a failover that somebody asked for',
    weight: 1,
    costsLeases: true,
    kinds: ['sentinel', 'cluster'],
  },
  reshard: { about: 'slots moved to another master under load', weight: 1, costsLeases: true, kinds: ['cluster'] },
} satisfies Record<string, FaultDefinition>;

export type FaultName = keyof typeof CATALOG;

/** What the machine does by itself. */
export type MachineFault = 'starved-driver' | 'starved-redis' | 'clock-set';

/** What was done, to whom (`redis` is everybody) and when. */
export interface Fault {
  readonly kind: FaultName | MachineFault;
  target: string;
  readonly from: number;
  to: number;
  detail: string;
  /** It could not be done: nobody was there to be hit, or the command to be hit did not come. */
  missed: boolean;
}

export const definitionOf = (name: FaultName): FaultDefinition => CATALOG[name];

export const isFaultName = (name: string): name is FaultName => Object.hasOwn(CATALOG, name);

export function faultsFor(kind: ServersKind): FaultName[] {
  return (Object.keys(CATALOG) as FaultName[]).filter((name) => definitionOf(name).kinds?.includes(kind) ?? true);
}

export const delayOf = (kind: Fault['kind']): number => (isFaultName(kind) ? (definitionOf(kind).delayMs ?? 0) : 0);

/** Want of time is summed up instead: most of it costs nothing. */
export const costsLeases = ({ kind }: Fault): boolean =>
  isFaultName(kind) ? definitionOf(kind).costsLeases : kind === 'clock-set';
