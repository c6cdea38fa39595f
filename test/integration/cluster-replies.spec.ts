import { setTimeout as sleep } from 'node:timers/promises';
import { systemClock } from '../../libs/redis-streams-mq/src/core/clock.js';
import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { createClient } from '../../libs/redis-streams-mq/src/redis/create-client.js';
import { startCluster, type TestCluster } from '../support/cluster.js';
import { describeWithServer } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';
import { ProxiedNetwork } from '../torture/servers/proxied-network.js';

const KEYS = Array.from({ length: 60 }, (_, n) => `key-${n}`);

describeWithServer('the replies of a Cluster', () => {
  let cluster: TestCluster;
  let network: ProxiedNetwork;
  let connection: Connection;

  beforeAll(async () => {
    cluster = await startCluster({ replicated: true, aof: true });
    // After a redirection ioredis looks for the address that the servers call each other by, and then takes any node.
    network = await ProxiedNetwork.start(
      cluster.startupNodes.map(({ port }) => port),
      (proxyOf, natMap) => ({
        cluster: { nodes: cluster.startupNodes.map(({ port }) => proxyOf(port)), options: { natMap } },
      }),
    );
    const client = createClient(network.redis, 1_000, 'replies');
    client.on('error', () => undefined);
    connection = new Connection('replies', client, systemClock);
    await client.connect();
  });
  afterAll(async () => {
    connection.destroy();
    await network.stop();
    await cluster.stop();
  });

  it('belong to their commands, also while a master dies and comes back', async () => {
    const raw = cluster.client();
    await Promise.all(KEYS.map((key) => raw.set(key, key)));
    // A replica that takes over has them all.
    await Promise.all(raw.nodes('master').map((master) => master.wait(1, 10_000)));
    const wrong: string[] = [];
    const answered = new Map(KEYS.map((key) => [key, 0]));
    let stopped = false;
    const asking = KEYS.map(async (key) => {
      while (!stopped) {
        const outcomes = await connection.pipeline([1, 2, 3].map(() => ['GET', key])).catch(() => []);
        for (const outcome of outcomes) {
          if (!outcome.ok) continue;
          answered.set(key, answered.get(key)! + 1);
          if (String(outcome.value) !== key) wrong.push(`${key}: ${String(outcome.value)}`);
        }
        await sleep(5);
      }
    });
    for (const master of cluster.nodes) {
      await sleep(200);
      await master.kill();
      await waitFor(() => raw.set(KEYS[0]!, KEYS[0]!).catch(() => false));
      await sleep(200);
      await master.restart();
    }
    answered.forEach((_, key) => answered.set(key, 0));
    await waitFor(() => [...answered.values()].every((count) => count > 3) || wrong.length > 0, { timeoutMs: 20_000 });
    stopped = true;
    await Promise.all(asking);
    expect(wrong).toEqual([]);
  });

  it('are what each key has while its slot is half here and half there', async () => {
    const raw = cluster.client();
    const [here, there] = ['stream:{half}', 'retry:{half}'];
    for (const key of [here, there]) await raw.xgroup('CREATE', key, 'g', '0', 'MKSTREAM');
    const slot = Number(await raw.cluster('KEYSLOT', here));
    const masters = raw.nodes('master');
    const owners = await Promise.all(
      masters.map(async (master) => (await master.cluster('COUNTKEYSINSLOT', slot)) > 0),
    );
    const from = masters[owners.indexOf(true)]!;
    const to = masters[owners.indexOf(false)]!;
    const [fromId, toId] = await Promise.all([from.cluster('MYID'), to.cluster('MYID')]);
    await to.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(fromId));
    await from.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(toId));
    await from.call('MIGRATE', '127.0.0.1', to.options.port!, '', 0, 5_000, 'KEYS', there);
    const outcomes = await connection.readAll([here, there, here].map((key) => ['XPENDING', key, 'g']));
    expect(outcomes.map((outcome) => (outcome.ok ? 'answered' : outcome.error.message))).toEqual([
      'answered',
      'answered',
      'answered',
    ]);
  });
});
