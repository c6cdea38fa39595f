import type { Redis } from 'ioredis';
import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { neededCommands, probeOf } from '../../../libs/redis-streams-mq/src/redis/needed-commands.js';
import { replyCode } from '../../../libs/redis-streams-mq/src/redis/redis-errors.js';
import { asArray, asText, asTexts } from '../../../libs/redis-streams-mq/src/redis/reply.js';
import { infoFields, serverStates } from '../../../libs/redis-streams-mq/src/redis/server-state.js';
import { connectInMemory } from '../../support/in-memory.js';
import { startRedis, type TestRedis } from '../../support/redis-server.js';
import { waitFor } from '../../support/wait-for.js';
import { dump } from '../scripts/dump.js';
import { connect, Place } from '../scripts/place.js';
import { scriptCases, type ScriptCase } from '../scripts/script-cases.js';

let server: TestRedis;
let redis: Connection;
let memory: Connection;

beforeAll(async () => {
  server = await startRedis();
  redis = await connect(server.url);
  memory = await connectInMemory();
});
afterAll(async () => {
  redis?.destroy();
  await server?.stop();
});

interface Done {
  readonly answers: readonly unknown[];
  readonly data: string;
}

/** Runs a case twice and with the mover after it, and tells what is there then in terms that do not depend on the time. */
async function run(use: ScriptCase, connection: Connection): Promise<Done> {
  const place = new Place(connection);
  const ids = await use.arrange(place);
  const scriptCall = use.call(place, ids);
  const first = await place.run(scriptCall);
  expect(first).toEqual(use.reply(ids, place));
  const answers = [first, await place.run(scriptCall).catch(replyCode)];
  await place.move().catch(replyCode);
  const data = await dump(connection, place.prefix, [
    place.keys.members,
    ...(use.timesIn ?? []).map((name) => place.keys[name]),
  ]);
  return { answers: answers.map((answer) => neutral(place, answer)), data: neutral(place, data) };
}

/** Ids and other times are of the moment, and no two of different streams need to differ. */
function neutral(place: Place, value: unknown): string {
  const [, tag = ''] = /(\{orders:p:\d+\})/.exec(place.keys.stream) ?? [];
  const text = JSON.stringify(value, (_, each: unknown) => (each instanceof Map ? [...each] : each), 1)
    .replaceAll(place.prefix, '<prefix>')
    .replaceAll(tag, '<partition>')
    .replaceAll(/"(pttl|leaseMs|idleMs|bytes|deadLetterBytes)": \d+/g, '"$1": <some>');
  return text.replaceAll(/\d{13}-\d+/g, '<id>').replaceAll(/\d{13,16}/g, '<time>');
}

describe('the in-memory server does with every script what Redis does', () => {
  it.each(scriptCases.map((use) => [use.name, use] as const))('%s', async (_, use) => {
    expect(await run(use, memory)).toEqual(await run(use, redis));
  });
});

describe('the in-memory server has every command the queue sends, and refuses a key of a wrong type', () => {
  // It turns its connection into one that listens alone, and is compared below.
  const probed = neededCommands.filter(({ name }) => name !== 'subscribe');

  it.each(probed.map((command) => [command.name, command] as const))('%s', async (_, command) => {
    const answerOf = async (connection: Connection): Promise<string> => {
      const key = new Place(connection).keys.retry;
      await connection.send('SET', key, 'a string');
      const [name, ...args] = probeOf(command, key);
      try {
        await connection.send(name, ...args);
        return 'answered';
      } catch (error) {
        return replyCode(error);
      }
    };
    expect(await answerOf(memory)).toBe(await answerOf(redis));
  });
});

describe('the in-memory server answers as Redis does', () => {
  it('a subscriber, with what is published', async () => {
    const heardFrom = async (connection: Connection, subscriber: Connection): Promise<unknown[]> => {
      const channel = new Place(connection).prefix;
      const client = subscriber.client as Redis;
      const heard: unknown[] = [];
      client.on('messageBuffer', (on: Buffer, message: Buffer) => heard.push(on.toString() === channel, message));
      const count = await client.subscribe(channel);
      const receivers = await connection.send('PUBLISH', channel, Buffer.from([0, 255, 10]));
      await waitFor(() => heard.length === 2);
      return [count, receivers, ...heard];
    };
    const subscriber = await connect(server.url);
    try {
      expect(await heardFrom(memory, memory)).toEqual(await heardFrom(redis, subscriber));
    } finally {
      subscriber.destroy();
    }
  });

  it('a scan of a set, page by page, with a prefix', async () => {
    const scanned = async (connection: Connection): Promise<string[]> => {
      const { topics } = new Place(connection).keys;
      // More than Redis keeps in one piece, which it would answer at once.
      await connection.send('SADD', topics, ...Array.from({ length: 600 }, (_, n) => `${n % 2 ? 'odd' : 'even'}.${n}`));
      const found = new Set<string>();
      let cursor = '0';
      do {
        const [next, page] = asArray(await connection.send('SSCAN', topics, cursor, 'MATCH', 'odd.*', 'COUNT', 50));
        for (const name of asTexts(page)) found.add(name);
        cursor = asText(next);
      } while (cursor !== '0');
      return [...found].sort();
    };
    const inMemory = await scanned(memory);
    expect(inMemory).toHaveLength(300);
    expect(inMemory).toEqual(await scanned(redis));
  });

  it('what the server says of itself', async () => {
    const said = async (connection: Connection): Promise<unknown> => {
      const [state] = await serverStates(connection);
      const sections = ['server', 'memory'].map(async (name) =>
        infoFields(asText(await connection.send('INFO', name))),
      );
      const [about, memoryOf] = await Promise.all(sections);
      return [
        { ...state, usedMemory: state!.usedMemory > 0 },
        [about!.has('redis_version'), memoryOf!.get('maxmemory_policy'), memoryOf!.has('redis_version')],
      ];
    };
    await memory.send('SET', new Place(memory).keys.topics, 'x');
    expect(await said(memory)).toEqual(await said(redis));
  });
});
