import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { asArray, asNumber, asText, asTextOrNull, asTexts } from '../../../libs/redis-streams-mq/src/redis/reply.js';
import { call, callMulti } from '../../../libs/redis-streams-mq/src/redis/script.js';
import { dlqPage } from '../../../libs/redis-streams-mq/src/redis/scripts/dlq.script.js';
import { dropRetries } from '../../../libs/redis-streams-mq/src/redis/scripts/position.script.js';
import { replay } from '../../../libs/redis-streams-mq/src/redis/scripts/replay.script.js';
import { acquire, holders, release, renew } from '../../../libs/redis-streams-mq/src/redis/scripts/lease.script.js';
import { hold } from '../../../libs/redis-streams-mq/src/redis/scripts/hold.script.js';
import { heartbeat } from '../../../libs/redis-streams-mq/src/redis/scripts/members.script.js';
import {
  dropConsumer,
  dropDeadConsumers,
  heal,
  markCrash,
  page,
  unmarkCrash,
} from '../../../libs/redis-streams-mq/src/redis/scripts/pending.script.js';
import { flagPause } from '../../../libs/redis-streams-mq/src/redis/scripts/pause.script.js';
import { probe } from '../../../libs/redis-streams-mq/src/redis/scripts/probe.script.js';
import { dueTimes, moveRetries } from '../../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { moveDelayed, schedule, sendOnce } from '../../../libs/redis-streams-mq/src/redis/scripts/send.script.js';
import { dead, fail, settle } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { partitionCreate, topicCreate } from '../../../libs/redis-streams-mq/src/redis/scripts/topic-create.script.js';
import { groupStats, partitionStats } from '../../../libs/redis-streams-mq/src/redis/scripts/stats.script.js';
import { trim } from '../../../libs/redis-streams-mq/src/redis/scripts/trim.script.js';
import { startRedis, type TestRedis } from '../../support/redis-server.js';
import { connect, Place, type Source } from './place.js';

let server: TestRedis;
let redis: Connection;
let place: Place;

beforeAll(async () => {
  server = await startRedis();
  redis = await connect(server.url);
});
afterAll(async () => {
  redis?.destroy();
  await server?.stop();
});
beforeEach(() => {
  place = new Place(redis);
});

const sevenDays = 7 * 86_400_000;

function expectBetween(value: number | null, min: number, max: number): void {
  expect(value).toBeGreaterThanOrEqual(min);
  expect(value).toBeLessThanOrEqual(max);
}

async function serverTime(): Promise<number> {
  const [seconds, micros] = asArray(await redis.send('TIME')).map(asNumber);
  return seconds! * 1_000 + Math.floor(micros! / 1_000);
}

const text = async (...command: [string, ...(string | number)[]]): Promise<string | null> =>
  asTextOrNull(await redis.send(...command));
const count = async (...command: [string, ...(string | number)[]]): Promise<number> =>
  asNumber(await redis.send(...command));
const texts = async (...command: [string, ...(string | number)[]]): Promise<string[]> =>
  asTexts(await redis.send(...command));
const idsOf = async (key: string): Promise<string[]> => (await place.entries(key)).map(({ id }) => id);
const fieldsOf = async (key: string): Promise<(string[] | undefined)[]> =>
  (await place.entries(key)).map(({ fields }) => fields?.map(String));

/** The group's pending entries of a source: id, consumer, deliveries. */
async function pendingOf(source: Source): Promise<[string, string, number][]> {
  const reply = asArray(await redis.send('XPENDING', place.keys[source], place.group, '-', '+', 10_000));
  return reply.map(asArray).map(([id, consumer, , deliveries]) => [asText(id), asText(consumer), asNumber(deliveries)]);
}

describe('acquire and release', () => {
  const take = (instance: string, nonce: string) =>
    place.run(call(acquire, place.keys, { instance, nonce, ttl: 60_000, group: 'g', forAdmin: 0 }));
  const give = (token: string, keepLease = 0) => place.run(call(release, place.keys, { token, keepLease }));
  const epochOf = async (...args: Parameters<typeof take>): Promise<number> => {
    const reply = await take(...args);
    return reply.status === 'acquired' ? reply.epoch : -1;
  };

  it('gives a free lease under a number that is no less than the time, and lets it end by itself', async () => {
    const before = await serverTime();
    const epoch = await epochOf('i1', 'n1');
    expect(epoch).toBeGreaterThanOrEqual(before);
    expect(await text('GET', place.keys.lease)).toBe(`i1#${epoch}`);
    expectBetween(await count('PTTL', place.keys.lease), 59_000, 60_000);
    expectBetween(await count('PTTL', place.keys.epoch), sevenDays - 1_000, sevenDays);
  });

  it('takes from no living owner', async () => {
    const epoch = await epochOf('i1', 'n1');
    expect(await take('i2', 'n2')).toEqual({ status: 'held', token: `i1#${epoch}`, pttl: expect.any(Number) });
    // Nor from an earlier ownership of the same instance.
    expect(await take('i1', 'n2')).toMatchObject({ status: 'held', token: `i1#${epoch}` });
    expect(await text('GET', place.keys.lease)).toBe(`i1#${epoch}`);
  });

  it('gives the same number again to a repeated call, prolonged, even when the group is paused meanwhile', async () => {
    const epoch = await epochOf('i1', 'n1');
    await redis.send('PEXPIRE', place.keys.lease, 1_000);
    await redis.send('SET', place.keys.paused, '1');
    expect(await epochOf('i1', 'n1')).toBe(epoch);
    expect(await count('PTTL', place.keys.lease)).toBeGreaterThan(50_000);
  });

  it('gives a greater number each time, even when the last one is ahead of the clock', async () => {
    await redis.send('SET', place.keys.epoch, '9000000000000000#n0#0');
    expect(await epochOf('i1', 'n1')).toBe(9_000_000_000_000_001);
    await give('i1#9000000000000001');
    expect(await epochOf('i1', 'n2')).toBe(9_000_000_000_000_002);
  });

  it('gives nothing while the group is paused', async () => {
    await redis.send('SET', place.keys.paused, '1');
    expect(await take('i1', 'n1')).toEqual({ status: 'paused' });
    expect(await count('EXISTS', place.keys.lease, place.keys.epoch)).toBe(0);
  });

  it('says whether the owner before left in order', async () => {
    const first = await epochOf('i1', 'n1');
    expect(await give(`i1#${first}`)).toBe(true);
    expect(await take('i2', 'n2')).toMatchObject({ status: 'acquired', clean: true });
    expect(await take('i2', 'n2')).toMatchObject({ status: 'acquired', clean: true });
    await redis.send('DEL', place.keys.lease); // As when it ends by itself.
    expect(await take('i1', 'n3')).toMatchObject({ status: 'acquired', clean: false });
    expect(await take('i1', 'n3')).toMatchObject({ status: 'acquired', clean: false });
  });

  it('says for how long nobody owned it, where that is known', async () => {
    const first = await take('i1', 'n1');
    expect(first).toMatchObject({ freeForMs: 'never' });
    await redis.send('DEL', place.keys.lease); // As when it ends by itself.
    const second = await epochOf('i2', 'n2');
    expect(await take('i2', 'n2')).toMatchObject({ freeForMs: 'unknown' });
    await redis.send('SET', place.keys.epoch, `${second}##released@${(await serverTime()) - 5_000}`);
    await redis.send('DEL', place.keys.lease);
    const third = await take('i1', 'n3');
    expect(third).toMatchObject({ status: 'acquired', clean: true, freeForMs: expect.any(Number) });
    expectBetween((third as { freeForMs: number }).freeForMs, 5_000, 20_000);
    // The same answer when it is asked again.
    expect(await take('i1', 'n3')).toEqual(third);
  });

  it('knows of the order even when the epoch key ended under a long ownership', async () => {
    const epoch = await epochOf('i1', 'n1');
    await redis.send('DEL', place.keys.epoch);
    await give(`i1#${epoch}`);
    expect(await take('i2', 'n2')).toMatchObject({ status: 'acquired', clean: true });
  });

  it('keeps the lease for what still runs, and calls its end no death', async () => {
    const epoch = await epochOf('i1', 'n1');
    expect(await give(`i1#${epoch}`, 1)).toBe(true);
    expect(await take('i2', 'n2')).toMatchObject({ status: 'held', token: `i1#${epoch}` });
    await redis.send('DEL', place.keys.lease);
    expect(await take('i2', 'n2')).toMatchObject({ status: 'acquired', clean: true });
  });

  it('releases only the lease it is told', async () => {
    const epoch = await epochOf('i1', 'n1');
    for (const token of [`i1#${epoch - 1}`, `i2#${epoch}`, 'i1', '']) expect(await give(token)).toBe(false);
    expect(await text('GET', place.keys.lease)).toBe(`i1#${epoch}`);
    expect(await text('GET', place.keys.epoch)).toBe(`${epoch}#n1#0@never`);
  });
});

