import type { FaultClass } from '../core/events.js';
import { MqRedisError } from '../core/errors.js';
import {
  classifyRedisError,
  isConnectionError,
  redisAway,
  redisTimeout,
  replyCode,
  wasNotSent,
} from './redis-errors.js';

const named = (name: string, message: string): Error => Object.assign(new Error(message), { name });
const reply = (message: string): Error => named('ReplyError', message);
const coded = (code: string): Error => Object.assign(new Error(`connect ${code} 127.0.0.1:6379`), { code });

/** As servers of several versions write them, outside and inside of scripts. */
const replies: [message: string, code: string, fault: FaultClass][] = [
  ['LOADING Redis is loading the dataset in memory', 'LOADING', 'transient'],
  ["READONLY You can't write against a read only replica.", 'READONLY', 'transient'],
  ["READONLY You can't write against a read only replica. script: 5d, on @user_script:3.", 'READONLY', 'transient'],
  [
    "ERR Error running script (call to f_5d): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica.",
    'READONLY',
    'transient',
  ],
  ['UNBLOCKED the stream key no longer exists', 'UNBLOCKED', 'transient'],
  ['TRYAGAIN Multiple keys request during rehashing of slot', 'TRYAGAIN', 'transient'],
  ['CLUSTERDOWN The cluster is down', 'CLUSTERDOWN', 'transient'],
  ['CLUSTERDOWN Hash slot not served', 'CLUSTERDOWN', 'transient'],
  ["MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", 'MASTERDOWN', 'transient'],
  ['BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.', 'BUSY', 'transient'],
  ["OOM command not allowed when used memory > 'maxmemory'.", 'OOM', 'transient'],
  ["OOM command not allowed when used memory > 'maxmemory'. script: 5d, on @user_script:3.", 'OOM', 'transient'],
  [
    "ERR Error running script (call to f_5d): @user_script:3: @user_script: 3: -OOM command not allowed when used memory > 'maxmemory'.",
    'OOM',
    'transient',
  ],
  ['NOREPLICAS Not enough good replicas to write.', 'NOREPLICAS', 'transient'],
  [
    'MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.',
    'MISCONF',
    'transient',
  ],
  ['MOVED 3999 127.0.0.1:6381', 'MOVED', 'transient'],
  ['ASK 3999 127.0.0.1:6381', 'ASK', 'transient'],
  ['NOSCRIPT No matching script. Please use EVAL.', 'NOSCRIPT', 'transient'],
  ['ERR max number of clients reached', 'ERR', 'transient'],
  ['WRONGTYPE Operation against a key holding the wrong kind of value', 'WRONGTYPE', 'key'],
  [
    'WRONGTYPE Operation against a key holding the wrong kind of value script: 5d, on @user_script:3.',
    'WRONGTYPE',
    'key',
  ],
  [
    'ERR Error running script (call to f_5d): @user_script:3: WRONGTYPE Operation against a key holding the wrong kind of value',
    'WRONGTYPE',
    'key',
  ],
  ["NOGROUP No such key 'orders' or consumer group 'billing' in XREADGROUP with GROUP option", 'NOGROUP', 'key'],
  [
    "ERR Error running script (call to f_5d): @user_script:3: NOGROUP No such key 'orders' or consumer group 'billing'",
    'NOGROUP',
    'key',
  ],
  ['NOAUTH Authentication required.', 'NOAUTH', 'configuration'],
  ['WRONGPASS invalid username-password pair or user is disabled.', 'WRONGPASS', 'configuration'],
  ["NOPERM User app has no permissions to run the 'xadd' command", 'NOPERM', 'configuration'],
  ['NOPERM this user has no permissions to access one of the keys used as arguments', 'NOPERM', 'configuration'],
  [
    "ERR The user executing the script can't run this command or subcommand script: 5d, on @user_script:3.",
    'NOPERM',
    'configuration',
  ],
  [
    "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 5d, on @user_script:3.",
    'NOPERM',
    'configuration',
  ],
  [
    "ERR ACL failure in script: User app has no permissions to run the 'xadd' command script: 5d, on @user_script:3.",
    'NOPERM',
    'configuration',
  ],
  ["CROSSSLOT Keys in request don't hash to the same slot", 'CROSSSLOT', 'configuration'],
  ['DENIED Redis is running in protected mode because protected mode is enabled', 'DENIED', 'configuration'],
  ["ERR unknown command 'XADD', with args beginning with: 'orders'", 'ERR', 'configuration'],
  ["ERR unknown subcommand 'CREATE'. Try XGROUP HELP.", 'ERR', 'configuration'],
  ['ERR Unknown Redis command called from script script: 5d, on @user_script:3.', 'ERR', 'configuration'],
  ['ERR syntax error', 'ERR', 'unexpected'],
  [
    'ERR Error running script (call to f_5d): @user_script:3: user_script:3: attempt to compare nil with number',
    'ERR',
    'unexpected',
  ],
  ['BUSYGROUP Consumer Group name already exists', 'BUSYGROUP', 'unexpected'],
];

