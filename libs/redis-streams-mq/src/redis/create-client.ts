import { Cluster, Redis, type ClusterOptions, type RedisOptions } from 'ioredis';
import { replyCode } from './redis-errors.js';
import { fromUrl, isClient, isClusterClient, isClusterOption, type RedisOption } from './redis-option.js';

/** Settings that the queue's guarantees rest on; they win over the user's. */
function pinned(redisTimeoutMs: number | null, connectionName: string): RedisOptions {
  return {
    connectionName,
    lazyConnect: true,
    // Nothing waits inside ioredis and nothing is sent twice by it: a read that is executed twice strands a batch.
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    // We subscribe at each `ready`; ioredis would too, and leave a rejection unhandled when the connection breaks again.
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    enableAutoPipelining: false,
    // A deadline of ours is around each blocking read; ioredis' own would fire on it and throw the reply away.
    commandTimeout: undefined,
    blockingTimeout: undefined,
    socketTimeout: redisTimeoutMs ?? undefined,
    connectTimeout: redisTimeoutMs ?? 10_000,
    retryStrategy,
    // ioredis holds the process that long after a disconnect while it reconnects.
    disconnectTimeout: 100,
    // How long the ready check waits while the server loads: its own estimate is seconds too long.
    maxLoadingRetryTime: 250,
    // It would open connections to all sentinels for each of ours; a demoted master is noticed by its READONLY.
    failoverDetector: false,
    reconnectOnError: reconnectWhenReadonly(),
    // RESP2 shapes, whatever the user's client speaks. ioredis 5 knows no other.
    protocol: 2,
    replyMapping: 'legacy',
    stringNumbers: false,
    // Of a client that its owner uses for something else.
    monitor: false,
    scripts: undefined,
    himportFieldsets: undefined,
  };
}

const READONLY_BACKOFF_MS = { first: 100, most: 1_000, forgottenAfter: 10_000 } as const;

/**
 * On READONLY the address may lead to another server by now. It may also take a while until it does, and ioredis forgets
 * its own back-off whenever a connection is ready.
 */
function reconnectWhenReadonly(): (error: Error) => boolean {
  const { first, most, forgottenAfter } = READONLY_BACKOFF_MS;
  let waitMs = 0;
  let last = -Infinity;
  return (error) => {
    const agoMs = performance.now() - last;
    if (replyCode(error) !== 'READONLY' || agoMs < waitMs) return false;
    waitMs = agoMs > forgottenAfter ? first : Math.min(most, waitMs * 2);
    last = performance.now();
    return true;
  };
}

function retryStrategy(times: number): number {
  const ceiling = Math.min(1_000, 50 * 2 ** Math.min(times - 1, 10));
  return ceiling / 2 + Math.random() * (ceiling / 2);
}

/**
 * A client for our own use, not yet connected. `redisTimeoutMs` is how long an answer may take before the socket counts
 * as dead; `null` for connections that block.
 */
export function createClient(
  option: RedisOption | undefined,
  redisTimeoutMs: number | null,
  name: string,
): Redis | Cluster {
  const ours = pinned(redisTimeoutMs, name);
  if (option === undefined) return new Redis(ours);
  if (typeof option === 'string') return like(fromUrl(option), ours);
  if (isClient(option)) {
    return isClusterClient(option) ? option.duplicate([], clusterOptions(option.options, ours)) : like(option, ours);
  }
  if (isClusterOption(option)) {
    return new Cluster([...option.cluster.nodes], clusterOptions(option.cluster.options ?? {}, ours));
  }
  return new Redis({ ...option, ...ours, ...sentinel(option) });
}

function like(template: Redis, ours: RedisOptions): Redis {
  return template.duplicate({ ...ours, ...sentinel(template.options) });
}

/** A sentinel that takes connections and never answers must not keep us from asking the next. */
const SENTINEL_TIMEOUT_MS = 2_000;

function sentinel(option: RedisOptions): RedisOptions {
  return !option.sentinels
    ? {}
    : {
        sentinelRetryStrategy: retryStrategy,
        sentinelCommandTimeout: option.sentinelCommandTimeout ?? SENTINEL_TIMEOUT_MS,
      };
}

function clusterOptions(user: ClusterOptions, ours: RedisOptions): ClusterOptions {
  const { retryStrategy: _unused, enableOfflineQueue: _queue, ...redisOptions } = ours;
  return {
    ...user,
    lazyConnect: true,
    // Commands wait for a node that connects, no longer than `connectTimeout`. Refused one by one, some of a pipeline would
    // go to another node and never be written there, and all replies of that node would go to the wrong commands.
    enableOfflineQueue: true,
    enableAutoPipelining: false,
    // Ownership is decided on masters alone; a replica may be behind.
    scaleReads: 'master',
    shardedSubscribers: false,
    retryDelayOnFailover: 0,
    clusterRetryStrategy: retryStrategy,
    clusterNodeRetryStrategy: null,
    natMap: safeNatMap(user.natMap),
    scripts: undefined,
    himportFieldsets: undefined,
    redisOptions: { ...user.redisOptions, ...redisOptions },
  };
}

/** ioredis calls it where an error that it throws would end the process. */
function safeNatMap(natMap: ClusterOptions['natMap']): ClusterOptions['natMap'] {
  if (typeof natMap !== 'function') return natMap;
  return (key) => {
    try {
      return natMap(key);
    } catch {
      return null; // As the node calls itself.
    }
  };
}
