import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'ioredis';
import type { Connection } from '../../../libs/redis-streams-mq/src/redis/connection.js';
import { classifyRedisError, replyCode } from '../../../libs/redis-streams-mq/src/redis/redis-errors.js';
import { call, defineScript, type ScriptCall } from '../../../libs/redis-streams-mq/src/redis/script.js';
import { startCluster, type TestCluster } from '../../support/cluster.js';
import { describeWithServer, startRedis, type TestRedis } from '../../support/redis-server.js';
import { type Dump, dump } from './dump.js';
import { connect, declaredKeys, Place } from './place.js';
import { type ScriptCase, scriptCases } from './script-cases.js';

const SCRIPTS = join(__dirname, '../../../libs/redis-streams-mq/src/redis/scripts');

const eachCase = scriptCases.map((scriptCase) => [scriptCase.name, scriptCase] as const);
const nowhere = new Place(undefined as never);
const eachFenced = eachCase.filter(([, use]) => use.call(nowhere, ['1-0', '1-0']).script.lua.includes("{ 'fenced' }"));

let server: TestRedis;
let redis: Connection;

beforeAll(async () => {
  server = await startRedis();
  redis = await connect(server.url);
});
afterAll(async () => {
  redis?.destroy();
  await server?.stop();
});

interface Arranged {
  readonly place: Place;
  readonly scriptCall: ScriptCall<unknown>;
  /** What the first call must answer. */
  readonly reply: unknown;
  readonly look: () => Promise<Dump>;
}

async function arrange(use: ScriptCase, over: Connection = redis): Promise<Arranged> {
  const place = new Place(over);
  const ids = await use.arrange(place);
  const timesIn = (use.timesIn ?? []).map((name) => place.keys[name]);
  return {
    place,
    scriptCall: use.call(place, ids),
    reply: use.reply(ids, place),
    look: () => dump(over, place.prefix, timesIn),
  };
}

function isFenced(reply: unknown): boolean {
  const { status, fenced } = reply as { status?: string; fenced?: boolean };
  return status === 'fenced' || fenced === true;
}

function errorOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => undefined,
    (error: unknown) => error,
  );
}

it('the table below has every script there is', async () => {
  const names: string[] = [];
  for (const file of readdirSync(SCRIPTS)) {
    const exported = Object.values(
      (await import(join(SCRIPTS, file))) as Record<string, { name: string; lua?: string }>,
    );
    names.push(...exported.filter(({ lua }) => typeof lua === 'string').map(({ name }) => name));
  }
  expect(names.length).toBeGreaterThan(20);
  expect([...new Set(scriptCases.map(({ script }) => script))].sort()).toEqual(names.sort());
});

describe('every script changes nothing the second time', () => {
  it.each(eachCase)('%s', async (_, use) => {
    const { place, scriptCall, reply, look } = await arrange(use);
    expect(await place.run(scriptCall)).toEqual(reply);
    const once = await look();
    await place.run(scriptCall);
    expect(await look()).toEqual(once);
  });
});

describe('every script changes nothing the second time, with the mover in between', () => {
  it.each(eachCase)('%s', async (_, use) => {
    const { place, scriptCall, look } = await arrange(use);
    await place.run(scriptCall);
    await place.move();
    const moved = await look();
    await place.run(scriptCall);
    expect(await look()).toEqual(moved);
  });
});

describe('every script fails whole on a key of a wrong type, and works when it is repaired', () => {
  it.each(eachCase)('%s', async (_, use) => {
    const { length } = declaredKeys((await arrange(use)).scriptCall);
    for (let at = 0; at < length; at++) {
      const { place, scriptCall, reply, look } = await arrange(use);
      const key = declaredKeys(scriptCall)[at]!;
      const repair = await spoil(key);
      const before = await look();
      const outcome = replyCode(await errorOf(place.run(scriptCall)));
      const mayPass = use.anyType?.some((name) => place.keys[name] === key) ?? false;
      expect([key, outcome]).toEqual([key, mayPass ? '' : 'WRONGTYPE']);
      if (mayPass) continue;
      expect(await look()).toEqual(before);
      await repair();
      expect(await place.run(scriptCall)).toEqual(reply);
    }
  });

  /** Puts a list, which no key of ours is, in its place; what it returns undoes that. */
  async function spoil(key: string): Promise<() => Promise<void>> {
    const existed = (await redis.send('EXISTS', key)) === 1;
    if (existed) await redis.send('RENAME', key, `${key}:aside`);
    await redis.send('RPUSH', key, 'a list');
    return async () => {
      await redis.send('DEL', key);
      if (existed) await redis.send('RENAME', `${key}:aside`, key);
    };
  }
});

