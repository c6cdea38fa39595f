import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { call } from '../../../libs/redis-streams-mq/src/redis/script.js';
import { dlqPage } from '../../../libs/redis-streams-mq/src/redis/scripts/dlq.script.js';
import { replay } from '../../../libs/redis-streams-mq/src/redis/scripts/replay.script.js';
import { moveRetries } from '../../../libs/redis-streams-mq/src/redis/scripts/retry.script.js';
import { moveDelayed, schedule } from '../../../libs/redis-streams-mq/src/redis/scripts/send.script.js';
import { fail } from '../../../libs/redis-streams-mq/src/redis/scripts/settle.script.js';
import { startRedis, type TestRedis } from '../../support/redis-server.js';
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
beforeEach(async () => {
  place = new Place(redis);
  await place.consuming();
});

const everyByte = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
/** Lengths at which msgpack writes a string in another way. */
const lengths = [0, 1, 31, 32, 255, 256, 65_535, 65_536, 300_000];

/** As text, one character a byte: jest is slow at comparing large buffers. */
const asBytes = (field: string | Buffer): string => Buffer.from(field).toString('latin1');

async function fieldsFrom(entries: Promise<readonly { fields: readonly Buffer[] | null }[]>): Promise<unknown[]> {
  return (await entries).map(({ fields }) => fields?.map(asBytes));
}

const payloads: [string, Buffer][] = [
  ['each byte there is', everyByte],
  ...lengths.map((length) => [`${length} bytes`, Buffer.alloc(length, everyByte)] as [string, Buffer]),
];

describe.each(payloads)('%s', (_, payload) => {
  // Neither the names of fields nor those that a script could take for its own are special.
  const fields = [
    'payload',
    payload,
    'key',
    everyByte,
    everyByte,
    payload,
    'fields',
    'f',
    'origin',
    'o',
    'attempt',
    '9',
    '',
    '',
  ];
  const sent = fields.map(asBytes);
  const arrived = (origin: string, attempt: number): unknown[] => [
    'origin',
    origin,
    'history',
    expect.any(String),
    'attempt',
    String(attempt),
    ...sent,
  ];

  it('survives retry, dead letter, replay and the next retry', async () => {
    const origin = await place.send(...fields);
    expect(await fieldsFrom(place.read('stream'))).toEqual([sent]);
    await place.fail(origin);
    await place.move();
    const [first] = await place.read('retryStream');
    expect(first!.fields!.map(asBytes)).toEqual(arrived(origin, 1));
    const letter = await place.dead(first!.id, 'retryStream', origin);
    const range = { low: '-', high: '+', scan: 1, failedFrom: '', failedTo: '' };
    const page = place.run(call(dlqPage, place.keys, { ...range, count: 1, newestFirst: 0, heads: 0 }));
    expect(await fieldsFrom(page.then(({ letters }) => letters))).toEqual([sent]);
    await place.run(call(replay, place.keys, { group: place.group, edits: 0 }, [letter]));
    await place.move();
    const [second] = await place.read('retryStream');
    expect(second!.fields!.map(asBytes)).toEqual(arrived(origin, 0));
    await place.fail(second!.id, 'retryStream', origin);
    await place.move();
    expect(await fieldsFrom(place.read('retryStream'))).toEqual([arrived(origin, 1)]);
  });

  it('survives a delay', async () => {
    await place.run(call(schedule, place.keys, { eventId: 'e1', mode: 'at', when: 1 }, fields));
    await place.run(call(moveDelayed, place.keys, { limit: 1 }));
    expect(await fieldsFrom(place.read('stream'))).toEqual([sent]);
  });
});

it('moves 20,000 due retries in pages of 100', async () => {
  const total = 20_000;
  const ids = Array.from({ length: total }, (_, i) => `1-${i + 1}`);
  await redis.pipeline(ids.map((id) => ['XADD', place.keys.stream, id, 'payload', id]));
  await place.read('stream');
  for (let at = 0; at < total; at += 2_000) {
    const items = ids.slice(at, at + 2_000).flatMap((id) => [id, id, 1, 0, 'Error: boom']);
    await place.run(call(fail, place.from('stream'), place.fence('stream'), items));
  }
  for (let left = total - 100; left >= 0; left -= 100) {
    const { nextDue, ...reply } = await place.run(call(moveRetries, place.keys, { token: place.token, limit: 100 }));
    expect(reply).toEqual({ fenced: false, moved: 100, bad: [] });
    expect(nextDue === null).toBe(left === 0);
  }
  const origins = (await place.entries(place.keys.retryStream)).map(({ fields }) => String(fields![1]));
  expect(new Set(origins).size).toBe(total);
});
