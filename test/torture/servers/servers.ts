import type { Cluster, Redis, RedisOptions } from 'ioredis';
import type { RedisClusterOption } from 'nestjs-redis-streams-mq';

export type ServersKind = 'standalone' | 'sentinel' | 'cluster';

/** The servers of one run, started for it: each kind has a file here that exports `start<Kind>(): Promise<Servers>`. */
export interface Servers {
  readonly kind: ServersKind;
  /** Straight to the servers, not through a proxy; follows the master. `stop()` closes it. */
  client(): Redis | Cluster;
  /** For one child process. */
  network(): Promise<Network>;
  /**
   * By short stable kebab name; only those that this kind supports. The same thing has the same name with all kinds:
   * `kill-redis`, `stop-redis`, `script-flush`, `client-kill`, `full-redis`, `slow-redis`, `readonly`.
   */
  readonly faults: Readonly<Record<string, ServerFault>>;
  /** Failovers so far, with what proves which writes the new master did not have. */
  readonly failovers: readonly Failover[];
  stop(): Promise<void>;
}

/** The way of one child process to the servers, through proxies of its own. */
export interface Network {
  /** The `redis` option of the module for that process, as plain JSON. */
  readonly redis: string | RedisOptions | RedisClusterOption;
  cutAll(): void;
  blackhole(on: boolean): void;
  refuse(on: boolean): Promise<void>;
  delayReplies(ms: number): void;
  /** As TcpProxy's, on whichever of its proxies it comes first. */
  dropNextReplyMatching(matches: (request: Buffer) => boolean): Promise<void>;
  stop(): Promise<void>;
}

/**
 * What can be done to the servers. `extent` is in [0, 1), from the seed, and decides on lengths and choices. Resolves with
 * a detail for the table when the fault is over and the servers are whole again. They are called one at a time.
 */
export type ServerFault = (extent: number) => Promise<string>;

/** One asynchronous failover: a write is proven lost to it only if it cannot have been replicated. */
export interface Failover {
  /** On the clock of `monotonicMs`. */
  readonly from: number;
  readonly to: number;
  /**
   * True if a message that was accepted at `at` (monotonicMs) in this partition's stream key can have been beyond the
   * offset at which the new master took over.
   */
  mayHaveLost(streamKey: string, at: number): boolean;
  /** One line for the report: offsets of old and new master. */
  readonly proof: string;
}