describe('every fenced script does nothing without the lease', () => {
  it.each(eachFenced)('%s', async (_, use) => {
    const place = new Place(redis);
    const ids = await use.arrange(place);
    const before = await dump(redis, place.prefix);
    // The same instance under an earlier number is another owner, too.
    for (const token of ['i2#7', 'i1#6']) {
      place.token = token;
      expect(isFenced(await place.run(use.call(place, ids)))).toBe(true);
    }
    expect(await dump(redis, place.prefix)).toEqual(before);
    place.token = 'i1#7';
    await redis.send('DEL', place.keys.lease);
    expect(isFenced(await place.run(use.call(place, ids)))).toBe(true);
  });
});

describeWithServer('in a full Redis', () => {
  const fill = (): Promise<unknown> => redis.send('CONFIG', 'SET', 'maxmemory', 1);
  const makeRoom = (): Promise<unknown> => redis.send('CONFIG', 'SET', 'maxmemory', 0);
  const cases = (expected: ScriptCase['inFullRedis']): typeof eachCase =>
    eachCase.filter(([, { inFullRedis }]) => inFullRedis === expected);

  beforeAll(() => redis.send('CONFIG', 'SET', 'maxmemory-policy', 'noeviction'));
  // So that the server is given the source then, too.
  beforeEach(() => redis.send('SCRIPT', 'FLUSH'));
  afterEach(makeRoom);

  it.each(cases('goes on'))('%s goes on', async (_, use) => {
    const { place, scriptCall, reply } = await arrange(use);
    await fill();
    expect(await place.run(scriptCall)).toEqual(reply);
  });

  it.each(cases('is refused'))('%s is refused, changes nothing, and works when there is room', async (_, use) => {
    const { place, scriptCall, reply, look } = await arrange(use);
    const before = await look();
    await fill();
    const error = await errorOf(place.run(scriptCall));
    expect([replyCode(error), classifyRedisError(error)]).toEqual(['OOM', 'transient']);
    expect(await look()).toEqual(before);
    await makeRoom();
    expect(await place.run(scriptCall)).toEqual(reply);
  });
});

describeWithServer('DATA-13 every script declares each key that it touches', () => {
  let restricted: Connection;
  const allow = (...keys: string[]): Promise<unknown> =>
    redis.send('ACL', 'SETUSER', 'restricted', 'on', 'nopass', '+@all', 'resetkeys', ...keys.map((key) => `~${key}`));

  beforeAll(async () => {
    await allow();
    restricted = await connect({
      port: server.port,
      host: new URL(server.url).hostname,
      username: 'restricted',
      password: 'any',
    });
  });
  afterAll(() => restricted?.destroy());

  it('an undeclared key would be noticed', async () => {
    const sly = defineScript({
      name: 'sly',
      keys: ['declared'],
      args: ['other'],
      lua: `return redis.call('GET', other)`,
      decode: (reply) => reply,
    });
    await allow('declared');
    const error = await errorOf(restricted.run(call(sly, { declared: 'declared' }, { other: 'undeclared' })));
    expect([replyCode(error), classifyRedisError(error)]).toEqual(['NOPERM', 'configuration']);
  });

  it.each(eachCase)('%s', async (_, use) => {
    const { scriptCall, reply } = await arrange(use);
    await allow(...declaredKeys(scriptCall));
    expect(await restricted.run(scriptCall)).toEqual(reply);
  });
});

describeWithServer('on a cluster of three masters', () => {
  let cluster: TestCluster;
  let everywhere: Connection;

  beforeAll(async () => {
    cluster = await startCluster();
    everywhere = await connect({ cluster: { nodes: cluster.startupNodes } });
  });
  afterAll(async () => {
    everywhere?.destroy();
    await cluster?.stop();
  });

  it.each(eachCase)('%s has all its keys in one slot, and works', async (_, use) => {
    const { scriptCall, reply, place } = await arrange(use, everywhere);
    expect(new Set(declaredKeys(scriptCall).map((key) => new Command('GET', [key]).getSlot())).size).toBe(1);
    expect(await place.run(scriptCall)).toEqual(reply);
  });
});
