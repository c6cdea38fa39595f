import { Redis, type Cluster, type ClusterNode, type ClusterOptions, type RedisOptions } from 'ioredis';
import { thrownText } from '../core/errors.js';
import { describeValue } from '../core/option-rules.js';
import { isOptionName, tlsProblems, valueProblems } from './ioredis-rules.js';

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
export function isClient(value: object): value is Redis | Cluster {
  return typeof (value as Redis).duplicate === 'function' && typeof (value as Redis).disconnect === 'function';
}

export function isClusterClient(client: Redis | Cluster): client is Cluster {
  return client.isCluster;
}

export function isClusterOption(value: object): value is RedisClusterOption {
  return 'cluster' in value;
}

/** Never connected, only ioredis' reading of a URL. Used as it is, what the URL's query says would win over our settings. */
export function fromUrl(url: string): Redis {
  // ioredis takes its arguments in any order, and the first wins: a query cannot make this one connect.
  return new (Redis as unknown as new (first: RedisOptions, url: string) => Redis)({ lazyConnect: true }, url);
}

/** What is wrong with a `redis` option, as sentences; empty when it can be used. */
export function redisOptionProblems(option: unknown): string[] {
  if (option === undefined) return [];
  try {
    if (typeof option === 'string') return urlProblems(option);
    if (typeof option !== 'object' || option === null) return [shapeProblem(option)];
    if (isClient(option)) return clientProblems(option);
    if (!looksLikeOptions(option)) return [shapeProblem(option)];
    return [...new Set(isClusterOption(option) ? clusterProblems(option) : optionsProblems(option))];
  } catch (error) {
    return [`redis cannot be read: ${thrownText(error)}`];
  }
}

/**
 * Everything else has no options and would mean localhost: an array, a URL, a Map, a promise, a service, a pipeline, a
 * client of another library.
 */
function looksLikeOptions(value: object): boolean {
  if (Object.prototype.toString.call(value) !== '[object Object]') return false;
  const entries = Object.entries(value);
  if (entries.some(([name, content]) => typeof content === 'function' && !isOptionName(name))) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || entries.some(([name]) => isOptionName(name));
}

function shapeProblem(option: unknown): string {
  const hint = option instanceof Promise ? '; a promise has to be awaited, in the factory of forRootAsync()' : '';
  return `redis must be a URL as text, ioredis options, { cluster: { nodes } } or an ioredis client${hint}`;
}

function urlProblems(url: string): string[] {
  if (!/^(rediss?:\/\/|\/[^/])/.test(url)) {
    return ['redis: a string must be a URL that begins with redis:// or rediss://, or the path of a socket'];
  }
  if (/^rediss?:\/\/(\/|$)/.test(url)) return ['redis: the URL names no host'];
  try {
    // ioredis reads no further than the first letter.
    const isNumber = url.startsWith('/') || /^(\/\d*)?$/.test(new URL(url).pathname);
    if (!isNumber) return ['redis: what follows the host in the URL must be the number of the database'];
    return optionsProblems(fromUrl(url).options);
  } catch {
    // Without the URL itself: it may hold a password.
    return ['redis: the URL cannot be read; special characters in a password must be percent-encoded'];
  }
}

function clientProblems(client: Redis | Cluster): string[] {
  if (typeof (client as { isCluster?: unknown }).isCluster !== 'boolean') {
    return ['redis: this client is not one of ioredis'];
  }
  return isClusterClient(client) ? clusterOptionsProblems(client.options, 'redis') : optionsProblems(client.options);
}

function optionsProblems(options: RedisOptions): string[] {
  return [...placeProblems(options, 'redis'), ...commonProblems(options, 'redis'), ...sentinelProblems(options)];
}

/** ioredis takes localhost for a host that is not there: a variable that was forgotten must not lead to it. */
function placeProblems(options: RedisOptions, where: string): string[] {
  const { host, path, sentinels } = options;
  return 'host' in options && !host && !path && !sentinels
    ? [`${where}.host is given but empty; leave it out for localhost`]
    : [];
}

const KEY_PREFIX =
  "redis: ioredis' keyPrefix is not supported, since it is not applied to every command; use the module's keyPrefix and streamKeyPrefix";
const REPLICA = 'redis: readOnly connections and replicas cannot be used, every step of the queue writes';

