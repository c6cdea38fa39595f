import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { asTextOrNull, asTexts } from '../../../libs/redis-streams-mq/src/redis/reply.js';
import { call, callMulti } from '../../../libs/redis-streams-mq/src/redis/script.js';
import {
  deletePartition,
  stopPartition,
} from '../../../libs/redis-streams-mq/src/redis/scripts/partition-deletion.script.js';
import { finishDeletion, markDeleted } from '../../../libs/redis-streams-mq/src/redis/scripts/topic-change.script.js';
import { partitionCreate } from '../../../libs/redis-streams-mq/src/redis/scripts/topic-create.script.js';
import { startRedis, type TestRedis } from '../../support/redis-server.js';
import { dump } from './dump.js';
import { connect, Place } from './place.js';

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

const noteOf = async (): Promise<string> => asTextOrNull(await redis.send('GET', place.keys.incarnation)) ?? '';
const make = (): Promise<boolean> => place.run(call(partitionCreate, place.keys, {}));
const stop = (noted: string) => place.run(call(stopPartition, place.keys, { noted }));

describe('partition-create', () => {
  it('notes another making of the partition each time, and leaves that of a stream that is there', async () => {
    expect(await make()).toBe(true);
    const first = await noteOf();
    expect(first).toMatch(/^\d{16}$/);
    expect([await make(), await noteOf()]).toEqual([false, first]);
    await redis.send('DEL', place.keys.stream);
    expect(await make()).toBe(true);
    expect(await noteOf()).not.toBe(first);
  });

  it('notes one of a stream that has no note', async () => {
    await place.consuming();
    expect([await make(), await noteOf()]).toEqual([false, expect.stringMatching(/^\d{16}$/)]);
  });
});

describe('stop-partition and delete-partition', () => {
  it('leave a partition that was made anew as it is', async () => {
    await make();
    const noted = await noteOf();
    await redis.send('DEL', place.keys.stream);
    await make();
    await place.consuming(2);
    const before = await dump(redis, place.prefix);
    for (const earlier of [noted, '']) {
      expect(await stop(earlier)).toEqual({ status: 'anew' });
      const keys = [place.keys.incarnation, place.keys.stream];
      expect(await place.run(callMulti(deletePartition, keys, [earlier]))).toBe(false);
    }
    expect(await dump(redis, place.prefix)).toEqual(before);
  });

  it('keep what the stream alone knows of the groups, which is deleted first', async () => {
    await make();
    await place.consuming(1);
    await redis.send('HSET', place.keys.commit, 'committed', '5-0');
    expect(await stop(await noteOf())).toEqual({ status: 'stopped', groups: ['committed', place.group] });
    await redis.send('DEL', place.keys.stream);
    expect(await stop(await noteOf())).toEqual({ status: 'stopped', groups: ['committed', place.group] });
    expect(asTexts(await redis.send('HGETALL', place.keys.commit))).toEqual(['committed', '5-0', place.group, '0-0']);
  });

  it('leave no flag where there is no partition: one that is made anew would be paused', async () => {
    expect(await stop('')).toEqual({ status: 'stopped', groups: [] });
    expect(await dump(redis, place.prefix)).toEqual({});
  });
});

describe('mark-deleted and finish-deletion', () => {
  it('touch no other incarnation than the one they are told', async () => {
    await place.topic();
    const mark = (incarnation: string) => place.run(call(markDeleted, place.keys, { incarnation }));
    const finish = (incarnation: string) => place.run(call(finishDeletion, place.keys, { incarnation }));
    expect(await mark('earlier')).toEqual({ status: 'anew' });
    expect(asTextOrNull(await redis.send('HGET', place.keys.meta, 'deletedAt'))).toBeNull();
    expect(await mark('')).toMatchObject({ status: 'marked', incarnation: 'inc' });
    expect(await finish('earlier')).toBe(false);
    expect(await finish('inc')).toBe(true);
    expect(await finish('inc')).toBe(true);
    expect(await mark('inc')).toEqual({ status: 'gone' });
  });
});