describe('renew and holders', () => {
  it('prolongs each lease that is still ours, and says what became of the others', async () => {
    const named = {
      ours: place,
      other: new Place(redis),
      gone: new Place(redis),
      paused: new Place(redis),
      spoilt: new Place(redis),
    };
    const { ours, other, gone, paused, spoilt } = named;
    const all = Object.values(named);
    for (const each of all) await each.pending(2);
    await redis.send('SET', other.keys.lease, 'i2#7', 'PX', 1_000);
    await redis.send('DEL', gone.keys.lease);
    await redis.send('SET', paused.keys.paused, '1');
    await redis.send('DEL', spoilt.keys.lease);
    await redis.send('RPUSH', spoilt.keys.lease, 'a list');
    const keys = all.flatMap(({ keys: k }) => [k.lease, k.stream, k.retryStream, k.paused, k.pausedAll, k.activity]);
    const args = all.flatMap(({ token, group }) => [token, group]);
    expect(await redis.run(callMulti(renew, keys, [900_000, ...args]))).toEqual([
      { state: 'owned', pending: 2, retryPending: 0 },
      { state: 'other', pending: -1, retryPending: -1 },
      { state: 'missing', pending: -1, retryPending: -1 },
      { state: 'paused', pending: -1, retryPending: -1 },
      { state: 'other', pending: -1, retryPending: -1 },
    ]);
    expect(await count('PTTL', ours.keys.lease)).toBeGreaterThan(800_000);
    expect(await count('PTTL', paused.keys.lease)).toBeGreaterThan(800_000);
    expect(await count('PTTL', other.keys.lease)).toBeLessThanOrEqual(1_000);
    expect(await count('EXISTS', gone.keys.lease)).toBe(0);
  });

  it('says that a group is not there', async () => {
    const { keys, token, group } = place;
    await place.consuming();
    await redis.send('XGROUP', 'DESTROY', keys.stream, group);
    await redis.send('DEL', keys.retryStream);
    const renewed = await place.run(
      callMulti(
        renew,
        [keys.lease, keys.stream, keys.retryStream, keys.paused, keys.pausedAll, keys.activity],
        [60_000, token, group],
      ),
    );
    expect(renewed).toEqual([{ state: 'owned', pending: -1, retryPending: -1 }]);
  });

  it('reads who holds what; a key of a wrong type is held by nobody', async () => {
    const [free, spoilt] = [new Place(redis), new Place(redis)];
    await place.consuming();
    await redis.send('RPUSH', spoilt.keys.lease, 'a list');
    await redis.send('SET', free.keys.pausedAll, '1');
    const leases = [place, free, spoilt].flatMap(({ keys }) => [keys.lease, keys.paused, keys.pausedAll]);
    expect(await redis.run(callMulti(holders, leases, []))).toEqual([
      { token: 'i1#7', pttl: expect.any(Number), paused: false },
      { token: null, pttl: -2, paused: true },
      { token: null, pttl: -1, paused: false },
    ]);
  });
});

describe('heartbeat', () => {
  const beat = (instance: string, about: string, ttl = 60_000) =>
    place.run(call(heartbeat, place.keys, { instance, about, ttl }));

  it('lists the living with what they said last, by the server’s clock', async () => {
    const before = await serverTime();
    await beat('i1', 'old');
    await beat('i2', 'two');
    const { now, members } = await beat('i1', 'new');
    expectBetween(now, before, await serverTime());
    expect(members).toEqual(
      new Map([
        ['i1', 'new'],
        ['i2', 'two'],
      ]),
    );
    expect(await count('ZSCORE', place.keys.members, 'i1')).toBe(now + 60_000);
  });

  it('never lists the dead, however many there are, and forgets them by and by', async () => {
    const dead = Array.from({ length: 1_200 }, (_, i) => `dead-${i}`);
    await redis.send('ZADD', place.keys.members, ...dead.flatMap((id, i) => [i, id]));
    await redis.send('HSET', place.keys.info, ...dead.flatMap((id) => [id, 'topics']));
    for (const left of [701, 201, 1, 1]) {
      expect((await beat('i1', 'topics')).members).toEqual(new Map([['i1', 'topics']]));
      expect([await count('ZCARD', place.keys.members), await count('HLEN', place.keys.info)]).toEqual([left, left]);
    }
  });
});

describe('page', () => {
  const read = (after: string, pageSize: number) =>
    place.run(
      call(page, place.from('stream'), {
        token: place.token,
        group: place.group,
        consumer: 'i1',
        after,
        count: pageSize,
      }),
    );

  it('claims what is pending, whoever had it, oldest first, page by page, and counts no delivery', async () => {
    const ids = await place.consuming(5);
    for (const consumer of ['i3', 'i2', 'i3', 'i2', 'i3']) {
      await redis.send('XREADGROUP', 'GROUP', 'g', consumer, 'COUNT', 1, 'STREAMS', place.keys.stream, '>');
    }
    const seen: string[] = [];
    let after = '-';
    for (;;) {
      const reply = await read(after, 2);
      if (reply.status === 'fenced' || reply.last === null) break;
      expect(reply.entries.length).toBeLessThanOrEqual(2);
      seen.push(...reply.entries.map(({ id }) => id));
      after = `(${reply.last}`;
    }
    expect(seen).toEqual(ids);
    expect(await pendingOf('stream')).toEqual(ids.map((id) => [id, 'i1', 1]));
  });

  it('acknowledges what is no longer in the stream, and says so', async () => {
    const ids = await place.pending(4, 'i0');
    await redis.send('XDEL', place.keys.stream, ids[0]!, ids[2]!);
    const reply = await read('-', 3);
    expect(reply).toMatchObject({ status: 'ok', deleted: [ids[0], ids[2]], last: ids[2] });
    expect((await pendingOf('stream')).map(([id]) => id)).toEqual([ids[1], ids[3]]);
  });

  it('answers an empty page when nothing is pending', async () => {
    await place.consuming(1);
    expect(await read('-', 10)).toEqual({ status: 'ok', entries: [], deleted: [], last: null });
  });
});

