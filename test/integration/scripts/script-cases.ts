import type { Outcome } from '../../../libs/redis-streams-mq/src/redis/reply.js';
import {
  call,
  callForMany,
  callMulti,
  type MultiKeyScript,
  type ScriptCall,
} from '../../../libs/redis-streams-mq/src/redis/script.js';
import { dlqCount, dlqPage } from '../../../libs/redis-streams-mq/src/redis/scripts/dlq.script.js';
import { dlqImport } from '../../../libs/redis-streams-mq/src/redis/scripts/dlq-import.script.js';
import { dlqTakeOut } from '../../../libs/redis-streams-mq/src/redis/scripts/dlq-take-out.script.js';
import {
  acquire,
  forsake,
  holders,
  release,
  renew,
} from '../../../libs/redis-streams-mq/src/redis/scripts/lease.script.js';
import { findEvent } from '../../../libs/redis-streams-mq/src/redis/scripts/find-event.script.js';
import { heartbeat, livingMembers } from '../../../libs/redis-streams-mq/src/redis/scripts/members.script.js';
import { dropHeld, heldNotes, hold } from '../../../libs/redis-streams-mq/src/redis/scripts/hold.script.js';
import {
  dropConsumer,
  dropDeadConsumers,
  heal,
  markCrash,
  page,
  unmarkCrash,
} from '../../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import {
  deletePartition,
  stopPartition,
} from '../../../libs/redis-streams-mq/src/redis/scripts/partition-deletion.script.js';
import { flagPause, notePause, pauseState } from '../../../libs/redis-streams-mq/src/redis/scripts/pause.script.js';
import {
  dropRetries,
  resetPosition,
  walkStream,
} from '../../../libs/redis-streams-mq/src/redis/scripts/position.script.js';
import { probe } from '../../../libs/redis-streams-mq/src/redis/scripts/probe.script.js';
import { replayRange } from '../../../libs/redis-streams-mq/src/redis/scripts/replay-range.script.js';
import { report } from '../../../libs/redis-streams-mq/src/redis/scripts/report.script.js';
import { replay } from '../../../libs/redis-streams-mq/src/redis/scripts/replay.script.js';
import { dueTimes, moveRetries } from '../../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { setRetention } from '../../../libs/redis-streams-mq/src/redis/scripts/retention.script.js';
import { moveDelayed, schedule, sendOnce } from '../../../libs/redis-streams-mq/src/redis/scripts/send.script.js';
import { dead, fail, settle } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import {
  deleteGroup,
  finishDeletion,
  markDeleted,
  noteRaise,
  raiseCount,
} from '../../../libs/redis-streams-mq/src/redis/scripts/topic-change.script.js';
import {
  partitionCreate,
  partitionUnmake,
  topicCreate,
} from '../../../libs/redis-streams-mq/src/redis/scripts/topic-create.script.js';
import {
  groupStats,
  manyGroupStats,
  manyPartitionStats,
  partitionStats,
} from '../../../libs/redis-streams-mq/src/redis/scripts/stats.script.js';
import { trim } from '../../../libs/redis-streams-mq/src/redis/scripts/trim.script.js';
import { openWake } from '../../../libs/redis-streams-mq/src/redis/scripts/wake.script.js';
import type { Place, PlaceKeys } from './place.js';

/** One use of one script. What holds for every script is tested with each of them. */
export interface ScriptCase {
  readonly name: string;
  /** The script's name; each script has at least one case. */
  readonly script: string;
  /** Brings about what the call needs; the ids are for `call` and `reply`. */
  readonly arrange: (place: Place) => Promise<readonly string[]>;
  readonly call: (place: Place, ids: readonly string[]) => ScriptCall<unknown>;
  /** What the first call answers. */
  readonly reply: (ids: readonly string[], place: Place) => unknown;
  readonly inFullRedis: 'goes on' | 'is refused' | 'depends on the version';
  /** Keys that it needs, but whose type does not matter to this use. */
  readonly anyType?: readonly (keyof PlaceKeys)[];
  /** Sorted sets whose scores, and hashes whose values, move with the clock on each call. */
  readonly timesIn?: readonly (keyof PlaceKeys)[];
}

const EVERY_LETTER = {
  low: '-',
  high: '+',
  scan: 10,
  failedFrom: '',
  failedTo: '',
  count: 10,
  newestFirst: 0,
  heads: 0,
};
const number: unknown = expect.any(Number);
const text: unknown = expect.any(String);

type Use = Omit<ScriptCase, 'name' | 'script'> & { as?: string };

const using = (script: { readonly name: string }, use: Use): ScriptCase => ({
  ...use,
  name: use.as === undefined ? script.name : `${script.name} (${use.as})`,
  script: script.name,
});

const renewedKeys = (keys: PlaceKeys): string[] => [
  keys.lease,
  keys.stream,
  keys.retryStream,
  keys.paused,
  keys.pausedAll,
  keys.activity,
];

