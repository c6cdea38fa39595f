import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { asTexts } from '../../../libs/redis-streams-mq/src/redis/reply.js';
import { call } from '../../../libs/redis-streams-mq/src/redis/script.js';
import { replayRange } from '../../../libs/redis-streams-mq/src/redis/scripts/replay-range.script.js';
import { startRedis, type TestRedis } from '../../support/redis-server.js';
import { waitFor } from '../../support/wait-for.js';
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

describe('replay-range', () => {
  const replay = () => place.run(call(replayRange, place.keys, { group: place.group, from: '-', to: '+', limit: 10 }));
  const retried = async (): Promise<(string[] | undefined)[]> => {
    await waitFor(async () => (await place.move(), (await place.entries(place.keys.retryStream)).length > 0));
    return (await place.entries(place.keys.retryStream)).map(({ fields }) => fields?.map(String));
  };

  it('makes nothing for a group that is gone', async () => {
    await place.consuming(2);
    await redis.send('XGROUP', 'DESTROY', place.keys.stream, place.group);
    const before = await dump(redis, place.prefix);
    expect(await replay()).toEqual({ status: 'no-group' });
    expect(await dump(redis, place.prefix)).toEqual(before);
    await redis.send('HSET', place.keys.commit, place.group, '0-0');
    expect(await replay()).toMatchObject({ status: 'ok', count: 2 });
  });

  it('leaves a message that waits for a retry its fields and its history; it is due now, with no attempts made', async () => {
    const [id] = await place.pending(1);
    await place.fail(id!, 'stream', id, 600_000);
    expect(await replay()).toMatchObject({ count: 1, last: id });
    expect(asTexts(await redis.send('HKEYS', place.keys.retryItems))).toEqual([id]);
    expect(await retried()).toEqual([
      ['origin', id, 'history', expect.stringContaining('boom'), 'attempt', '0', 'payload', 'message 0'],
    ]);
  });

  it('writes an item anew that cannot be read', async () => {
    const [id] = await place.pending(1);
    await redis.send('HSET', place.keys.retryItems, id!, 'nonsense');
    expect(await replay()).toMatchObject({ count: 1 });
    expect(await retried()).toEqual([['origin', id, 'attempt', '0', 'payload', 'message 0']]);
  });
});
