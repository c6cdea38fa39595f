import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../../scripts/server-process.mjs';
import { findProgram, startBroker, stopBroker } from './brokers.js';
import { MissingServerError, type RunningServer } from './running-server.js';

/** The broker's own script: the one on the PATH changes the user. */
const PROGRAM = '/usr/lib/rabbitmq/bin/rabbitmq-server';

/** A node of its own, on the loopback, with all its files in a temporary folder and without an epmd. */
export async function startRabbitmq(): Promise<RunningServer> {
  const program = findProgram('rabbitmq-server') === undefined ? undefined : PROGRAM;
  if (program === undefined)
    throw new MissingServerError('rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)');
  const dir = mkdtempSync(join(tmpdir(), 'bench-rabbitmq-'));
  const port = await freePort();
  const config = join(dir, 'rabbitmq.conf');
  writeFileSync(
    config,
    [`listeners.tcp.local = 127.0.0.1:${port}`, 'vm_memory_high_watermark.relative = 0.6', ''].join('\n'),
  );
  writeFileSync(join(dir, 'enabled_plugins'), '[].\n');
  const child = await startBroker(program, [], port, {
    HOME: dir,
    RABBITMQ_BASE: dir,
    RABBITMQ_HOME: '/usr/lib/rabbitmq',
    RABBITMQ_NODENAME: `bench-${port}@localhost`,
    RABBITMQ_DIST_PORT: String(await freePort()),
    RABBITMQ_MNESIA_BASE: join(dir, 'mnesia'),
    RABBITMQ_LOG_BASE: dir,
    RABBITMQ_CONFIG_FILE: config,
    RABBITMQ_ENABLED_PLUGINS_FILE: join(dir, 'enabled_plugins'),
    RABBITMQ_PID_FILE: join(dir, 'pid'),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS:
      '-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false -erl_epmd_port 0',
  });
  const pid = Number(readPid(join(dir, 'pid')) ?? child.pid);
  return {
    urls: { amqp: `amqp://guest:guest@127.0.0.1:${port}` },
    pids: [pid],
    empty: async () => undefined, // The contender deletes its queues.
    async stop() {
      await stopBroker(child);
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

function readPid(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return undefined;
  }
}