const ofPartition: Use = {
  arrange: async (place) => {
    const [first, second] = await place.pending(2);
    await place.dead(second!);
    await place.schedule('e1', 5_000_000_000_000);
    const unread = await place.send('payload', 'unread');
    await place.redis.send('HSET', place.keys.commit, 'lost', first!);
    return [first!, unread];
  },
  call: ({ keys }) => call(partitionStats, keys, { samples: 5, countLimit: 10 }),
  reply: ([first, unread], { group }) =>
    // Before Redis 7 it is not known how many entries were ever added.
    expect.objectContaining({
      now: number,
      length: 3,
      firstId: first,
      lastId: unread,
      lastGeneratedId: unread,
      bytes: number,
      deadLetters: 1,
      deadLetterBytes: number,
      delayed: 1,
      nextDelayedDue: 5_000_000_000_000,
      groups: [
        {
          group,
          isPresent: true,
          position: text,
          consumers: 1,
          pending: 1,
          oldestPendingId: first,
          undelivered: { count: 1, certainty: 'exact' },
        },
        {
          group: 'lost',
          isPresent: false,
          position: first,
          consumers: 0,
          pending: 0,
          oldestPendingId: null,
          undelivered: { count: 2, certainty: 'exact' },
        },
      ],
      unreadable: [],
    }),
  inFullRedis: 'goes on',
  anyType: ['stream', 'dlq', 'delayed', 'commit'],
};

const ofGroup: Use = {
  arrange: async (place) => {
    const [retried, origin] = await place.pendingRetry();
    const [waiting, running] = [await place.send('payload', 'w'), await place.send('payload', 'r')];
    await place.read('stream');
    await place.fail(waiting, 'stream', waiting, 600_000);
    return [retried!, origin!, running, await place.send('payload', 'unread')];
  },
  call: ({ keys, group }) => call(groupStats, keys, { group, countLimit: 10 }),
  reply: ([retried, origin, running], { token }) => ({
    now: number,
    token,
    leaseMs: number,
    isPaused: false,
    isPresent: true,
    position: running,
    committed: text,
    undelivered: { count: 1, certainty: 'exact' },
    pending: 1,
    oldestPending: { id: running, consumer: 'i1', idleMs: number, deliveries: 1 },
    consumers: 1,
    retryLength: 1,
    retryPending: 1,
    oldestRetryPending: { id: retried, consumer: 'i1', idleMs: number, deliveries: 1 },
    bucket: 1,
    nextDue: number,
    held: 0,
    oldestId: origin,
    isOldestExact: true,
    unreadable: [],
  }),
  inFullRedis: 'goes on',
  anyType: ['stream', 'retryStream', 'lease', 'retry', 'held', 'commit', 'paused', 'pausedAll'],
};

/** The same place asked about twice in one call. */
const twice = (use: Use, forMany: MultiKeyScript<readonly Outcome<unknown>[]>): Use => ({
  ...use,
  call: (place, ids) => {
    const one = use.call(place, ids);
    return callForMany(forMany, [one, one]);
  },
  reply: (ids, place) => {
    const one = { ok: true, value: use.reply(ids, place) };
    return [one, one];
  },
});

