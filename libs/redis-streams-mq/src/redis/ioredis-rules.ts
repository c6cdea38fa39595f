import { isIP } from 'node:net';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { thrownText } from '../core/errors.js';
import { nearestName } from '../core/nearest-name.js';
import { describeValue } from '../core/option-rules.js';

/** What one option of ioredis may be; `undefined` is always its default. */
interface Rule {
  /** Ends the sentence "must be ...". */
  readonly expected: string;
  accepts(value: unknown): boolean;
  /** The value is never repeated in a message. */
  readonly secret?: true;
}

type Rules = Readonly<Record<string, Rule>>;

const isNull = (value: unknown): boolean => value === null;
const isInteger = (value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): boolean =>
  Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
/** ioredis takes port and database as text, too, and reads no further than the first letter. */
const isIntegerOrDigits = (value: unknown, least: number, most?: number): boolean =>
  isInteger(typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value, least, most);
const isText = (value: unknown): boolean => typeof value === 'string';

const integer = (least: number): Rule => ({
  expected: `an integer from ${least}`,
  accepts: (value) => isInteger(value, least),
});
const flag: Rule = { expected: 'true or false', accepts: (value) => typeof value === 'boolean' };
const secret: Rule = { expected: 'text', accepts: (value) => isNull(value) || isText(value), secret: true };
const callable: Rule = { expected: 'a function', accepts: (value) => isNull(value) || typeof value === 'function' };
/** A host with a port, or a URL, would be looked up as a name for ever. */
const host: Rule = {
  expected: 'a host name or an address, without port and scheme',
  accepts: (value) => typeof value === 'string' && (isIP(value) !== 0 || /^[^\s:/@${}]+$/.test(value)),
};
const port: Rule = { expected: 'a port from 1 to 65535', accepts: (value) => isIntegerOrDigits(value, 1, 65_535) };
const natMap: Rule = {
  expected: 'a function or an object of { host, port }',
  accepts: (value) => isNull(value) || typeof value === 'function' || typeof value === 'object',
};

const address: Rules = { host, port };

const node: Rules = {
  ...address,
  family: { expected: '0, 4 or 6', accepts: (value) => value === 0 || value === 4 || value === 6 },
  username: secret,
  password: secret,
  db: { expected: 'an integer from 0', accepts: (value) => isIntegerOrDigits(value, 0) },
  path: { expected: 'the path of a socket', accepts: (value) => isNull(value) || (isText(value) && value !== '') },
  keepAlive: integer(0),
  noDelay: flag,
  disableClientInfo: flag,
  clientInfoTag: { expected: 'text', accepts: (value) => isNull(value) || isText(value) },
  enableReadyCheck: flag,
  Connector: callable,
};

const sentinel: Rules = {
  role: { expected: '"master"', accepts: (value) => value === 'master' || value === 'slave' },
  name: {
    expected: 'the name of a master that the sentinels know',
    accepts: (value) => isNull(value) || (isText(value) && value !== ''),
  },
  sentinels: { expected: 'an array of { host, port }', accepts: (value) => isNull(value) || Array.isArray(value) },
  sentinelUsername: secret,
  sentinelPassword: secret,
  sentinelCommandTimeout: integer(1),
  enableTLSForSentinelMode: flag,
  updateSentinels: flag,
  natMap,
};

/** Pinned by us, or without effect in what we make of them: whatever they are, the queue works. */
const WITHOUT_EFFECT = [
  'retryStrategy',
  'commandTimeout',
  'blockingTimeout',
  'blockingTimeoutGrace',
  'socketTimeout',
  'connectTimeout',
  'disconnectTimeout',
  'connectionName',
  'autoResubscribe',
  'autoResendUnfulfilledCommands',
  'reconnectOnError',
  'stringNumbers',
  'protocol',
  'replyMapping',
  'monitor',
  'maxRetriesPerRequest',
  'maxLoadingRetryTime',
  'enableAutoPipelining',
  'autoPipeliningIgnoredCommands',
  'offlineQueue',
  'commandQueue',
  'enableOfflineQueue',
  'lazyConnect',
  'scripts',
  'himportFieldsets',
  'showFriendlyErrorStack',
  'sentinelRetryStrategy',
  'sentinelReconnectStrategy',
  'sentinelMaxConnections',
  'failoverDetector',
  'preferredSlaves',
];
/** Looked at by `redisOptionProblems` itself. */
const LOOKED_AT = ['tls', 'sentinelTLS', 'keyPrefix', 'readOnly'];

