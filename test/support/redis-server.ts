import { Redis, type RedisOptions } from 'ioredis';
import { ServerProcess } from '../../scripts/server-process.mjs';
import { uniqueName } from './unique-name.js';

export { uniqueName };

export interface StartRedisOptions {
  /** Further arguments of redis-server, such as `['--maxmemory', '1mb']`. Not applied to a server of the user's. */
  args?: string[];
  /** Keep an append-only file, so that `restart()` finds the data again. Without it a restart begins empty. */
  aof?: boolean;
}

/** A Redis for one test file. */
export interface TestRedis {
  readonly port: number;
  readonly url: string;
  /** For keys and prefixes of this test file: the server may be shared where none can be started. */
  readonly keyPrefix: string;
  /** Of the server's process; throws where it is not ours, as `kill`, `pause`, `resume` and `restart` do. */
  readonly pid: number;
  /** A client for looking; `stop()` closes it. */
  client(options?: RedisOptions): Redis;
  /** Ends the server and resolves when it is gone. @defaultValue 'SIGKILL' */
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** SIGSTOP: connections stay open and nothing answers. */
  pause(): void;
  resume(): void;
  /** Starts the server again on the same port, with the data of its append-only file if it keeps one. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** The server that tests start; without one they use Docker or MQ_TEST_REDIS_URL, and some cannot run. */
export const serverBinary: string | undefined = process.env.MQ_REDIS_SERVER;

/** `describe` for what needs a server process of its own: skipped, with the reason in its name, where there is none. */
export function describeWithServer(name: string, body: () => void): void {
  if (serverBinary) describe(name, body);
  else describe.skip(`${name} (skipped: needs redis-server or valkey-server on the PATH)`, body);
}

/** Starts a Redis of its own, or connects to the one of MQ_TEST_REDIS_URL where none can be started. */
export async function startRedis({ args = [], aof = false }: StartRedisOptions = {}): Promise<TestRedis> {
  const allArgs = ['--appendonly', aof ? 'yes' : 'no', ...args];
  if (serverBinary) {
    const server = await ServerProcess.start(serverBinary, { args: allArgs });
    return testRedis(server.url, () => server.stop(), server);
  }
  if (process.env.MQ_TEST_REDIS_URL) return testRedis(process.env.MQ_TEST_REDIS_URL, async () => {});
  return startContainer(allArgs);
}

/** A Redis for the whole file or `describe`; it can be used inside tests and hooks. */
export function useRedis(options: StartRedisOptions = {}): TestRedis {
  let started: TestRedis;
  beforeAll(async () => {
    started = await startRedis(options);
  });
  afterAll(() => started.stop());
  return new Proxy({} as TestRedis, { get: (_, name) => Reflect.get(started, name) as unknown });
}

/** The binary for helpers that cannot do without; call them inside `describeWithServer`. */
export function requireServerBinary(): string {
  if (serverBinary) return serverBinary;
  throw new Error('needs redis-server or valkey-server on the PATH (put the tests into describeWithServer)');
}

async function startContainer(args: string[]): Promise<TestRedis> {
  // Half a second to load, and needed only here.
  const { GenericContainer, Wait } = await import('testcontainers');
  const container = await new GenericContainer('redis:7.4')
    .withCommand(['redis-server', '--save', '', ...args])
    .withExposedPorts(6379)
    .withWaitStrategy(Wait.forLogMessage('Ready to accept connections'))
    .start();
  const url = `redis://${container.getHost()}:${container.getMappedPort(6379)}`;
  return testRedis(url, async () => void (await container.stop()));
}

function testRedis(url: string, end: () => Promise<void>, server?: ServerProcess): TestRedis {
  const clients: Redis[] = [];
  const ours = (): ServerProcess => {
    if (server) return server;
    throw new Error(`the server at ${url} is no process of ours (put the test into describeWithServer)`);
  };
  return {
    port: Number(new URL(url).port || 6379),
    url,
    keyPrefix: uniqueName('test'),
    get pid() {
      return ours().pid;
    },
    client(options = {}) {
      // ioredis sets a timer of this length when it disconnects, and jest would wait for it.
      const client = new Redis(url, { disconnectTimeout: 100, ...options });
      // It reconnects by itself when the test kills the server; that is no news.
      client.on('error', () => {});
      clients.push(client);
      return client;
    },
    kill: async (signal) => ours().kill(signal),
    pause: () => ours().pause(),
    resume: () => ours().resume(),
    restart: async () => ours().restart(),
    async stop() {
      for (const client of clients) client.disconnect();
      await end();
    },
  };
}
