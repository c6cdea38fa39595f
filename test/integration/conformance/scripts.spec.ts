import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { neededCommands, probeOf } from '../../../libs/redis-streams-mq/src/redis/needed-commands.js';
import { replyCode } from '../../../libs/redis-streams-mq/src/redis/redis-errors.js';
import { connectInMemory } from '../../support/in-memory.js';
import { startRedis, type TestRedis } from '../../support/redis-server.js';
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
  return text.replaceAll(/\d{13}-\d+/g, '<id>').replaceAll(/\d{13}/g, '<time>');
}

describe('the in-memory server does with every script what Redis does', () => {
  it.each(scriptCases.map((use) => [use.name, use] as const))('%s', async (_, use) => {
    expect(await run(use, memory)).toEqual(await run(use, redis));
  });
});

describe('the in-memory server has every command the queue needs, and refuses a key of a wrong type', () => {
  const probed = neededCommands.filter(({ probe }) => probe !== undefined);

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