describe('heal', () => {
  const mend = (start = '0') => place.run(call(heal, place.keys, { token: place.token, group: place.group, start }));
  const lose = () => redis.send('XGROUP', 'DESTROY', place.keys.stream, place.group);

  it('makes a lost group again where its commit position was', async () => {
    const ids = await place.pending(3);
    await redis.send('HSET', place.keys.commit, place.group, ids[0]!);
    await lose();
    expect(await mend('$')).toEqual({
      status: 'ok',
      created: true,
      retryCreated: false,
      position: ids[0],
      reason: 'commit',
    });
    expect((await place.read('stream')).map(({ id }) => id)).toEqual(ids.slice(1));
  });

  it.each([
    ['0', 3],
    ['$', 0],
  ])('begins a new group at %s', async (start, delivered) => {
    await place.consuming(3);
    await lose();
    expect(await mend(start)).toMatchObject({ created: true, position: start, reason: 'new' });
    expect(await place.read('stream')).toHaveLength(delivered);
  });

  it.each(['99999999999999-0', '99999999999999-18446744073709551615'])(
    'takes the position %s, which is behind the end of the stream, for 0',
    async (position) => {
      await place.consuming(3);
      await lose();
      await redis.send('HSET', place.keys.commit, place.group, position);
      expect(await mend('$')).toMatchObject({ created: true, position: '0', reason: 'rewound' });
      expect(await text('HGET', place.keys.commit, place.group)).toBeNull();
      expect(await place.read('stream')).toHaveLength(3);
    },
  );

  it('takes the very end of the stream as it is', async () => {
    const ids = await place.consuming(3);
    await lose();
    await redis.send('HSET', place.keys.commit, place.group, ids[2]!);
    expect(await mend()).toMatchObject({ position: ids[2], reason: 'commit' });
    expect(await place.read('stream')).toEqual([]);
  });

  it('makes the retry stream’s group alone, too, and leaves a group that is there alone', async () => {
    await place.pending(2);
    await redis.send('DEL', place.keys.retryStream);
    expect(await mend()).toMatchObject({ created: false, retryCreated: true, reason: 'present' });
    expect(await mend()).toMatchObject({ created: false, retryCreated: false, reason: 'present' });
    expect(await pendingOf('stream')).toHaveLength(2);
  });

  it('makes no stream: that of a deleted topic stays away', async () => {
    await place.consuming();
    await redis.send('DEL', place.keys.stream, place.keys.retryStream);
    expect(await mend()).toEqual({ status: 'missing' });
    expect(await count('EXISTS', place.keys.stream, place.keys.retryStream)).toBe(0);
  });
});

describe('mark-crash', () => {
  const mark = (epoch: number, ...ids: string[]) =>
    place.run(call(markCrash, place.keys, { token: place.token, epoch }, ids));

  it('counts the ownerships that came to an entry before this one, each once', async () => {
    const [id, other] = await place.pending(2);
    const deaths = [];
    for (const epoch of [7, 7, 8, 9, 9]) deaths.push(await mark(epoch, id!));
    expect(deaths.map((reply) => reply.status === 'ok' && reply.deaths)).toEqual([0, 0, 1, 2, 2]);
    expect(await mark(9, other!)).toEqual({ status: 'ok', deaths: 0, marked: 1 });
  });

  it('marks together what nobody has marked, up to what somebody has, and that alone', async () => {
    const ids = await place.pending(5);
    await mark(7, ids[2]!);
    expect(await mark(8, ...ids)).toEqual({ status: 'ok', deaths: 0, marked: 2 });
    expect(await mark(8, ...ids)).toEqual({ status: 'ok', deaths: 0, marked: 2 });
    expect(await mark(8, ...ids.slice(2))).toEqual({ status: 'ok', deaths: 1, marked: 1 });
    expect(await redis.send('HMGET', place.keys.crash, ...ids)).toEqual(
      ['8', '8', '7,8', null, null].map((text) => text && Buffer.from(text)),
    );
  });

  it('an ownership that lives on takes its own mark back, and no other', async () => {
    const [id] = await place.pending(1);
    for (const epoch of [7, 8, 9]) await mark(epoch, id!);
    const unmark = (epoch: number) => place.run(call(unmarkCrash, place.keys, { epoch }, [id!]));
    expect([await unmark(8), await unmark(8), await unmark(6)]).toEqual([1, 0, 0]);
    expect(await text('HGET', place.keys.crash, id!)).toBe('7,9');
    expect([await unmark(9), await unmark(7)]).toEqual([1, 1]);
    expect(await count('EXISTS', place.keys.crash)).toBe(0);
  });

  it.each(['settle', 'fail', 'dead'] as const)('the mark goes with the entry when %s takes it away', async (how) => {
    const [id] = await place.pending(1);
    await mark(7, id!);
    if (how === 'settle') await place.run(call(settle, place.from('stream'), place.fence('stream'), [id!]));
    else await place[how](id!);
    expect(await count('HLEN', place.keys.crash)).toBe(0);
  });
});

describe('hold', () => {
  const note = (id: string, attempts: number, delayMs: number) =>
    place.run(call(hold, place.from('stream'), place.fence('stream'), [id, attempts, delayMs]));
  const dueOf = async (id: string): Promise<number> => Number((await text('HGET', place.keys.held, id))!.split(':')[1]);

  it('writes a higher attempt and no other, and answers when the entry is due by the server’s clock', async () => {
    const [id] = await place.pending(1);
    const first = await note(id!, 1, 60_000);
    const due = await dueOf(id!);
    expect(first).toMatchObject({ status: 'ok', due: [due] });
    expect(due - (first as { now: number }).now).toBe(60_000);
    expect(await note(id!, 1, 5)).toMatchObject({ due: [due] });
    expect(await note(id!, 2, 600_000)).toMatchObject({ due: [await dueOf(id!)] });
    expect(await dueOf(id!)).toBeGreaterThan(due);
    expect(await note(id!, 1, 5)).toMatchObject({ due: [await dueOf(id!)] });
    expect(await pendingOf('stream')).toHaveLength(1);
  });

  it('says that an entry is not pending any more, and leaves no note of it', async () => {
    const [id] = await place.pending(1);
    await note(id!, 1, 0);
    await redis.send('XACK', place.keys.stream, place.group, id!);
    expect(await note(id!, 2, 0)).toMatchObject({ due: [null] });
    expect(await count('EXISTS', place.keys.held)).toBe(0);
  });

  it('takes away the mark of a crash: its handler has come to an end', async () => {
    const [id] = await place.pending(1);
    await redis.send('HSET', place.keys.crash, id!, '7');
    await note(id!, 1, 0);
    expect(await count('EXISTS', place.keys.crash)).toBe(0);
  });

  it.each(['settle', 'fail', 'dead'] as const)('the note goes with the entry when %s takes it away', async (how) => {
    const [id, other] = await place.pending(2);
    await note(id!, 1, 0);
    await note(other!, 1, 0);
    if (how === 'settle') await place.run(call(settle, place.from('stream'), place.fence('stream'), [id!]));
    else await place[how](id!);
    expect(asTexts(await redis.send('HKEYS', place.keys.held))).toEqual([other]);
  });

  it('an entry of the retry stream takes no note along that has its id by chance', async () => {
    const [id] = await place.pendingRetry();
    await redis.send('HSET', place.keys.held, id!, '1:9');
    await place.run(call(settle, place.from('retryStream'), place.fence('retryStream'), [id!]));
    expect(await count('HLEN', place.keys.held)).toBe(1);
  });
});

describe('drop-consumer', () => {
  const drop = (consumer: string) =>
    place.run(call(dropConsumer, { source: place.keys.stream }, { group: place.group, consumer }));
  const consumers = async (): Promise<number> =>
    asArray(await redis.send('XINFO', 'CONSUMERS', place.keys.stream, place.group)).length;

  it('removes a consumer that has nothing pending', async () => {
    const [id] = await place.pending(1);
    await redis.send('XACK', place.keys.stream, place.group, id!);
    expect([await drop('i1'), await consumers()]).toEqual([1, 0]);
  });

  it('leaves one that has: its entries would be gone with it', async () => {
    await place.pending(1);
    expect([await drop('i1'), await consumers()]).toEqual([-1, 1]);
    expect(await pendingOf('stream')).toHaveLength(1);
  });

  it('finds nothing to do where there is no group', async () => {
    expect(await drop('i1')).toBe(0);
  });
});

