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
  readonly sentinels: readonly ServerProcess[];
  /** For ioredis: `{ sentinels, name }`. */
  readonly addresses: { host: string; port: number }[];
  /** Port of the master as the sentinels (those that answer) see it now. */
  masterPort(): Promise<number>;
  /** A client for looking, through the sentinels; `stop()` closes it. */
  client(options?: RedisOptions): Redis;
  stop(): Promise<void>;
}

/** Starts a master, a replica in sync with it and three sentinels that know each other; quorum 2, down after half a second. */
export async function startSentinel(): Promise<TestSentinel> {
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
    const args = ['--appendonly', 'no', '--repl-diskless-sync-delay', '0'];
    const master = await start({ args });
    const replica = await start({ args: [...args, '--replicaof', '127.0.0.1', String(master.port)] });
    const replicaClient = connect({ port: replica.port });
    await waitFor(async () => (await replicaClient.info('replication')).includes('master_link_status:up'), {
      describe: 'the replica to be in sync',
    });
    const sentinels = await Promise.all(
      Array.from({ length: 3 }, () => start({ args: ['--sentinel'], config: sentinelConfig(master.port) })),
    );
    const addresses = sentinels.map(({ port }) => ({ host: '127.0.0.1', port }));
    const askers = addresses.map((address) => connect({ ...address, maxRetriesPerRequest: 0 }));
    await waitFor(async () => (await Promise.all(askers.map(knowsAll))).every(Boolean), {
      timeoutMs: 20_000,
      describe: 'the sentinels to find each other and the replica',
    });
    return {
      name,
      master,
      replica,
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

const sentinelConfig = (masterPort: number): string => `
sentinel myid ${randomBytes(20).toString('hex')}
sentinel monitor ${name} 127.0.0.1 ${masterPort} ${quorum}
sentinel down-after-milliseconds ${name} 500
sentinel failover-timeout ${name} 3000
`;

async function knowsAll(sentinel: Redis): Promise<boolean> {
  const flat = (await sentinel.call('SENTINEL', 'MASTER', name)) as string[];
  const value = (field: string): string | undefined => flat[flat.indexOf(field) + 1];
  return value('num-slaves') === '1' && value('num-other-sentinels') === '2' && value('flags') === 'master';
}
