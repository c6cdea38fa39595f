import { Cluster, Redis, type ClusterNode, type ClusterOptions, type RedisOptions } from 'ioredis';
import { replyCode } from './redis-errors.js';

/** Redis Cluster: at least one node to start from; `options` are ioredis' own. */
export interface RedisClusterOption {
  readonly cluster: { readonly nodes: readonly ClusterNode[]; readonly options?: ClusterOptions };
}

/**
 * Where Redis is: a URL (`redis://`, `rediss://`), ioredis options (Sentinel and TLS included), a cluster description,
 * or a client of yours. A client of yours is a template: the module makes its own connections like it, never closes it
 * and never blocks it.
 */
export type RedisOption = string | RedisOptions | RedisClusterOption | Redis | Cluster;

/** By shape and not by `instanceof`: the app may have another copy of ioredis. */
function isClient(value: object): value is Redis | Cluster {
  return typeof (value as Redis).duplicate === 'function' && typeof (value as Redis).disconnect === 'function';
}

function isClusterClient(client: Redis | Cluster): client is Cluster {
  return client.isCluster;
}

function isClusterOption(value: object): value is RedisClusterOption {
  return 'cluster' in value;
}

/** What is wrong with a `redis` option, as sentences; empty when it can be used. */
export function redisOptionProblems(option: unknown): string[] {
  if (option === undefined) return [];
  const problems: string[] = [];
  if (typeof option === 'string') {
    if (!/^(rediss?:\/\/|\/[^/])/i.test(option)) {
      return ['redis: a string must be a URL that begins with redis:// or rediss://, or the path of a socket'];
    }
    if (/^rediss?:\/\/(\/|$)/i.test(option)) problems.push('redis: the URL names no host');
    try {
      checkCommon(fromUrl(option).options, problems, false);
    } catch {
      // Without the URL itself: it may hold a password.
      problems.push('redis: the URL cannot be read; special characters in a password must be percent-encoded');
    }
    return problems;
  }
  if (typeof option !== 'object' || option === null || Array.isArray(option) || option instanceof URL) {
    return ['redis must be a URL as text, ioredis options, { cluster: { nodes } } or an ioredis client'];
  }
  if (isClient(option)) {
    if (typeof (option as { isCluster?: unknown }).isCluster !== 'boolean') {
      return ['redis: this client is not one of ioredis'];
    }
    if (isClusterClient(option)) checkCommon(option.options.redisOptions ?? {}, problems, true);
    else checkCommon(option.options, problems, false);
    if (option.options.keyPrefix && !problems.includes(KEY_PREFIX)) problems.push(KEY_PREFIX);
  } else if (isClusterOption(option)) {
    const nodes: unknown = (option.cluster as { nodes?: unknown } | null)?.nodes;
    if (!Array.isArray(nodes) || nodes.length === 0) problems.push('redis.cluster.nodes must name at least one node');
    else nodes.forEach((node, i) => checkNode(node, `redis.cluster.nodes[${i}]`, problems));
    const options = option.cluster?.options;
    if (options?.keyPrefix) problems.push(KEY_PREFIX);
    checkCommon(options?.redisOptions ?? {}, problems, true);
  } else {
    checkNode(option, 'redis', problems);
    checkCommon(option, problems, false);
  }
  return problems;
}

/** ioredis takes localhost for a host that is not there: a variable that was forgotten must not lead to it. */
function checkNode(node: unknown, where: string, problems: string[]): void {
  if (typeof node === 'string' ? node !== '' : typeof node === 'number') return;
  if (typeof node !== 'object' || node === null) {
    problems.push(`${where} must be { host, port }, a URL or a port`);
    return;
  }
  const { host, path, sentinels } = node as RedisOptions;
  if ('host' in node && !host && !path && !sentinels) {
    problems.push(`${where}.host is given but empty; leave it out for localhost`);
  }
  if ('url' in node) problems.push(`${where}.url is not an option of ioredis; give the URL itself`);
}

const KEY_PREFIX =
  "redis: ioredis' keyPrefix is not supported, since it is not applied to every command; use the module's keyPrefix and streamKeyPrefix";

function checkCommon(options: RedisOptions, problems: string[], cluster: boolean): void {
  if (options.keyPrefix && !problems.includes(KEY_PREFIX)) problems.push(KEY_PREFIX);
  if (cluster && options.db) problems.push('redis: db must be 0 in Cluster');
  if (!cluster && options.db !== undefined && !/^\d+$/.test(String(options.db)))
    problems.push('redis: db must be a number');
  if (options.sentinels && (options.sentinels.length === 0 || !options.name)) {
    problems.push('redis: Sentinel needs at least one of sentinels, and the name of the master');
  }
  if (options.readOnly || options.role === 'slave')
    problems.push('redis: readOnly connections and replicas cannot be used, every step of the queue writes');
}

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
    reconnectOnError: (error) => replyCode(error) === 'READONLY',
    // RESP2 shapes, whatever the user's client speaks. ioredis 5 knows no other.
    protocol: 2,
    replyMapping: 'legacy',
    stringNumbers: false,
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

/** Never connected, only ioredis' reading of a URL. Used as it is, what the URL's query says would win over our settings. */
function fromUrl(url: string): Redis {
  // ioredis takes its arguments in any order, and the first wins: a query cannot make this one connect.
  return new (Redis as unknown as new (first: RedisOptions, url: string) => Redis)({ lazyConnect: true }, url);
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
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    // Ownership is decided on masters alone; a replica may be behind.
    scaleReads: 'master',
    retryDelayOnFailover: 0,
    clusterRetryStrategy: retryStrategy,
    redisOptions: { ...user.redisOptions, ...redisOptions },
  };
}