export const scriptCases: readonly ScriptCase[] = [
  using(acquire, {
    as: 'a free lease',
    arrange: async () => [],
    call: ({ keys }) => call(acquire, keys, { instance: 'i1', nonce: 'n1', ttl: 60_000, group: 'g', forAdmin: 0 }),
    reply: () => ({ status: 'acquired', epoch: number, clean: false, freeForMs: 'never' }),
    inFullRedis: 'goes on',
    anyType: ['paused', 'pausedAll'],
    timesIn: ['activity'],
  }),
  using(acquire, {
    as: 'held by another',
    arrange: async (place) => (await place.consuming(), []),
    call: ({ keys }) => call(acquire, keys, { instance: 'i2', nonce: 'n1', ttl: 60_000, group: 'g', forAdmin: 0 }),
    reply: (_, { token }) => ({ status: 'held', token, pttl: number }),
    inFullRedis: 'goes on',
    anyType: ['paused', 'pausedAll'],
    timesIn: ['activity'],
  }),
  using(acquire, {
    as: 'paused',
    arrange: async ({ redis, keys }) => (await redis.send('SET', keys.paused, '1'), []),
    call: ({ keys }) => call(acquire, keys, { instance: 'i1', nonce: 'n1', ttl: 60_000, group: 'g', forAdmin: 0 }),
    reply: () => ({ status: 'paused' }),
    inFullRedis: 'goes on',
    anyType: ['paused', 'pausedAll'],
    timesIn: ['activity'],
  }),
  using(release, {
    arrange: (place) => place.consuming(),
    call: ({ keys, token }) => call(release, keys, { token, keepLease: 0 }),
    reply: () => true,
    inFullRedis: 'goes on',
    anyType: ['epoch'],
  }),
  using(release, {
    as: 'the lease is kept',
    arrange: (place) => place.consuming(),
    call: ({ keys, token }) => call(release, keys, { token, keepLease: 1 }),
    reply: () => true,
    inFullRedis: 'goes on',
    anyType: ['epoch'],
  }),
  using(forsake, {
    arrange: (place) => place.consuming(),
    call: ({ keys, token }) => call(forsake, keys, { token }),
    reply: () => true,
    inFullRedis: 'goes on',
  }),
  using(renew, {
    arrange: (place) => place.pending(2),
    call: ({ keys, token, group }) => callMulti(renew, renewedKeys(keys), [60_000, token, group]),
    reply: () => [{ state: 'owned', pending: 2, retryPending: 0 }],
    inFullRedis: 'goes on',
    anyType: ['lease', 'stream', 'retryStream', 'paused', 'pausedAll', 'activity'],
    timesIn: ['activity'],
  }),
  using(holders, {
    arrange: (place) => place.consuming(),
    call: ({ keys }) => callMulti(holders, [keys.lease, keys.paused, keys.pausedAll], []),
    reply: (_, { token }) => [{ token, pttl: number, paused: false }],
    inFullRedis: 'goes on',
    anyType: ['lease', 'paused', 'pausedAll'],
  }),
  using(heartbeat, {
    arrange: async ({ redis, keys }) => {
      await redis.send('ZADD', keys.members, 1, 'dead');
      await redis.send('HSET', keys.info, 'dead', 'topics');
      return [];
    },
    call: ({ keys }) => call(heartbeat, keys, { instance: 'i1', about: 'topics', ttl: 60_000 }),
    reply: () => ({ now: number, members: new Map([['i1', 'topics']]) }),
    inFullRedis: 'goes on',
    timesIn: ['members'],
  }),
  using(heartbeat, {
    as: 'nobody died',
    arrange: async () => [],
    call: ({ keys }) => call(heartbeat, keys, { instance: 'i1', about: 'topics', ttl: 60_000 }),
    reply: () => ({ now: number, members: new Map([['i1', 'topics']]) }),
    inFullRedis: 'goes on',
    timesIn: ['members'],
  }),
  using(livingMembers, {
    arrange: async ({ redis, keys }) => {
      await redis.send('ZADD', keys.members, 1, 'dead', 5_000_000_000_000, 'i1');
      await redis.send('HSET', keys.info, 'dead', 'topics', 'i1', 'topics');
      return [];
    },
    call: ({ keys }) => call(livingMembers, keys, {}),
    reply: () => [{ id: 'i1', about: 'topics', aliveMs: number }],
    inFullRedis: 'goes on',
  }),
  using(page, {
    arrange: (place) => place.pending(2, 'i0'),
    call: ({ keys, token, group }) =>
      call(page, { ...keys, source: keys.stream }, { token, group, consumer: 'i1', after: '-', count: 10 }),
    reply: (ids) => ({
      status: 'ok',
      entries: ids.map((id) => ({ id, fields: expect.any(Array) })),
      deleted: [],
      last: ids[1],
    }),
    inFullRedis: 'goes on',
  }),
  using(page, {
    as: 'an entry was deleted',
    arrange: async (place) => {
      const ids = await place.pending(2, 'i0');
      await place.redis.send('XDEL', place.keys.stream, ids[0]!);
      return ids;
    },
    call: ({ keys, token, group }) =>
      call(page, { ...keys, source: keys.stream }, { token, group, consumer: 'i1', after: '-', count: 10 }),
    reply: (ids) => ({
      status: 'ok',
      entries: [{ id: ids[1], fields: expect.any(Array) }],
      deleted: [ids[0]],
      last: ids[1],
    }),
    inFullRedis: 'goes on',
  }),
  using(heal, {
    as: 'the group is there',
    arrange: (place) => place.consuming(1),
    call: ({ keys, token, group }) => call(heal, keys, { token, group, start: '0' }),
    reply: () => ({ status: 'ok', created: false, retryCreated: false, position: '0', reason: 'present' }),
    inFullRedis: 'goes on',
  }),
  using(heal, {
    as: 'the group is lost',
    arrange: async (place) => {
      const { redis, keys, group } = place;
      const ids = await place.pending(2);
      await redis.send('HSET', keys.commit, group, ids[0]!);
      await redis.send('XGROUP', 'DESTROY', keys.stream, group);
      await redis.send('DEL', keys.retryStream);
      return ids;
    },
    call: ({ keys, token, group }) => call(heal, keys, { token, group, start: '0' }),
    reply: (ids) => ({ status: 'ok', created: true, retryCreated: true, position: ids[0], reason: 'commit' }),
    inFullRedis: 'goes on',
  }),
  using(markCrash, {
    arrange: (place) => place.pending(2),
    call: ({ keys, token }, ids) => call(markCrash, keys, { token, epoch: 7 }, ids),
    reply: () => ({ status: 'ok', deaths: 0, marked: 2 }),
    inFullRedis: 'goes on',
  }),
  using(unmarkCrash, {
    arrange: async ({ redis, keys }) => (
      await redis.send('HSET', keys.crash, '1-0', '7', '2-0', '6,7', '3-0', '6'),
      []
    ),
    call: ({ keys }) => call(unmarkCrash, keys, { epoch: 7 }, ['1-0', '2-0', '3-0']),
    reply: () => 2,
    inFullRedis: 'goes on',
  }),
  using(dropConsumer, {
    arrange: async (place) => {
      const ids = await place.consuming();
      await place.redis.send('XGROUP', 'CREATECONSUMER', place.keys.stream, place.group, 'i1');
      return ids;
    },
    call: ({ keys, group }) => call(dropConsumer, { source: keys.stream }, { group, consumer: 'i1' }),
    reply: () => 1,
    // Before Redis 7 all of XGROUP counts as adding memory.
    inFullRedis: 'depends on the version',
    anyType: ['stream'],
  }),
  using(dropDeadConsumers, {
    arrange: async (place) => {
      const ids = await place.consuming();
      for (const name of ['dead-1', 'dead-2', 'owner'])
        await place.redis.send('XGROUP', 'CREATECONSUMER', place.keys.stream, place.group, name);
      return ids;
    },
    call: ({ keys, token, group }) =>
      call(
        dropDeadConsumers,
        { source: keys.stream, lease: keys.lease },
        { token, group, consumer: 'owner', limit: 10 },
      ),
    reply: () => 2,
    // Before Redis 7 all of XGROUP counts as adding memory.
    inFullRedis: 'depends on the version',
  }),
  using(trim, {
    as: 'what all groups have settled',
    arrange: async (place) => {
      const ids = await place.pending(5);
      await place.redis.send('XACK', place.keys.stream, place.group, ...ids.slice(0, 3));
      return ids;
    },
    call: ({ keys }) =>
      call(trim, keys, {
        maxLen: 1,
        maxAgeMs: 0,
        hardMaxLen: 0,
        limit: 100,
        guarded: 1,
        beforeId: '',
        force: 0,
        abandonedMs: 0,
      }),
    reply: () => ({ length: 5, byLength: 3, byAge: 0, byId: 0, byHardBound: 0, pinnedBy: 'g', abandoned: [] }),
    inFullRedis: 'goes on',
  }),
  using(trim, {
    as: 'what an abandoned group has not settled',
    arrange: async (place) => {
      const ids = await place.pending(5);
      await place.redis.send('XACK', place.keys.stream, place.group, ...ids);
      await place.redis.send('XGROUP', 'CREATE', place.keys.stream, 'gone', ids[1]!);
      await place.redis.send('HSET', place.keys.activity, 'gone', 5, 'g', '9000000000000');
      return ids;
    },
    call: ({ keys }) =>
      call(trim, keys, {
        maxLen: 1,
        maxAgeMs: 0,
        hardMaxLen: 0,
        limit: 100,
        guarded: 1,
        beforeId: '',
        force: 0,
        abandonedMs: 1_000,
      }),
    reply: () => ({
      length: 5,
      byLength: 4,
      byAge: 0,
      byId: 0,
      byHardBound: 0,
      pinnedBy: '',
      abandoned: [{ group: 'gone', count: 2, idleMs: number }],
    }),
    inFullRedis: 'goes on',
  }),
  using(trim, {
    as: 'dead letters',
    arrange: (place) => place.consuming(5),
    call: ({ keys }) =>
      call(trim, keys, {
        maxLen: 2,
        maxAgeMs: 0,
        hardMaxLen: 0,
        limit: 100,
        guarded: 0,
        beforeId: '',
        force: 0,
        abandonedMs: 0,
      }),
    reply: () => ({ length: 5, byLength: 3, byAge: 0, byId: 0, byHardBound: 0, pinnedBy: '', abandoned: [] }),
    inFullRedis: 'goes on',
    anyType: ['commit'],
  }),
  using(dueTimes, {
    arrange: async ({ redis, keys }) => (await redis.send('ZADD', keys.retry, 5, 'x', 9, 'y'), []),
    call: ({ keys }) => callMulti(dueTimes, [keys.retry, keys.delayed], []),
    reply: () => ({ now: number, due: [5, null] }),
    inFullRedis: 'goes on',
    anyType: ['retry', 'delayed'],
  }),
  using(moveRetries, {
    arrange: async (place) => {
      const ids = await place.pending(2);
      for (const id of ids) await place.fail(id);
      return ids;
    },
    call: ({ keys, token }) => call(moveRetries, keys, { token, limit: 10 }),
    reply: () => ({ fenced: false, moved: 2, nextDue: null, bad: [] }),
    inFullRedis: 'is refused',
  }),
  using(moveDelayed, {
    arrange: async (place) => {
      const ids = await place.consuming();
      await place.schedule('e1', 1);
      await place.schedule('e2', 1);
      return ids;
    },
    call: ({ keys }) => call(moveDelayed, keys, { limit: 10 }),
    reply: () => ({ fenced: false, moved: 2, nextDue: null, bad: [] }),
    inFullRedis: 'is refused',
  }),
  using(sendOnce, {
    arrange: (place) => place.consuming(),
    call: ({ keys }) => call(sendOnce, keys, { incarnation: 'inc', ttl: 60_000 }, ['payload', 'p']),
    reply: () => ({ status: 'stored', id: text, duplicate: false }),
    inFullRedis: 'is refused',
  }),
  using(schedule, {
    arrange: (place) => place.consuming(),
    call: ({ keys }) => call(schedule, keys, { eventId: 'e1', mode: 'delay', when: 600_000 }, ['payload', 'p']),
    reply: () => ({ status: 'scheduled', due: number, earliest: true, duplicate: false }),
    inFullRedis: 'is refused',
    // Of a wrong type it holds up the mover, and the message waits where it is.
    anyType: ['stream'],
  }),
  using(settle, {
    as: 'on the stream',
    arrange: async (place) => {
      const ids = await place.pending(3);
      await place.redis.send('HSET', place.keys.crash, ids[0]!, '6');
      return ids.slice(0, 2);
    },
    call: (place, ids) => call(settle, place.from('stream'), place.fence('stream'), ids),
    reply: () => ({ status: 'ok', acked: 2, pending: 1 }),
    inFullRedis: 'goes on',
  }),
  using(settle, {
    as: 'on the retry stream',
    arrange: (place) => place.pendingRetry(),
    call: (place, [id]) => call(settle, place.from('retryStream'), place.fence('retryStream'), [id!]),
    reply: () => ({ status: 'ok', acked: 1, pending: 0 }),
    inFullRedis: 'goes on',
    anyType: ['commit', 'held'],
  }),
  using(fail, {
    as: 'on the stream',
    arrange: (place) => place.pending(2),
    call: (place, ids) =>
      call(
        fail,
        place.from('stream'),
        place.fence('stream'),
        ids.flatMap((id) => [id, id, 1, 0, 'boom']),
      ),
    reply: () => ({ status: 'ok', pending: 0, nextDue: number, now: number, results: ['moved', 'moved'] }),
    inFullRedis: 'is refused',
  }),
  using(fail, {
    as: 'on the retry stream',
    arrange: (place) => place.pendingRetry(),
    call: (place, [id, origin]) =>
      call(fail, place.from('retryStream'), place.fence('retryStream'), [id!, origin!, 2, 0, 'boom']),
    reply: () => ({ status: 'ok', pending: 0, nextDue: number, now: number, results: ['moved'] }),
    inFullRedis: 'is refused',
    anyType: ['commit', 'held'],
  }),
  using(fail, {
    as: 'a deleted entry',
    arrange: async (place) => {
      const ids = await place.pending(1);
      await place.redis.send('XDEL', place.keys.stream, ids[0]!);
      return ids;
    },
    call: (place, [id]) => call(fail, place.from('stream'), place.fence('stream'), [id!, id!, 1, 0, 'boom']),
    reply: () => ({ status: 'ok', pending: 0, nextDue: null, now: number, results: ['deleted'] }),
    inFullRedis: 'goes on',
    anyType: ['retryItems'],
  }),
  using(settle, {
    as: 'what was held',
    arrange: async (place) => {
      const ids = await place.pending(1);
      await place.redis.send('HSET', place.keys.held, ids[0]!, '2:9');
      return ids;
    },
    call: (place, ids) => call(settle, place.from('stream'), place.fence('stream'), ids),
    reply: () => ({ status: 'ok', acked: 1, pending: 0 }),
    inFullRedis: 'goes on',
  }),
  using(hold, {
    arrange: async (place) => {
      const ids = await place.pending(2);
      await place.redis.send('HSET', place.keys.crash, ids[0]!, '6');
      return ids;
    },
    call: (place, ids) => call(hold, place.from('stream'), place.fence('stream'), [ids[0]!, 2, 600_000, '9-9', 1, 0]),
    reply: () => ({ status: 'ok', now: number, due: [number, null] }),
    inFullRedis: 'is refused',
  }),
  using(heldNotes, {
    arrange: async ({ redis, keys, ...place }) => {
      await redis.send('SET', keys.lease, place.token, 'PX', 600_000);
      await redis.send('HSET', keys.held, '5-0', '2:1234', '6-0', 'nonsense');
      return [];
    },
    call: ({ keys, token }) => call(heldNotes, keys, { token }),
    reply: () => ({ status: 'ok', now: number, notes: [{ id: '5-0', attempts: 2, due: 1234 }] }),
    inFullRedis: 'goes on',
  }),
  using(dropHeld, {
    arrange: async (place) => {
      const ids = await place.pending(1);
      await place.redis.send('HSET', place.keys.held, ids[0]!, '1:9', '5-0', '2:1234');
      return ids;
    },
    call: (place, ids) => call(dropHeld, place.from('stream'), place.fence('stream'), [...ids, '5-0']),
    reply: () => 1,
    inFullRedis: 'goes on',
  }),
  using(dead, {
    as: 'on the stream',
    arrange: (place) => place.pending(1),
    call: (place, [id]) => call(dead, place.from('stream'), { ...place.fence('stream'), id: id! }, ['group', 'g']),
    reply: () => ({ status: 'dead', pending: 0, dlqId: text }),
    inFullRedis: 'is refused',
  }),
  using(dead, {
    as: 'on the retry stream',
    arrange: (place) => place.pendingRetry(),
    call: (place, [id]) =>
      call(dead, place.from('retryStream'), { ...place.fence('retryStream'), id: id! }, ['group', 'g']),
    reply: () => ({ status: 'dead', pending: 0, dlqId: text }),
    inFullRedis: 'is refused',
    anyType: ['commit', 'held'],
  }),
  using(replay, {
    as: 'of a group that has a position',
    arrange: async (place) => {
      const ids = await place.pending(2);
      return [await place.dead(ids[0]!), await place.dead(ids[1]!)];
    },
    call: ({ keys, group }, ids) => call(replay, keys, { group, edits: 0 }, ids),
    reply: () => ({ status: 'ok', results: ['replayed', 'replayed'] }),
    inFullRedis: 'is refused',
    anyType: ['stream', 'paused', 'pausedAll'],
  }),
  using(replay, {
    as: 'edited',
    arrange: async (place) => {
      const [id] = await place.pending(1);
      return [await place.dead(id!)];
    },
    call: ({ keys, group }, [id]) => call(replay, keys, { group, edits: 2 }, ['payload', 'other', id!]),
    reply: () => ({ status: 'ok', results: ['replayed'] }),
    inFullRedis: 'is refused',
    anyType: ['stream', 'paused', 'pausedAll'],
  }),
  using(dlqPage, {
    arrange: async (place) => {
      const [id] = await place.pending(1);
      return [await place.dead(id!)];
    },
    call: ({ keys }) => call(dlqPage, keys, EVERY_LETTER),
    reply: ([id]) => ({
      letters: [
        {
          id,
          metadata: expect.any(Map),
          fields: [Buffer.from('payload'), Buffer.from('message 0')],
          history: { attempts: [], deaths: [], deathCount: 0 },
        },
      ],
      lastId: id,
      looked: 1,
      isEnd: true,
    }),
    inFullRedis: 'goes on',
  }),
  using(dlqCount, {
    arrange: async (place) => {
      const ids = await place.pending(2);
      return [await place.dead(ids[0]!), await place.dead(ids[1]!)];
    },
    call: ({ keys }) =>
      call(dlqCount, keys, { low: '-', high: '+', scan: 10, failedFrom: '', failedTo: '' }, ['group', 'g']),
    reply: ([, last]) => ({
      counts: [{ group: 'g', reason: 'exhausted', count: 2, oldest: number }],
      lastId: last,
      looked: 2,
      length: 2,
      isEnd: true,
    }),
    inFullRedis: 'goes on',
  }),
  using(dlqImport, {
    arrange: async (place) => {
      const [id] = await place.pending(1);
      return [await place.dead(id!)];
    },
    call: ({ keys }, [id]) =>
      call(dlqImport, keys, { keepMs: 60_000 }, [
        '1-1',
        '0'.repeat(40),
        2,
        'group',
        'g',
        id!,
        '0'.repeat(40),
        4,
        'group',
        'g',
        'reason',
        'exhausted',
      ]),
    reply: () => ({ status: 'ok', results: ['imported', 'imported'] }),
    inFullRedis: 'is refused',
    anyType: ['stream'],
  }),
  using(dlqImport, {
    as: 'the partition is gone',
    arrange: async () => [],
    call: ({ keys }) => call(dlqImport, keys, { keepMs: 60_000 }, ['1-1', '0'.repeat(40), 2, 'group', 'g']),
    reply: () => ({ status: 'gone' }),
    inFullRedis: 'goes on',
    anyType: ['imports', 'stream'],
  }),
  using(dlqTakeOut, {
    arrange: async (place) => {
      const [id] = await place.pending(1);
      return [await place.dead(id!)];
    },
    call: ({ keys, token }, [id]) => call(dlqTakeOut, keys, { token, id: id! }),
    reply: () => ({ status: 'deleted' }),
    inFullRedis: 'goes on',
  }),
  using(report, {
    as: 'nobody reports',
    arrange: async () => [],
    call: ({ keys }) => call(report, keys, { token: 'i1', ttl: 60_000 }),
    reply: () => ({ isOurs: true, pttl: 60_000 }),
    inFullRedis: 'goes on',
  }),
  using(report, {
    as: 'another reports',
    arrange: async ({ redis, keys }) => (await redis.send('SET', keys.reporter, 'i2', 'PX', 60_000), []),
    call: ({ keys }) => call(report, keys, { token: 'i1', ttl: 60_000 }),
    reply: () => ({ isOurs: false, pttl: number }),
    inFullRedis: 'goes on',
  }),
  using(report, {
    as: 'given up',
    arrange: async ({ redis, keys }) => (await redis.send('SET', keys.reporter, 'i1', 'PX', 60_000), []),
    call: ({ keys }) => call(report, keys, { token: 'i1', ttl: 0 }),
    reply: () => ({ isOurs: false, pttl: number }),
    inFullRedis: 'goes on',
  }),
  using(partitionStats, ofPartition),
  using(manyPartitionStats, twice(ofPartition, manyPartitionStats)),
  using(groupStats, ofGroup),
  using(manyGroupStats, twice(ofGroup, manyGroupStats)),
  using(findEvent, {
    arrange: async (place) => {
      const ids = await place.consuming(2);
      return [...ids, await place.send('payload', 'eventId', 'eventId', '~this one')];
    },
    call: ({ keys }) => call(findEvent, keys, { eventId: '~this one', from: '-', to: '+', limit: 10 }),
    reply: ([, , id]) => ({ scanned: 3, last: id, entry: { id, fields: expect.any(Array) } }),
    inFullRedis: 'goes on',
  }),
  using(probe, {
    arrange: async ({ redis, keys }) => (await redis.send('SADD', keys.topics, 'orders', 'users'), []),
    call: ({ keys }) => call(probe, keys, {}),
    reply: () => 2,
    inFullRedis: 'is refused',
  }),
  using(openWake, {
    arrange: async () => [],
    call: ({ keys, group }) => call(openWake, keys, { group, ttl: 60_000 }),
    reply: () => true,
    inFullRedis: 'goes on',
  }),
  using(notePause, {
    arrange: async (place) => (await place.topic(), []),
    call: ({ keys }) => call(notePause, keys, { group: 'g', isPaused: 1 }),
    reply: () => ({ status: 'noted', partitionCount: 4, change: number }),
    inFullRedis: 'is refused',
  }),
  using(notePause, {
    as: 'the topic is resumed',
    arrange: async (place) => {
      await place.topic();
      await place.redis.send('HSET', place.keys.meta, 'paused', '1', 'pauseChange', '6');
      return [];
    },
    call: ({ keys }) => call(notePause, keys, { group: '', isPaused: 0 }),
    reply: () => ({ status: 'noted', partitionCount: 4, change: number }),
    inFullRedis: 'goes on',
  }),
  using(flagPause, {
    arrange: async ({ redis, keys }) => (await redis.send('HSET', keys.activity, 'g', '5', 'h', '6'), []),
    call: ({ keys }) => call(flagPause, { ...keys, flag: keys.paused }, { group: 'g', isPaused: 1, change: 2 }),
    reply: () => ['g', 'h'],
    inFullRedis: 'is refused',
    anyType: ['paused'],
  }),
  using(flagPause, {
    as: 'all groups are resumed',
    arrange: async ({ redis, keys }) => {
      await redis.send('SET', keys.pausedAll, '1');
      await redis.send('HSET', keys.activity, 'g', '5', 'h', 'paused');
      return [];
    },
    call: ({ keys }) => call(flagPause, { ...keys, flag: keys.pausedAll }, { group: '', isPaused: 0, change: 2 }),
    reply: () => ['g', 'h'],
    inFullRedis: 'goes on',
    anyType: ['pausedAll'],
  }),
  using(pauseState, {
    arrange: async (place) => {
      await place.topic();
      await place.redis.send('HSET', place.keys.meta, 'paused:h', '1', 'paused:g', '1', 'pauseChange', '2');
      return [];
    },
    call: ({ keys }) => call(pauseState, keys, {}),
    reply: () => ({ all: false, groups: ['g', 'h'], change: 2 }),
    inFullRedis: 'goes on',
  }),
  using(walkStream, {
    arrange: (place) => place.consuming(5),
    call: ({ keys }, ids) => call(walkStream, keys, { from: ids[1]!, to: '+', limit: 2, reverse: 0 }),
    reply: (ids) => ({ count: 2, last: ids[2], more: true }),
    inFullRedis: 'goes on',
  }),
  using(walkStream, {
    as: 'in reverse',
    arrange: (place) => place.consuming(5),
    call: ({ keys }, ids) => call(walkStream, keys, { from: '-', to: ids[2]!, limit: 10, reverse: 1 }),
    reply: (ids) => ({ count: 3, last: ids[0], more: false }),
    inFullRedis: 'goes on',
  }),
  using(resetPosition, {
    arrange: async (place) => {
      const ids = await place.pending(3);
      await place.redis.send('HSET', place.keys.crash, ids[0]!, '6');
      await place.fail(ids[2]!);
      return ids;
    },
    call: ({ keys, token, group }, [id]) => call(resetPosition, keys, { token, group, position: id!, keepRetries: 1 }),
    reply: ([id]) => ({ status: 'ok', position: id, pendingDropped: 2, retriesDropped: 0 }),
    inFullRedis: 'goes on',
  }),
  using(resetPosition, {
    as: 'retries go',
    arrange: async (place) => {
      const ids = await place.pending(3);
      await place.fail(ids[2]!);
      return ids;
    },
    call: ({ keys, token, group }) => call(resetPosition, keys, { token, group, position: 'latest', keepRetries: 0 }),
    reply: (ids) => ({ status: 'ok', position: ids[2], pendingDropped: 2, retriesDropped: 1 }),
    inFullRedis: 'goes on',
  }),
  using(dropRetries, {
    as: 'of the retry stream',
    arrange: async (place) => {
      const ids = await place.pending(2);
      for (const id of ids) await place.fail(id);
      await place.move();
      await place.read('retryStream');
      return ids;
    },
    call: ({ keys, token, group }, [id]) =>
      call(dropRetries, keys, { token, group, position: id!, after: '-', skip: 0, limit: 10, isDry: 0 }),
    reply: () => ({ status: 'ok', dropped: 1, after: null, skip: 0, more: true }),
    inFullRedis: 'goes on',
  }),
  using(dropRetries, {
    as: 'of the bucket',
    arrange: async (place) => {
      const ids = await place.pending(3);
      for (const id of ids) await place.fail(id, 'stream', id, 600_000);
      await place.redis.send('XDEL', place.keys.stream, ids[2]!);
      return ids;
    },
    call: ({ keys, token, group }, [id]) =>
      call(dropRetries, keys, { token, group, position: id!, after: '', skip: 0, limit: 10, isDry: 0 }),
    reply: () => ({ status: 'ok', dropped: 1, after: null, skip: 2, more: false }),
    inFullRedis: 'goes on',
  }),
  using(replayRange, {
    arrange: async (place) => {
      const ids = await place.consuming(3);
      await place.redis.send('DEL', place.keys.lease);
      return ids;
    },
    call: ({ keys, group }, ids) => call(replayRange, keys, { group, from: ids[1]!, to: ids[2]!, limit: 10 }),
    reply: (ids) => ({ status: 'ok', count: 2, last: ids[2], more: false }),
    inFullRedis: 'is refused',
    timesIn: ['retry'],
  }),
  using(replayRange, {
    as: 'of what waits for a retry',
    arrange: async (place) => {
      const ids = await place.pending(2);
      await place.fail(ids[0]!, 'stream', ids[0], 600_000);
      await place.redis.send('DEL', place.keys.lease);
      return ids;
    },
    call: ({ keys, group }) => call(replayRange, keys, { group, from: '-', to: '+', limit: 10 }),
    reply: (ids) => ({ status: 'ok', count: 2, last: ids[1], more: false }),
    inFullRedis: 'is refused',
    timesIn: ['retry'],
  }),
  using(topicCreate, {
    arrange: async () => [],
    call: ({ keys }) => call(topicCreate, keys, { count: 2, incarnation: 'inc', anew: 0 }, ['key-0', 'key-1']),
    reply: () => ({
      created: true,
      partitionCount: 2,
      incarnation: 'inc',
      createdAt: number,
      deletedAt: null,
      isBeingDeleted: false,
    }),
    inFullRedis: 'is refused',
  }),
  using(topicCreate, {
    as: 'in place of a deleted one',
    arrange: async (place) => {
      await place.topic();
      await place.redis.send('HSET', place.keys.meta, 'deletedAt', 7, 'isDeleted', 1);
      return [];
    },
    call: ({ keys }) => call(topicCreate, keys, { count: 2, incarnation: 'new', anew: 1 }, ['key-0', 'key-1']),
    reply: () => ({
      created: true,
      partitionCount: 2,
      incarnation: 'new',
      createdAt: number,
      deletedAt: null,
      isBeingDeleted: false,
    }),
    inFullRedis: 'goes on',
    anyType: ['partitions'],
  }),
  using(setRetention, {
    arrange: async (place) => (await place.topic(), []),
    call: ({ keys }) => call(setRetention, keys, {}, ['maxLen', 5, 'maxAgeMs', '']),
    reply: () => true,
    inFullRedis: 'is refused',
  }),
  using(noteRaise, {
    arrange: async (place) => (await place.topic(), []),
    call: ({ keys }) => call(noteRaise, keys, { count: 6 }),
    reply: () => ({ status: 'noted', partitionCount: 4 }),
    inFullRedis: 'is refused',
  }),
  using(raiseCount, {
    arrange: async (place) => {
      await place.topic();
      await place.redis.send('HSET', place.keys.meta, 'raisingTo', 6);
      return [];
    },
    call: ({ keys }) => call(raiseCount, keys, { count: 6, pauseChange: 0 }, ['key-4', 'key-5']),
    reply: () => ({ status: 'raised', partitionCount: 6 }),
    inFullRedis: 'is refused',
  }),
  using(markDeleted, {
    arrange: async (place) => {
      await place.topic();
      await place.redis.send('HSET', place.keys.meta, 'start:g', 1, 'paused:h', 1);
      return [];
    },
    call: ({ keys }) => call(markDeleted, keys, { incarnation: 'inc' }),
    reply: () => ({ status: 'marked', partitionCount: 4, incarnation: 'inc', groups: ['g', 'h'] }),
    inFullRedis: 'goes on',
  }),
  using(finishDeletion, {
    arrange: async (place) => {
      await place.topic();
      await place.redis.send('HSET', place.keys.meta, 'deletedAt', 7, 'paused', 1);
      await place.redis.send('SADD', place.keys.partitions, 'key-0');
      return [];
    },
    call: ({ keys }) => call(finishDeletion, keys, { incarnation: 'inc' }),
    reply: () => true,
    inFullRedis: 'goes on',
    anyType: ['partitions'],
  }),
  using(stopPartition, {
    arrange: async (place) => {
      const ids = await place.consuming(1);
      await place.redis.send('SET', place.keys.incarnation, '5');
      await place.redis.send('HSET', place.keys.activity, 'h', 6);
      return ids;
    },
    call: ({ keys }) => call(stopPartition, keys, { noted: '5' }),
    reply: () => ({ status: 'stopped', groups: ['h', 'g'] }),
    inFullRedis: 'goes on',
    anyType: ['pausedAll', 'stream'],
  }),
  using(deletePartition, {
    arrange: async (place) => {
      const ids = await place.pending(2);
      await place.fail(ids[0]!, 'stream', ids[0]!, 600_000);
      await place.redis.send('SET', place.keys.incarnation, '5');
      return ids;
    },
    call: ({ keys }) => callMulti(deletePartition, [keys.incarnation, keys.stream, keys.retry, keys.retryItems], ['5']),
    reply: () => true,
    inFullRedis: 'goes on',
    anyType: ['stream', 'retry', 'retryItems'],
  }),
  using(deleteGroup, {
    arrange: async (place) => {
      const ids = await place.pending(2);
      await place.fail(ids[0]!, 'stream', ids[0]!, 600_000);
      await place.redis.send('HSET', place.keys.activity, 'g', 5, 'h', 6);
      return ids;
    },
    call: ({ keys, token, group }) => call(deleteGroup, keys, { token, group }),
    reply: () => ({ status: 'deleted' }),
    inFullRedis: 'goes on',
    anyType: ['retryStream', 'epoch', 'retry', 'retryItems', 'held', 'crash', 'paused'],
  }),
  using(partitionCreate, {
    arrange: async () => [],
    call: ({ keys }) => call(partitionCreate, keys, {}),
    reply: () => true,
    inFullRedis: 'is refused',
  }),
  using(partitionUnmake, {
    arrange: async (place) => (await place.run(call(partitionCreate, place.keys, {})), []),
    call: ({ keys }) => call(partitionUnmake, keys, {}),
    reply: () => true,
    inFullRedis: 'goes on',
    anyType: ['incarnation'],
  }),
];