describe('drop-dead-consumers', () => {
  const drop = (limit = 100, token = place.token) =>
    place.run(
      call(
        dropDeadConsumers,
        { source: place.keys.stream, lease: place.keys.lease },
        { token, group: place.group, consumer: 'owner', limit },
      ),
    );
  const consumers = async (): Promise<string[]> =>
    asArray(await redis.send('XINFO', 'CONSUMERS', place.keys.stream, place.group)).map((known) =>
      asText(asArray(known)[1]),
    );
  const add = async (...names: string[]): Promise<void> => {
    for (const name of names) await redis.send('XGROUP', 'CREATECONSUMER', place.keys.stream, place.group, name);
  };

  it('STR-08 removes those that have nothing pending, and neither the owner nor one that has', async () => {
    await place.pending(1);
    await add('owner', 'dead-1', 'dead-2');
    expect(await drop()).toBe(2);
    expect((await consumers()).sort()).toEqual(['i1', 'owner']);
    expect(await pendingOf('stream')).toHaveLength(1);
  });

  it('removes no more than asked for at once', async () => {
    await place.consuming();
    await add('dead-1', 'dead-2', 'dead-3');
    expect([await drop(2), await drop(2), await drop(2)]).toEqual([2, 1, 0]);
  });

  it('removes nothing for one that is no longer the owner', async () => {
    await place.consuming();
    await add('dead-1');
    expect([await drop(100, 'other#1'), await consumers()]).toEqual([-1, ['dead-1']]);
  });
});

describe('trim', () => {
  const trimTo = (
    bounds: Partial<
      Record<'maxLen' | 'maxAgeMs' | 'hardMaxLen' | 'limit' | 'guarded' | 'force' | 'abandonedMs', number>
    > & { beforeId?: string },
  ) =>
    place.run(
      call(trim, place.keys, {
        maxLen: 0,
        maxAgeMs: 0,
        hardMaxLen: 0,
        beforeId: '',
        limit: 100,
        guarded: 1,
        force: 0,
        abandonedMs: 0,
        ...bounds,
      }),
    );
  const add = async (...ids: string[]): Promise<void> => {
    for (const id of ids) await redis.send('XADD', place.keys.stream, id, 'payload', 'p');
  };
  const kept = (): Promise<string[]> => idsOf(place.keys.stream);

  it('keeps what a group has pending, and all behind it', async () => {
    await place.consuming();
    await add('5-1', '5-2', '6-0', '7-0');
    await place.read('stream');
    await redis.send('XACK', place.keys.stream, place.group, '5-1', '6-0', '7-0');
    expect(await trimTo({ maxLen: 1 })).toMatchObject({ byLength: 1, pinnedBy: place.group });
    expect(await kept()).toEqual(['5-2', '6-0', '7-0']);
  });

  it('keeps what a group has not read, however far the others are', async () => {
    await place.consuming();
    await add('5-1', '5-2', '10-0');
    await redis.send('XGROUP', 'CREATE', place.keys.stream, 'slow', '5-1');
    const ids = (await place.read('stream')).map(({ id }) => id);
    await redis.send('XACK', place.keys.stream, place.group, ...ids);
    expect(await trimTo({ maxLen: 1 })).toMatchObject({ byLength: 0, pinnedBy: 'slow' });
    await redis.send('XGROUP', 'SETID', place.keys.stream, 'slow', '10-0');
    expect(await trimTo({ maxLen: 1 })).toMatchObject({ byLength: 2, pinnedBy: '' });
    expect(await kept()).toEqual(['10-0']);
  });

  it('keeps what a group that was lost has not settled, by its commit position', async () => {
    await place.consuming();
    await add('5-1', '5-2', '5-3');
    await place.read('stream');
    await redis.send('XACK', place.keys.stream, place.group, '5-1', '5-2', '5-3');
    await redis.send('HSET', place.keys.commit, 'lost', '5-2');
    expect(await trimTo({ maxLen: 1 })).toMatchObject({ byLength: 1, pinnedBy: 'lost' });
    await redis.send('HSET', place.keys.commit, 'lost', 'nonsense');
    expect(await trimTo({ maxLen: 1 })).toMatchObject({ byLength: 0, pinnedBy: 'lost' });
    expect(await kept()).toEqual(['5-2', '5-3']);
  });

  it('keeps everything until the first group comes', async () => {
    await add('5-1', '5-2', '5-3');
    expect(await trimTo({ maxLen: 1, maxAgeMs: 1 })).toMatchObject({ byLength: 0, byAge: 0 });
    expect(await kept()).toHaveLength(3);
  });

  it('goes by age, too, and an entry of the future never grows old', async () => {
    await place.consuming();
    const at = await serverTime();
    await add(`${at - 90_000}-0`, `${at - 61_000}-0`, `${at - 30_000}-0`, '9999999999999-0');
    const ids = (await place.read('stream')).map(({ id }) => id);
    await redis.send('XACK', place.keys.stream, place.group, ...ids);
    expect(await trimTo({ maxAgeMs: 60_000 })).toMatchObject({ byAge: 2, byLength: 0 });
    expect(await kept()).toEqual(ids.slice(2));
  });

  it('removes what is beyond the hard bound, handled or not, and counts it apart', async () => {
    await place.consuming();
    await add('5-1', '5-2', '5-3', '5-4');
    await redis.send('XREADGROUP', 'GROUP', place.group, 'i1', 'COUNT', 1, 'STREAMS', place.keys.stream, '>');
    await redis.send('XACK', place.keys.stream, place.group, '5-1');
    await redis.send('XGROUP', 'SETID', place.keys.stream, place.group, '5-2');
    expect(await trimTo({ maxLen: 1, hardMaxLen: 2 })).toEqual({
      length: 4,
      byLength: 1,
      byAge: 0,
      byId: 0,
      abandoned: [],
      byHardBound: 1,
      pinnedBy: place.group,
    });
    expect(await kept()).toEqual(['5-3', '5-4']);
  });

  it('removes no more than asked for at once, and everything where nothing holds it', async () => {
    await add('5-1', '5-2', '5-3', '5-4', '5-5');
    expect(await trimTo({ maxLen: 1, limit: 2, guarded: 0 })).toMatchObject({ byLength: 2 });
    expect(await kept()).toEqual(['5-3', '5-4', '5-5']);
    expect(await trimTo({ maxAgeMs: 1, limit: 2, guarded: 0 })).toMatchObject({ byAge: 2 });
    expect(await trimTo({ maxAgeMs: 1, limit: 2, guarded: 0 })).toMatchObject({ byAge: 1 });
    expect(await trimTo({ maxAgeMs: 1, limit: 2, guarded: 0 })).toMatchObject({ byAge: 0, length: 0 });
    expect(await kept()).toEqual([]);
  });

  it('compares ids as numbers, not as text', async () => {
    await place.consuming();
    await add('9-9', '9-10', '10-1');
    await redis.send('XGROUP', 'SETID', place.keys.stream, place.group, '9-10');
    expect(await trimTo({ maxLen: 1 })).toMatchObject({ byLength: 1, pinnedBy: place.group });
    expect(await kept()).toEqual(['9-10', '10-1']);
  });
});

