import { Redis } from 'ioredis';
import { needed, neededCommands, type Use } from '../../libs/redis-streams-mq/src/redis/needed-commands.js';
import { describeWithServer } from '../support/redis-server.js';
import { record, useMq } from '../support/mq-fixture.js';
import { startCluster, type TestCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

/** A user who may do everything but what `rules` take away. */
async function userWith(client: Redis, ...rules: string[]): Promise<{ username: string; password: string }> {
  const username = uniqueName('user');
  await client.call('ACL', 'SETUSER', username, 'on', '>secret', '+@all', ...rules);
  return { username, password: 'secret' };
}

async function refusalOf(boot: Promise<unknown>): Promise<{ code?: string; missing?: unknown }> {
  const error: unknown = await boot.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error === undefined) return {};
  const { code, context } = error as { code?: string; context?: { missing?: unknown } };
  return { code, missing: context?.missing };
}

describe('the boot looks at what its user may do', () => {
  const mq = useMq();
  const keys = ['~*', '&*'];

  it.each(needed('consume').map(({ name }) => name))('and names %s when it is missing', async (name) => {
    const user = await userWith(mq.client, ...keys, `-${name}`);
    expect(await refusalOf(mq.open({ redis: { port: mq.redis.port, ...user } }))).toEqual({
      code: 'MQ_REDIS_NOT_ALLOWED',
      missing: [`the right to run ${name}`],
    });
  });

  it('DATA-11 and lists all that is missing of scripting and streams at once', async () => {
    const user = await userWith(mq.client, ...keys, '-@scripting', '-@stream');
    const { missing } = await refusalOf(mq.open({ redis: { port: mq.redis.port, ...user } }));
    const expected = needed('consume').filter(({ name }) => /^(eval|x)/.test(name));
    expect(missing).toEqual(expected.map(({ name }) => `the right to run ${name}`));
  });

  it.each([
    ['keyPrefix', '~elsewhere:*', 'test:topic:*'],
    ['streamKeyPrefix', 'test:mq:*', '~elsewhere:*'],
  ])('and at the keys with %s', async (prefix, ...patterns) => {
    const user = await userWith(
      mq.client,
      'resetkeys',
      ...patterns.map((pattern) => pattern.replace(/^test/, '~test')),
      '&*',
    );
    const { missing } = await refusalOf(
      mq.open({ redis: { port: mq.redis.port, ...user }, keyPrefix: 'test:mq', streamKeyPrefix: 'test:topic' }),
    );
    expect(missing).toEqual([expect.stringMatching(new RegExp(`access to the key .*others with ${prefix}$`))]);
  });

  it.each<Use>(['produce', 'consume'])('and is content with exactly what it needs to %s', async (use) => {
    const optional = neededCommands.filter(({ by }) => by === 'optional');
    const rules = [...needed(use), ...optional].map(({ name }) => `+${name}`);
    const user = await userWith(mq.client, '-@all', ...keys, ...rules);
    const instance = await TestInstance.open({ redis: { port: mq.redis.port, ...user }, failFast: true }, {}, use);
    expect((await instance.runtime.health.readiness()).redisStreamsMq).toMatchObject({ status: 'up' });
    await instance.close();
  });

  it('leaves no key behind', async () => {
    await mq.open();
    await waitFor(async () => (await mq.client.keys('*')).length === 0);
    expect(await mq.client.keys('*')).toEqual([]);
  });
});

describeWithServer('a server that is looked at late', () => {
  const mq = useMq();

  it('says what is missing as a fault of the configuration', async () => {
    const user = await userWith(mq.client, '~*', '&*', '-xclaim');
    const proxy = await mq.proxy();
    await proxy.refuse(true);
    const instance = await mq.open({ redis: { port: proxy.port, ...user } });
    const faults = record(instance, 'fault');
    await proxy.refuse(false);
    await waitFor(() => faults.some(({ component }) => component === 'boot'));
    expect(faults.filter(({ component }) => component === 'boot')).toMatchObject([
      { class: 'configuration', error: { code: 'MQ_REDIS_NOT_ALLOWED' } },
    ]);
  });
});

describeWithServer('DATA-12 commands that are renamed', () => {
  const mq = useMq({ args: ['--rename-command', 'EVALSHA', '', '--rename-command', 'XCLAIM', 'claim-it'] });

  it('are named at the boot', async () => {
    expect(await refusalOf(mq.open())).toEqual({
      code: 'MQ_REDIS_NOT_ALLOWED',
      missing: ['the command evalsha', 'the command xclaim'],
    });
  });
});

describeWithServer('on a Cluster', () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  }, 60_000);
  afterAll(() => cluster?.stop());

  it('the boot looks at the rights, too', async () => {
    const options = { redisOptions: { username: 'few', password: 'secret' } };
    for (const { port } of cluster.nodes) {
      const node = new Redis(port);
      await node.call('ACL', 'SETUSER', 'few', 'on', '>secret', '~*', '&*', '+@all', '-xclaim');
      node.disconnect();
    }
    const redis = { cluster: { nodes: cluster.startupNodes, options } };
    expect(await refusalOf(TestInstance.open({ redis, failFast: true }))).toEqual({
      code: 'MQ_REDIS_NOT_ALLOWED',
      missing: ['the right to run xclaim'],
    });
    const instance = await TestInstance.open({ redis: { cluster: { nodes: cluster.startupNodes } }, failFast: true });
    await instance.close();
  });
});
