import { randomBytes } from 'node:crypto';
import { Redis, type RedisOptions } from 'ioredis';
import { ServerProcess } from '../../scripts/server-process.mjs';
import { requireServerBinary } from './redis-server.js';
import { waitFor } from './wait-for.js';

const name = 'mymaster';
const quorum = 2;

export interface TestSentinel {
  /** What the sentinels call the master. */
  readonly name: string;
  /** The one that starts as master; after a failover it is the replica. */
  readonly master: ServerProcess;
  readonly replica: ServerProcess;
  /** All replicas at the start, that one included. */
  readonly replicas: readonly ServerProcess[];
  readonly sentinels: readonly ServerProcess[];
  /** For ioredis: `{ sentinels, name }`. */
  readonly addresses: { host: string; port: number }[];
  /** Port of the master as the sentinels (those that answer) see it now. */
  masterPort(): Promise<number>;
  /** A client for looking, through the sentinels; `stop()` closes it. */
  client(options?: RedisOptions): Redis;
  stop(): Promise<void>;
}

export interface StartSentinelOptions {
  /** @defaultValue 1 */
  replicas?: number;
  /** Keep append-only files, written before a reply, so that a server that is killed and restarted has lost nothing. */
  aof?: boolean;
  /** A master that does not answer for so long counts as dead. @defaultValue 500 */
  downAfterMs?: number;
}

/** Starts a master, replicas in sync with it and three sentinels that know each other; quorum 2, down after half a second. */
export async function startSentinel(options: StartSentinelOptions = {}): Promise<TestSentinel> {
  const { replicas: replicaCount = 1, aof = false, downAfterMs = 500 } = options;
  const binary = requireServerBinary();
  const servers: ServerProcess[] = [];
  const clients: Redis[] = [];
  const stop = async (): Promise<void> => {
    for (const client of clients) client.disconnect();
    await Promise.all(servers.map((server) => server.stop()));
  };
  const start = async (options: { args?: string[]; config?: string }): Promise<ServerProcess> => {
    const server = await ServerProcess.start(binary, options);
    servers.push(server);
    return server;
  };
  const connect = (options: RedisOptions): Redis => {
    const client = new Redis({ disconnectTimeout: 100, ...options });
    client.on('error', () => {});
    clients.push(client);
    return client;
  };
  try {
    const durability = aof ? ['--appendonly', 'yes', '--appendfsync', 'always'] : ['--appendonly', 'no'];
    const args = [...durability, '--repl-diskless-sync-delay', '0'];
    const master = await start({ args });
    // In the file and not among the arguments, so that what the sentinels decide later outlives a restart.
    const config = `replicaof 127.0.0.1 ${master.port}\n`;
    const replicas = await Promise.all(Array.from({ length: replicaCount }, () => start({ args, config })));
    const replicaClients = replicas.map(({ port }) => connect({ port }));
    await waitFor(async () => (await Promise.all(replicaClients.map(isInSync))).every(Boolean), {
      describe: 'the replicas to be in sync',
    });
    const sentinels = await Promise.all(
      Array.from({ length: 3 }, () =>
        start({ args: ['--sentinel'], config: sentinelConfig(master.port, downAfterMs) }),
      ),
    );
    const addresses = sentinels.map(({ port }) => ({ host: '127.0.0.1', port }));
    const askers = addresses.map((address) => connect({ ...address, maxRetriesPerRequest: 0 }));
    await Promise.all(askers.map(makeHaste));
    await waitFor(
      async () => (await Promise.all(askers.map((asker) => knowsAll(asker, replicaCount)))).every(Boolean),
      {
        timeoutMs: 20_000,
        describe: 'the sentinels to find each other and the replicas',
      },
    );
    return {
      name,
      master,
      replica: replicas[0]!,
      replicas,
      sentinels,
      addresses,
      masterPort: async () => {
        const answers = askers.map((asker) => asker.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name));
        return Number(((await Promise.any(answers)) as string[])[1]);
      },
      client: (options = {}) => connect({ ...options, sentinels: addresses, name }),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

const sentinelConfig = (masterPort: number, downAfterMs: number): string => `
sentinel myid ${randomBytes(20).toString('hex')}
sentinel monitor ${name} 127.0.0.1 ${masterPort} ${quorum}
sentinel down-after-milliseconds ${name} ${downAfterMs}
sentinel failover-timeout ${name} 3000
`;

/** Times that Sentinel has no setting for: how soon it notices a change, and how long it does nothing after a pause of its own. */
async function makeHaste(sentinel: Redis): Promise<void> {
  const times = ['INFO-PERIOD', 1_000, 'PUBLISH-PERIOD', 500, 'TILT-PERIOD', 1_000];
  // Unknown before Redis 7: everything takes longer then.
  await sentinel.call('SENTINEL', 'DEBUG', ...times).catch(() => undefined);
}

async function isInSync(replica: Redis): Promise<boolean> {
  return (await replica.info('replication')).includes('master_link_status:up');
}

async function knowsAll(sentinel: Redis, replicas: number): Promise<boolean> {
  const flat = (await sentinel.call('SENTINEL', 'MASTER', name)) as string[];
  const value = (field: string): string | undefined => flat[flat.indexOf(field) + 1];
  return (
    value('num-slaves') === String(replicas) && value('num-other-sentinels') === '2' && value('flags') === 'master'
  );
}