describe('settle', () => {
  const ack = (source: Source, ids: readonly string[]) =>
    place.run(call(settle, place.from(source), place.fence(source), ids));
  const position = (): Promise<string | null> => text('HGET', place.keys.commit, place.group);

  it('acknowledges, and commits what lies before the oldest entry that is still pending', async () => {
    await place.consuming();
    for (const id of ['5-1', '5-7', '6-0', '6-1']) await redis.send('XADD', place.keys.stream, id, 'payload', 'p');
    await place.read('stream');
    expect(await ack('stream', ['5-7'])).toEqual({ status: 'ok', acked: 1, pending: 3 });
    expect(await position()).toBe('5-0');
    await ack('stream', ['5-1']);
    expect(await position()).toBe('5-18446744073709551615');
    await ack('stream', ['6-0']);
    expect(await position()).toBe('6-0');
    expect(await ack('stream', ['6-1'])).toEqual({ status: 'ok', acked: 1, pending: 0 });
    expect(await position()).toBe('6-1');
  });

  it('commits what failed and what is dead, too: their next place has them', async () => {
    await place.consuming();
    for (const id of ['5-1', '5-2', '5-3']) await redis.send('XADD', place.keys.stream, id, 'payload', 'p');
    await place.read('stream');
    await ack('stream', ['5-2']);
    expect(await position()).toBe('5-0');
    await place.fail('5-1');
    expect(await position()).toBe('5-2');
    await place.dead('5-3');
    expect(await position()).toBe('5-3');
  });

  it.each(['settle', 'fail', 'dead'] as const)('does not go back when %s ends with an earlier entry', async (how) => {
    await place.consuming();
    for (const id of ['9-9', '10-1']) await redis.send('XADD', place.keys.stream, id, 'payload', 'p');
    await place.read('stream');
    await ack('stream', ['10-1']);
    if (how === 'settle') await ack('stream', ['9-9']);
    else await place[how]('9-9');
    expect(await position()).toBe('10-1');
  });

  it('commits a little less where a number is too long for Lua', async () => {
    await place.consuming();
    for (const id of ['5-1', '5-18446744073709551000', '6-9'])
      await redis.send('XADD', place.keys.stream, id, 'payload', 'p');
    await place.read('stream');
    await ack('stream', ['5-1']);
    expect(await position()).toBe('5-0');
  });

  it('takes what is not pending any more for settled, and leaves the position', async () => {
    const ids = await place.pending(2);
    await ack('stream', ids);
    await redis.send('HSET', place.keys.commit, place.group, 'kept');
    expect(await ack('stream', ids)).toEqual({ status: 'ok', acked: 0, pending: 0 });
    expect(await position()).toBe('kept');
  });

  it('settles more entries than Lua takes in one call', async () => {
    const ids = Array.from({ length: 12_345 }, (_, i) => `1-${i + 1}`);
    await place.consuming();
    await redis.pipeline(ids.map((id) => ['XADD', place.keys.stream, id, 'payload', 'p']));
    await place.read('stream');
    expect(await ack('stream', ids)).toEqual({ status: 'ok', acked: 12_345, pending: 0 });
    expect(await position()).toBe('1-12345');
  });

  it('deletes what it settles on the retry stream, and commits nothing', async () => {
    const [id] = await place.pendingRetry();
    await redis.send('DEL', place.keys.commit);
    expect(await ack('retryStream', [id!])).toEqual({ status: 'ok', acked: 1, pending: 0 });
    expect(await count('XLEN', place.keys.retryStream)).toBe(0);
    expect(await count('XLEN', place.keys.stream)).toBe(1);
    expect(await position()).toBeNull();
  });

  it('says that the group is lost', async () => {
    const ids = await place.pending(1);
    await redis.send('XGROUP', 'DESTROY', place.keys.stream, place.group);
    await expect(ack('stream', ids)).rejects.toThrow(/^NOGROUP/);
    expect(await position()).toBeNull();
  });
});

describe('fail', () => {
  const failAll = (source: Source, ...items: (string | number)[][]) =>
    place.run(call(fail, place.from(source), place.fence(source), items.flat()));

  it('moves entries into the bucket, due by the server’s clock, and tells the fate of each', async () => {
    const [moved, gone, deleted, kept] = await place.pending(4);
    await redis.send('XACK', place.keys.stream, place.group, gone!);
    await redis.send('XDEL', place.keys.stream, deleted!);
    const reply = await failAll(
      'stream',
      [moved!, moved!, 1, 5_000, 'e'],
      [gone!, gone!, 1, 5_000, 'e'],
      [deleted!, deleted!, 1, 5_000, 'e'],
    );
    expect(reply).toMatchObject({ status: 'ok', pending: 1, results: ['moved', 'gone', 'deleted'] });
    const { now, nextDue } = reply as Extract<typeof reply, { status: 'ok' }>;
    expectBetween(now, (await serverTime()) - 5_000, await serverTime());
    expect(nextDue).toBe(now + 5_000);
    expect(await texts('ZRANGE', place.keys.retry, 0, -1, 'WITHSCORES')).toEqual([moved, String(now + 5_000)]);
    expect(await texts('HKEYS', place.keys.retryItems)).toEqual([moved]);
    expect((await pendingOf('stream')).map(([id]) => id)).toEqual([kept]);
    // The entry itself stays: other groups read it.
    expect(await idsOf(place.keys.stream)).toContain(moved);
  });

  it('takes an entry of the retry stream out of it, and keeps the first id for the item', async () => {
    const [id, origin] = await place.pendingRetry();
    expect(await failAll('retryStream', [id!, origin!, 2, 0, 'e'])).toMatchObject({ pending: 0, results: ['moved'] });
    expect(await count('XLEN', place.keys.retryStream)).toBe(0);
    expect(await texts('ZRANGE', place.keys.retry, 0, -1)).toEqual([origin]);
    await place.move();
    expect(await fieldsOf(place.keys.retryStream)).toEqual([
      ['origin', origin, 'history', expect.any(String), 'attempt', '2', 'payload', 'message 0'],
    ]);
  });

  it('leaves what the bucket has of the message already, and only acknowledges', async () => {
    const [id] = await place.pending(1);
    await redis.send('HSET', place.keys.retryItems, id!, 'an item of a replay');
    await redis.send('ZADD', place.keys.retry, 5, id!);
    expect(await place.fail(id!, 'stream', id, 600_000)).toMatchObject({ pending: 0, nextDue: 5, results: ['moved'] });
    expect(await text('HGET', place.keys.retryItems, id!)).toBe('an item of a replay');
    expect(await text('ZSCORE', place.keys.retry, id!)).toBe('5');
  });

  it('answers when the earliest of the bucket is due', async () => {
    const [first, second] = await place.pending(2);
    const early = await failAll('stream', [first!, first!, 1, 1_000, 'e']);
    const late = await failAll('stream', [second!, second!, 1, 60_000, 'e']);
    expect(late).toMatchObject({ nextDue: (early as { nextDue: number }).nextDue });
  });
});

const lettersOf = async (low = '-', high = '+', count = 10, newestFirst = 0) => {
  const range = { low, high, scan: 100, failedFrom: '', failedTo: '' };
  return (await place.run(call(dlqPage, place.keys, { ...range, count, newestFirst, heads: 0 }))).letters;
};

describe('dead', () => {
  const kill = (source: Source, id: string, ...metadata: string[]) =>
    place.run(call(dead, place.from(source), { ...place.fence(source), id }, metadata));

  it('moves an entry into the dead letters, with what is said of it', async () => {
    const before = await serverTime();
    const [id] = await place.pending(1);
    const reply = await kill('stream', id!, 'group', 'g', 'reason', 'exhausted');
    expect(reply).toEqual({ status: 'dead', pending: 0, dlqId: expect.any(String) });
    const [letter] = await lettersOf();
    expect(letter).toMatchObject({
      id: (reply as { dlqId: string }).dlqId,
      fields: [Buffer.from('payload'), Buffer.from('message 0')],
    });
    expect([...letter!.metadata.keys()]).toEqual(['group', 'reason', 'failedAt']);
    expectBetween(Number(letter!.metadata.get('failedAt')), before, await serverTime());
    expect(await idsOf(place.keys.stream)).toEqual([id]);
  });

  it('takes an entry of the retry stream out of it, without what the mover added', async () => {
    const [id] = await place.pendingRetry();
    expect(await kill('retryStream', id!)).toMatchObject({ status: 'dead', pending: 0 });
    expect(await count('XLEN', place.keys.retryStream)).toBe(0);
    const [letter] = await lettersOf();
    expect(letter!.fields!.map(String)).toEqual(['payload', 'message 0']);
  });

  it('writes nothing for what someone else settled, and acknowledges what was deleted', async () => {
    const [gone, deleted] = await place.pending(2);
    await redis.send('XACK', place.keys.stream, place.group, gone!);
    await redis.send('XDEL', place.keys.stream, deleted!);
    expect(await kill('stream', gone!)).toEqual({ status: 'gone', pending: 1, dlqId: null });
    expect(await kill('stream', deleted!)).toEqual({ status: 'deleted', pending: 0, dlqId: null });
    expect(await count('EXISTS', place.keys.dlq)).toBe(0);
  });
});