const ofCluster: Rules = {
  enableReadyCheck: flag,
  maxRedirections: integer(1),
  retryDelayOnClusterDown: integer(0),
  retryDelayOnTryAgain: integer(0),
  retryDelayOnMoved: integer(0),
  slotsRefreshTimeout: integer(1),
  slotsRefreshInterval: integer(0),
  useSRVRecords: flag,
  dnsLookup: callable,
  resolveSrv: callable,
  natMap,
};
const CLUSTER_WITHOUT_EFFECT = [
  'clusterRetryStrategy',
  'clusterNodeRetryStrategy',
  'enableOfflineQueue',
  'scaleReads',
  'retryDelayOnFailover',
  'shardedSubscribers',
  'lazyConnect',
  'enableAutoPipelining',
  'autoPipeliningIgnoredCommands',
  'scripts',
  'himportFieldsets',
  'redisOptions',
  'keyPrefix',
  'showFriendlyErrorStack',
];

type Level = 'address' | 'redis' | 'cluster';

const LEVELS: Readonly<Record<Level, { readonly rules: Rules; readonly others?: readonly string[] }>> = {
  /** One address: of a sentinel. */
  address: { rules: address },
  redis: { rules: { ...node, ...sentinel }, others: [...WITHOUT_EFFECT, ...LOOKED_AT] },
  cluster: { rules: ofCluster, others: CLUSTER_WITHOUT_EFFECT },
};

/** Whether the name means something as an option of a client, or as `cluster`. */
export function isOptionName(name: string): boolean {
  const { rules, others = [] } = LEVELS.redis;
  return name === 'cluster' || Object.hasOwn(rules, name) || others.includes(name);
}

/** Other clients' names for what ioredis calls otherwise; ioredis would go to localhost without a word. */
const FOREIGN: Readonly<Record<string, string>> = {
  url: 'give the URL itself',
  uri: 'give the URL itself',
  socket: 'give host and port themselves, and tls',
  hostname: 'it is called host',
  user: 'it is called username',
  pass: 'it is called password',
  database: 'it is called db',
  credentials: 'give username and password themselves',
  addresses: 'give host and port, or { cluster: { nodes } }',
  nodes: 'give { cluster: { nodes } }',
  rootNodes: 'give { cluster: { nodes } }',
  startupNodes: 'give { cluster: { nodes } }',
  redisOptions: 'give its content itself, or { cluster: { nodes, options } }',
};

/** What is wrong with the values of ioredis' options, as sentences that begin with their place. */
export function valueProblems(options: object, where: string, level: Level): string[] {
  const { rules, others } = LEVELS[level];
  const problems: string[] = [];
  for (const [name, value] of Object.entries(options)) {
    const rule = Object.hasOwn(rules, name) ? rules[name] : undefined;
    if (rule && value !== undefined && !rule.accepts(value)) {
      problems.push(`${where}.${name} must be ${rule.expected}${rule.secret ? '' : `; got ${describeValue(value)}`}`);
    }
    if (!rule && others && !others.includes(name)) {
      problems.push(...nameProblems(name, where, [...Object.keys(rules), ...others]));
    }
  }
  return problems;
}

/** A name that ioredis does not know may be one of a later version; one that is nearly another is a slip. */
function nameProblems(name: string, where: string, known: readonly string[]): string[] {
  if (Object.hasOwn(FOREIGN, name)) return [`${where}.${name} is not an option of ioredis; ${FOREIGN[name]}`];
  const nearest = nearestName(name, known, 0.3) ?? known.find((other) => letters(other) === letters(name));
  return nearest === undefined
    ? []
    : [`${where}.${name} is not an option of ioredis; did you mean ${where}.${nearest}?`];
}

const letters = (name: string): string => name.toLowerCase().split('').sort().join('');

const TLS_PROFILES = ['RedisCloudFixed', 'RedisCloudFlexible'];

/** What is wrong with settings of TLS: Node itself says it, before it is needed for a connection. */
export function tlsProblems(tls: unknown, where: string): string[] {
  if (tls === undefined || tls === null || typeof tls === 'boolean') return [];
  if (typeof tls === 'string' && TLS_PROFILES.includes(tls)) return [];
  if (typeof tls !== 'object' || Array.isArray(tls)) {
    return [`${where} must be true, an object such as { ca }, or one of ioredis' profiles; got ${describeValue(tls)}`];
  }
  const settings = tls as SecureContextOptions;
  try {
    createSecureContext(settings);
  } catch (error) {
    return [`${where} cannot be used for TLS: ${thrownText(error)}`];
  }
  // Node passes over what is no certificate without a word.
  const cas = [settings.ca ?? []].flat();
  return cas.every((ca) => String(ca).includes('-----BEGIN'))
    ? []
    : [`${where}.ca must be the text of the certificate (PEM), not the name of its file`];
}