function commonProblems(options: RedisOptions, where: string): string[] {
  const problems: string[] = [];
  if (options.keyPrefix) problems.push(KEY_PREFIX);
  if (options.readOnly || options.role === 'slave') problems.push(REPLICA);
  // An empty host has a sentence of its own.
  const { host, ...others } = options;
  problems.push(...valueProblems(host ? options : others, where, 'redis'));
  problems.push(...tlsProblems(options.tls, `${where}.tls`));
  if (options.username && (options.password ?? null) === null) {
    problems.push(`${where}.username is given without a password; an empty one is given as ''`);
  }
  return problems;
}

function sentinelProblems(options: RedisOptions): string[] {
  const { sentinels, name, tls, enableTLSForSentinelMode } = options;
  if (!sentinels) {
    return name ? ['redis.name is the name of a master that sentinels know, and sentinels are not given'] : [];
  }
  if (!Array.isArray(sentinels)) return [];
  const problems = tlsProblems(options.sentinelTLS, 'redis.sentinelTLS');
  if (sentinels.length === 0 || !name) {
    problems.push('redis: Sentinel needs at least one of sentinels, and the name of the master');
  }
  for (const [i, sentinel] of (sentinels as unknown[]).entries()) {
    const where = `redis.sentinels[${i}]`;
    if (typeof sentinel !== 'object' || sentinel === null) problems.push(`${where} must be { host, port }`);
    else problems.push(...valueProblems(sentinel, where, 'address'));
  }
  // ioredis would talk to the master without TLS, and say nothing.
  if (Boolean(tls) !== Boolean(enableTLSForSentinelMode)) {
    problems.push('redis: with Sentinel, tls and enableTLSForSentinelMode: true go together');
  }
  return problems;
}

function clusterProblems(option: RedisClusterOption): string[] {
  const { cluster, ...beside } = option;
  const { nodes, options, ...within } = (cluster ?? {}) as Partial<RedisClusterOption['cluster']>;
  const problems = [
    ...Object.keys(beside).map((name) => `redis.${name} has no effect beside cluster; see redis.cluster.options`),
    ...Object.keys(within).map((name) => `redis.cluster.${name} is neither nodes nor options`),
  ];
  const redisOptions: RedisOptions = options?.redisOptions ?? {};
  if (!Array.isArray(nodes) || nodes.length === 0) {
    problems.push('redis.cluster.nodes must be an array that names at least one node');
  } else {
    nodes.forEach((node, i) => problems.push(...nodeProblems(node, redisOptions, `redis.cluster.nodes[${i}]`)));
  }
  return [...problems, ...clusterOptionsProblems(options ?? {}, 'redis.cluster.options')];
}

function clusterOptionsProblems(options: ClusterOptions, where: string): string[] {
  if (typeof options !== 'object')
    return [`${where} must be options of ioredis' Cluster; got ${describeValue(options)}`];
  const problems = valueProblems(options, where, 'cluster');
  const redisOptions: RedisOptions = options.redisOptions ?? {};
  if (typeof redisOptions !== 'object') return [...problems, `${where}.redisOptions must be an object`];
  if (options.keyPrefix) problems.push(KEY_PREFIX);
  problems.push(...commonProblems(redisOptions, `${where}.redisOptions`), ...databaseProblems(redisOptions));
  for (const name of ['path', 'sentinels'] as const) {
    if (redisOptions[name]) problems.push(`${where}.redisOptions.${name} cannot be used in Cluster`);
  }
  return [...new Set(problems)];
}

const databaseProblems = ({ db }: RedisOptions): string[] => (Number(db) > 0 ? ['redis: db must be 0 in Cluster'] : []);

function nodeProblems(node: unknown, redisOptions: RedisOptions, where: string): string[] {
  const url = typeof node === 'string' && node !== '' ? urlProblems(node) : [];
  if (url.length > 0) return url.map((problem) => problem.replace('redis:', `${where}:`));
  if (typeof node === 'number') return valueProblems({ port: node }, where, 'address');
  const options = typeof node === 'string' && node !== '' ? fromUrl(node).options : (node as RedisOptions | null);
  if (typeof options !== 'object' || options === null) return [`${where} must be { host, port }, a URL or a port`];
  const problems = [...placeProblems(options, where), ...valueProblems(pick(options), where, 'redis')];
  problems.push(...databaseProblems(options));
  for (const name of ['username', 'password', 'tls'] as const) {
    if (options[name] && !redisOptions[name]) {
      problems.push(
        `${where} has ${name}, which is for all nodes: give it as redis.cluster.options.redisOptions.${name}`,
      );
    }
  }
  return problems;
}

function pick({ host, port, ...others }: RedisOptions): object {
  return { ...others, ...(host && { host }), port };
}