describe('replay and dlq-page', () => {
  const again = async (id: string, group = place.group): Promise<string> => {
    const reply = await place.run(call(replay, place.keys, { group, edits: 0 }, [id]));
    return reply.status === 'ok' ? reply.results.join() : reply.status;
  };

  it('what was replayed is dropped neither from the bucket nor from the retry stream, where its message is read again', async () => {
    const [id] = await place.pending(1);
    expect(await again(await place.dead(id!))).toBe('replayed');
    const drop = (after: string) => {
      const args = { token: place.token, group: place.group, position: '0-0', after, skip: 0, limit: 10, isDry: 0 };
      return place.run(call(dropRetries, place.keys, args));
    };
    expect(await drop('')).toMatchObject({ dropped: 0, skip: 1 });
    await place.move();
    expect(await drop('-')).toMatchObject({ dropped: 0 });
    expect(await place.entries(place.keys.retryStream)).toHaveLength(1);
  });

  it('puts a dead letter back before its group, due now, with no attempts made', async () => {
    const [id, origin] = await place.pendingRetry();
    const letter = await place.dead(id!, 'retryStream', origin);
    expect(await again(letter)).toBe('replayed');
    expect(await lettersOf()).toEqual([]);
    await place.move();
    expect(await fieldsOf(place.keys.retryStream)).toEqual([
      ['origin', origin, 'history', expect.any(String), 'attempt', '0', 'payload', 'message 0'],
    ]);
  });

  it('of two calls one puts it back', async () => {
    const [id] = await place.pending(1);
    const letter = await place.dead(id!);
    const outcomes = await Promise.all([again(letter), again(letter)]);
    expect(outcomes.sort()).toEqual(['gone', 'replayed']);
    expect(await count('ZCARD', place.keys.retry)).toBe(1);
  });

  it('leaves the letter of another group alone', async () => {
    const [id] = await place.pending(1);
    const letter = await place.dead(id!);
    expect(await again(letter, 'other')).toBe('no-group');
    await redis.send('HSET', place.keys.commit, 'other', '1-1');
    expect(await again(letter, 'other')).toBe('other-group');
    expect(await lettersOf()).toHaveLength(1);
    expect(await count('EXISTS', place.keys.retry, place.keys.retryItems)).toBe(0);
  });

  const packed = (lua: string): Promise<Buffer> =>
    redis.send('EVAL', `return cmsgpack.pack(${lua})`, 0) as Promise<Buffer>;
  it.each([
    ['no packed fields', undefined],
    ['bytes that are no msgpack', `'\\193'`],
    ['something else than a list', `'text'`],
    ['a name without a value', `{ 'payload' }`],
    ['a value that is no string', `{ 'payload', 1 }`],
    ['nested values', `{ 'payload', {} }`],
    ['more fields than one call takes', `(function() local t = {} for i = 1, 1002 do t[i] = 'x' end return t end)()`],
  ])('leaves a letter with %s where it is', async (what, lua) => {
    const bytes =
      lua === undefined ? [] : ['fields', what.includes('no msgpack') ? Buffer.from([0xc1]) : await packed(lua)];
    const id = asText(
      await redis.send('XADD', place.keys.dlq, '*', 'originalMessageId', '1-1', 'group', 'g', ...bytes),
    );
    await redis.send('HSET', place.keys.commit, place.group, '0-0');
    expect(await again(id)).toBe('unreadable');
    expect((await lettersOf()).map((letter) => letter.id)).toEqual([id]);
    expect(await count('EXISTS', place.keys.retry, place.keys.retryItems)).toBe(0);
  });

  it('reads letters in either direction, between two ids, at most as many as asked for', async () => {
    const ids = [];
    for (const id of await place.pending(4)) ids.push(await place.dead(id));
    const read = async (...args: Parameters<typeof lettersOf>) => (await lettersOf(...args)).map(({ id }) => id);
    expect(await read('-', '+', 3)).toEqual(ids.slice(0, 3));
    expect(await read('-', '+', 3, 1)).toEqual(ids.slice(1).reverse());
    expect(await read(`(${ids[0]}`, ids[2])).toEqual(ids.slice(1, 3));
  });

  it('reads a letter whose fields are damaged, without them', async () => {
    await redis.send('XADD', place.keys.dlq, '*', 'group', 'g', 'fields', Buffer.from([0xc1]));
    expect(await lettersOf()).toMatchObject([{ metadata: new Map([['group', 'g']]), fields: null }]);
  });
});

describe('move-retries', () => {
  const move = (limit = 10) => place.run(call(moveRetries, place.keys, { token: place.token, limit }));
  /** An item as some other program may have left it. */
  const foreign = (item: string, lua: string) =>
    redis.send(
      'EVAL',
      `redis.call('HSET', KEYS[1], ARGV[1], ${lua}) redis.call('ZADD', KEYS[2], 1, ARGV[1])`,
      2,
      place.keys.retryItems,
      place.keys.retry,
      item,
    );

  it('moves what is due, earliest first, at most as many as asked for, and says when the next is', async () => {
    const ids = await place.pending(4);
    await place.fail(ids[1]!);
    await place.fail(ids[0]!);
    await place.fail(ids[2]!);
    await place.fail(ids[3]!, 'stream', ids[3], 60_000);
    await redis.send('ZADD', place.keys.retry, 'XX', 3, ids[0]!, 1, ids[1]!, 2, ids[2]!);
    expect(await move(2)).toEqual({ fenced: false, moved: 2, nextDue: 3, bad: [] });
    expect(await move(2)).toMatchObject({ moved: 1, nextDue: Number(await text('ZSCORE', place.keys.retry, ids[3]!)) });
    expect(await move(2)).toMatchObject({ moved: 0 });
    const origins = (await fieldsOf(place.keys.retryStream)).map((fields) => fields![1]);
    expect(origins).toEqual([ids[1], ids[2], ids[0]]);
    expect(await texts('HKEYS', place.keys.retryItems)).toEqual([ids[3]]);
  });

  it.each([
    ['no msgpack', `'\\193'`],
    ['something else than an envelope', `cmsgpack.pack(5)`],
    ['an envelope without attempts', `cmsgpack.pack({ false, '', { 'payload', 'p' } })`],
    ['an envelope without fields', `cmsgpack.pack({ '1', '' })`],
    ['a name without a value', `cmsgpack.pack({ '1', '', { 'payload' } })`],
    ['a value that is no string', `cmsgpack.pack({ '1', '', { 'payload', true } })`],
    ['nested values', `cmsgpack.pack({ '1', '', { 'payload', {} } })`],
    [
      'more fields than one call takes',
      `(function() local t = {} for i = 1, 1002 do t[i] = 'x' end return cmsgpack.pack({ '1', '', t }) end)()`,
    ],
  ])('sets an item with %s aside for an hour; it holds up nothing', async (_, lua) => {
    const ids = await place.pending(2);
    await foreign('0-1', lua);
    for (const id of ids) await place.fail(id);
    const reply = await move();
    expect(reply).toMatchObject({ moved: 2, bad: ['0-1'] });
    expectBetween(reply.nextDue, (await serverTime()) + 3_590_000, (await serverTime()) + 3_600_000);
    expect(await texts('HKEYS', place.keys.retryItems)).toEqual(['0-1']);
    expect(await move()).toMatchObject({ moved: 0, bad: [] });
  });

  it('drops an id whose item is gone, and says so', async () => {
    const [id] = await place.pending(1);
    await place.fail(id!);
    await redis.send('ZADD', place.keys.retry, 1, '0-1');
    expect(await move()).toEqual({ fenced: false, moved: 1, nextDue: null, bad: ['0-1'] });
  });
});