it.each(replies)('%j is %s: %s', (message, code, fault) => {
  expect([replyCode(reply(message)), classifyRedisError(reply(message))]).toEqual([code, fault]);
  expect(isConnectionError(reply(message))).toBe(false);
});

/** Errors of ioredis and of Node: the connection is gone, and what was sent may have run. */
it.each([
  named('MaxRetriesPerRequestError', 'Reached the max retries per request limit (which is 0).'),
  named('ClusterAllFailedError', 'Failed to refresh slots cache.'),
  named('AbortError', 'Command aborted due to connection close'),
  new Error('Connection is closed.'),
  new Error("Socket timeout. Expecting data, but didn't receive any in 5000ms."),
  new Error("Stream isn't writeable and enableOfflineQueue options is false"),
  new Error("Cluster isn't ready and enableOfflineQueue options is false"),
  new Error('None of startup nodes is available'),
  new Error('Too many Cluster redirections. Last error: MOVED 3999 127.0.0.1:6381'),
  new Error('All sentinels are unreachable. Retrying from scratch after 10ms.'),
  new Error('connect ETIMEDOUT'),
  ...['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT', 'EAI_AGAIN', 'ENOTFOUND'].map(
    coded,
  ),
  redisAway('command'),
  redisTimeout('command', 5_000),
])('%s is a fault of the connection', (error) => {
  expect([replyCode(error), isConnectionError(error), classifyRedisError(error)]).toEqual(['', true, 'transient']);
});

it.each([
  new Error('connect to the moon'),
  // Written by a handler, not by Redis.
  new Error('WRONGTYPE Operation against a key holding the wrong kind of value'),
  new TypeError('x is not a function'),
  coded('EACCES'),
  coded('CERT_HAS_EXPIRED'),
  new MqRedisError('MQ_REDIS_UNEXPECTED_REPLY', 'Redis answered something else than a number'),
  'WRONGTYPE as text',
  { name: 'ReplyError', message: 'OOM' },
  null,
  undefined,
])('%p is unexpected', (error) => {
  expect([replyCode(error), isConnectionError(error), classifyRedisError(error)]).toEqual(['', false, 'unexpected']);
});

it('says of our own errors whether they pass by themselves', () => {
  expect(classifyRedisError(new MqRedisError('MQ_REDIS_X', 'x', { retryable: true }))).toBe('transient');
});

it('knows what ioredis refused before it left this process', () => {
  const refused = [
    "Stream isn't writeable and enableOfflineQueue options is false",
    "Cluster isn't ready and enableOfflineQueue options is false",
  ];
  for (const message of refused) expect(wasNotSent(new Error(message))).toBe(true);
  expect(wasNotSent(new Error('Connection is closed.'))).toBe(false);
  expect(wasNotSent(undefined)).toBe(false);
});