describe('due-times', () => {
  it('reads the earliest due time of each bucket; a key of a wrong type has none', async () => {
    const [full, empty, spoilt] = [place, new Place(redis), new Place(redis)];
    await redis.send('ZADD', full.keys.retry, 1_764_547_200_123, 'a', 1_764_547_200_124, 'b');
    await redis.send('SET', spoilt.keys.retry, 'text');
    const before = await serverTime();
    const { now, due } = await redis.run(
      callMulti(
        dueTimes,
        [spoilt, full, empty].map(({ keys }) => keys.retry),
        [],
      ),
    );
    expectBetween(now, before, await serverTime());
    expect(due).toEqual([null, 1_764_547_200_123, null]);
  });
});

describe('send-once', () => {
  const send = (incarnation = 'inc', payload = 'p') =>
    place.run(call(sendOnce, place.keys, { incarnation, ttl: 60_000 }, ['payload', payload]));

  it('adds a message once; a later one with the same id is told the first one’s', async () => {
    await place.consuming();
    const first = await send();
    expect(first).toEqual({ status: 'stored', id: (await idsOf(place.keys.stream))[0], duplicate: false });
    expect(await send('inc', 'other')).toEqual({ ...first, duplicate: true });
    expect(await fieldsOf(place.keys.stream)).toEqual([['payload', 'p']]);
    expectBetween(await count('PTTL', place.keys.dedup), 59_000, 60_000);
  });

  it('adds it again to a topic that was made anew', async () => {
    await place.consuming();
    await send('inc');
    await redis.send('DEL', place.keys.stream);
    await place.run(call(partitionCreate, place.keys, {}));
    expect(await send('anew')).toMatchObject({ status: 'stored', duplicate: false });
    expect(await count('XLEN', place.keys.stream)).toBe(1);
  });

  it('remembers nothing when the topic is gone', async () => {
    expect(await send()).toEqual({ status: 'gone' });
    expect(await count('EXISTS', place.keys.stream, place.keys.dedup)).toBe(0);
  });
});

describe('schedule and move-delayed', () => {
  const plan = (eventId: string, mode: 'delay' | 'at', when: number) =>
    place.run(call(schedule, place.keys, { eventId, mode, when }, ['payload', eventId]));
  const move = (limit = 10) => place.run(call(moveDelayed, place.keys, { limit }));
  const payloads = async (): Promise<(string | undefined)[]> =>
    (await fieldsOf(place.keys.stream)).map((fields) => fields![1]);

  it('counts a delay from the server’s now, and takes a point in time as it is', async () => {
    await place.consuming();
    const before = await serverTime();
    const delayed = await plan('e1', 'delay', 60_000);
    expectBetween((delayed as { due: number }).due, before + 60_000, (await serverTime()) + 60_000);
    expect(await plan('e2', 'at', 99_999_999_999_999)).toEqual({
      status: 'scheduled',
      due: 99_999_999_999_999,
      earliest: false,
      duplicate: false,
    });
    expect(await plan('e3', 'at', 1)).toEqual({ status: 'scheduled', due: 1, earliest: true, duplicate: false });
  });

  it('keeps one message an event id', async () => {
    await place.consuming();
    await plan('e1', 'at', 1);
    expect(await plan('e1', 'at', 5)).toMatchObject({ status: 'scheduled', duplicate: true });
    expect(await move()).toMatchObject({ moved: 1 });
    expect(await payloads()).toEqual(['e1']);
  });

  it('stores it again once it has been moved: that duplicate has the same event id', async () => {
    await place.consuming();
    await plan('e1', 'at', 1);
    await move();
    expect(await plan('e1', 'at', 1)).toMatchObject({ duplicate: false });
    await move();
    expect(await payloads()).toEqual(['e1', 'e1']);
  });

  it('moves what is due in order of due time, then of sending, at most as many as asked for', async () => {
    await place.consuming();
    for (let n = 1; n <= 12; n++) await plan(`e${n}`, 'at', 20);
    await plan('early', 'at', 10);
    const { due } = (await plan('late', 'delay', 60_000)) as { due: number };
    expect(await move(5)).toEqual({ fenced: false, moved: 5, nextDue: 20, bad: [] });
    expect(await move(100)).toEqual({ fenced: false, moved: 8, nextDue: due, bad: [] });
    expect(await payloads()).toEqual(['early', ...Array.from({ length: 12 }, (_, i) => `e${i + 1}`)]);
    expect(await texts('HKEYS', place.keys.delayedItems)).toEqual(['late']);
  });

  it('schedules nothing for a topic that is gone, and moves nothing into it', async () => {
    expect(await plan('e1', 'at', 1)).toEqual({ status: 'gone' });
    expect(await count('EXISTS', place.keys.delayed, place.keys.delayedItems, place.keys.delayedSeq)).toBe(0);
    await place.consuming();
    await plan('e1', 'at', 1);
    await redis.send('DEL', place.keys.stream);
    expect(await move()).toEqual({ fenced: false, moved: 0, nextDue: 1, bad: [] });
    await place.run(call(partitionCreate, place.keys, {}));
    expect(await move()).toMatchObject({ moved: 1 });
  });

  it.each([
    ['no msgpack', `'\\193'`],
    ['no list', `cmsgpack.pack('text')`],
    ['no fields', `cmsgpack.pack({})`],
    ['a name without a value', `cmsgpack.pack({ 'payload' })`],
    ['a value that is no string', `cmsgpack.pack({ 'payload', 1 })`],
    [
      'more fields than one call takes',
      `(function() local t = {} for i = 1, 9000 do t[i] = 'x' end return cmsgpack.pack(t) end)()`,
    ],
  ])('sets an item with %s aside for an hour; it holds up nothing', async (_, lua) => {
    await place.consuming();
    const member = '0000000000000000:bad';
    await redis.send(
      'EVAL',
      `redis.call('HSET', KEYS[1], 'bad', ${lua}) redis.call('ZADD', KEYS[2], 1, ARGV[1])`,
      2,
      place.keys.delayedItems,
      place.keys.delayed,
      member,
    );
    await plan('e1', 'at', 1);
    expect(await move()).toMatchObject({ moved: 1, bad: [member] });
    expect(await move()).toMatchObject({ moved: 0, bad: [] });
    expect(await texts('HKEYS', place.keys.delayedItems)).toEqual(['bad']);
  });

  it('drops a member whose item is gone, and says so', async () => {
    await place.consuming();
    await redis.send('ZADD', place.keys.delayed, 1, '0000000000000001:gone');
    await plan('e1', 'at', 1);
    expect(await move()).toEqual({ fenced: false, moved: 1, nextDue: null, bad: ['0000000000000001:gone'] });
  });
});

describe('topic-create, partition-create and probe', () => {
  const create = (partitions: number, incarnation: string) =>
    place.run(
      call(
        topicCreate,
        place.keys,
        { count: partitions, incarnation, anew: 0 },
        Array.from({ length: partitions }, (_, i) => `key-${i}`),
      ),
    );

  it('writes a topic’s meta and its partitions once; a later call is told what is there', async () => {
    const before = await serverTime();
    const first = await create(2_500, 'first');
    expect(first).toMatchObject({ created: true, partitionCount: 2_500, incarnation: 'first', deletedAt: null });
    expectBetween(first.createdAt, before, await serverTime());
    expect(await create(3, 'second')).toEqual({ ...first, created: false });
    expect(await count('SCARD', place.keys.partitions)).toBe(2_500);
    expect(await texts('HGETALL', place.keys.meta)).toEqual([
      'partitionCount',
      '2500',
      'incarnation',
      'first',
      'createdAt',
      String(first.createdAt),
      'layoutVersion',
      '1',
    ]);
  });

  it('tells that a topic was deleted', async () => {
    await create(1, 'first');
    await redis.send('HSET', place.keys.meta, 'deletedAt', 1_764_547_200_123);
    expect(await create(1, 'second')).toMatchObject({
      created: false,
      incarnation: 'first',
      deletedAt: 1_764_547_200_123,
    });
  });

  it('makes an empty stream without a group, and leaves one that is there alone', async () => {
    const make = () => place.run(call(partitionCreate, place.keys, {}));
    expect(await make()).toBe(true);
    expect(await text('TYPE', place.keys.stream)).toBe('stream');
    expect([await count('XLEN', place.keys.stream), await redis.send('XINFO', 'GROUPS', place.keys.stream)]).toEqual([
      0,
      [],
    ]);
    const id = await place.send('payload', 'p');
    expect(await make()).toBe(false);
    expect(await idsOf(place.keys.stream)).toEqual([id]);
  });

  it('counts the topics without adding one', async () => {
    const ask = () => place.run(call(probe, place.keys, {}));
    expect(await ask()).toBe(0);
    expect(await count('EXISTS', place.keys.topics)).toBe(0);
    await redis.send('SADD', place.keys.topics, 'a', 'b', 'c');
    expect(await ask()).toBe(3);
    expect((await texts('SMEMBERS', place.keys.topics)).sort()).toEqual(['a', 'b', 'c']);
  });
});

describe('group-stats and partition-stats', () => {
  const groupOf = (countLimit = 100) => place.run(call(groupStats, place.keys, { group: place.group, countLimit }));
  const partitionOf = (countLimit = 100) => place.run(call(partitionStats, place.keys, { samples: 0, countLimit }));
  const trimmed = (maxLen: number) => redis.send('XTRIM', place.keys.stream, 'MAXLEN', maxLen);
  const readOne = () =>
    redis.send('XREADGROUP', 'GROUP', place.group, 'i1', 'COUNT', 1, 'STREAMS', place.keys.stream, '>');

  it('counts what a group has not been given, also where Redis is wrong after unread entries were trimmed', async () => {
    await place.consuming(10);
    await readOne();
    await trimmed(5);
    expect((await groupOf()).undelivered).toEqual({ count: 5, certainty: 'exact' });
    await readOne();
    for (const stats of [await groupOf(), (await partitionOf()).groups[0]!]) {
      expect(stats.undelivered).toEqual({ count: 4, certainty: 'exact' });
    }
    await place.read('stream');
    expect(await groupOf()).toMatchObject({ undelivered: { count: 0, certainty: 'exact' }, pending: 6 });
  });

  it('says that it counted no further than its bound when Redis cannot tell either', async () => {
    const ids = await place.consuming(30);
    await redis.send('XDEL', place.keys.stream, ids[20]!);
    await readOne();
    expect((await groupOf(5)).undelivered).toEqual({ count: 5, certainty: 'at-least' });
    expect((await partitionOf(5)).groups[0]!.undelivered).toEqual({ count: 5, certainty: 'at-least' });
    expect((await groupOf(29)).undelivered).toEqual({ count: 28, certainty: 'exact' });
    expect((await groupOf(0)).undelivered).toEqual({ count: 1, certainty: 'at-least' });
  });

  it('ends counting after a megabyte of payloads', async () => {
    const ids = await place.consuming(2);
    await readOne();
    await readOne();
    for (let n = 0; n < 20; n++) await place.send('payload', Buffer.alloc(300_000, 'x'));
    await redis.send('XGROUP', 'SETID', place.keys.stream, place.group, ids[1]!);
    const { count } = (await groupOf(1_000)).undelivered;
    expect(count).toBeGreaterThanOrEqual(4);
    expect(count).toBeLessThanOrEqual(20);
  });

  it('finds the oldest message that is not settled wherever it is', async () => {
    const ids = await place.pending(4);
    const acknowledge = (id: string) => redis.send('XACK', place.keys.stream, place.group, id);
    await place.fail(ids[0]!, 'stream', ids[0], 600_000);
    expect(await groupOf()).toMatchObject({ bucket: 1, pending: 3, oldestId: ids[0], isOldestExact: true });
    await place.fail(ids[1]!);
    await place.move();
    await redis.send('DEL', place.keys.retry);
    expect(await groupOf()).toMatchObject({ retryLength: 1, retryPending: 0, oldestId: ids[1] });
    await redis.send('XTRIM', place.keys.retryStream, 'MAXLEN', 0);
    expect(await groupOf()).toMatchObject({ retryLength: 0, oldestId: ids[2] });
    await acknowledge(ids[2]!);
    await acknowledge(ids[3]!);
    expect(await groupOf()).toMatchObject({ oldestId: null });
    const unread = await place.send('payload', 'p');
    expect(await groupOf()).toMatchObject({ oldestId: unread });
  });

  it('looks at no more than 500 waiting retries for the oldest, and says so', async () => {
    await place.consuming();
    await redis.send('ZADD', place.keys.retry, ...Array.from({ length: 501 }, (_, i) => [i, `${900 - i}-0`]).flat());
    expect(await groupOf()).toMatchObject({ bucket: 501, oldestId: '401-0', isOldestExact: false, nextDue: 0 });
  });

  it('a group of which only the commit position is left is behind by what comes after that', async () => {
    const ids = await place.pending(3);
    await redis.send('XGROUP', 'DESTROY', place.keys.stream, place.group);
    expect(await groupOf()).toMatchObject({ isPresent: false, position: null, undelivered: { count: 0 } });
    expect((await partitionOf()).groups).toEqual([]);
    await redis.send('HSET', place.keys.commit, place.group, ids[0]!);
    const behind = { isPresent: false, position: ids[0], undelivered: { count: 2, certainty: 'exact' } };
    expect(await groupOf()).toMatchObject(behind);
    expect((await partitionOf()).groups).toMatchObject([{ group: place.group, ...behind }]);
    await redis.send('HSET', place.keys.commit, place.group, 'nonsense');
    expect(await groupOf()).toMatchObject({ position: '0-0', undelivered: { count: 3 } });
  });

  it('a key of a wrong type is named, and what the others say stands', async () => {
    await place.pending(2);
    for (const name of ['retry', 'dlq', 'held'] as const) await redis.send('SET', place.keys[name], 'a string');
    expect(await groupOf()).toMatchObject({ pending: 2, bucket: 0, unreadable: ['retry', 'held'] });
    expect(await partitionOf()).toMatchObject({ length: 2, bytes: null, unreadable: ['dlq'] });
    await redis.send('DEL', place.keys.stream);
    await redis.send('SET', place.keys.stream, 'a string');
    expect(await groupOf()).toMatchObject({ pending: 0, unreadable: ['stream', 'retry', 'held'] });
  });

  it('nothing is nothing', async () => {
    expect(await groupOf()).toMatchObject({ token: null, isPresent: false, position: null, oldestId: null });
    expect(await partitionOf()).toMatchObject({ length: 0, firstId: null, lastGeneratedId: null, groups: [] });
    await place.consuming();
    expect(await groupOf()).toMatchObject({ isPresent: true, position: '0-0', undelivered: { count: 0 } });
  });
});

describe('flag-pause', () => {
  it.each([
    ['a group', 'g', 'paused'],
    ['all groups', '', 'pausedAll'],
  ] as const)('a pause or resumption of %s that is late does nothing', async (_, group, key) => {
    const flag = (isPaused: number, change: number) =>
      place.run(call(flagPause, { ...place.keys, flag: place.keys[key] }, { group, isPaused, change }));
    const isPaused = (): Promise<number> => count('EXISTS', place.keys[key]);
    await flag(1, 5);
    expect(await isPaused()).toBe(1);
    await flag(0, 6);
    await flag(1, 5);
    expect(await isPaused()).toBe(0);
    await flag(1, 9);
    await flag(0, 6);
    expect(await isPaused()).toBe(1);
    // Said by the meta as of a change that was another flag's.
    await flag(0, 9);
    expect(await isPaused()).toBe(0);
  });
});
