import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../../scripts/server-process.mjs';
import { findProgram, startBroker, stopBroker } from './brokers.js';
import { MissingServerError, type RunningServer } from './running-server.js';

/** Durability is chosen per stream, by its storage. */
export async function startNats(): Promise<RunningServer> {
  const program = findProgram('nats-server');
  if (program === undefined)
    throw new MissingServerError('nats-server is not installed (Debian: apt-get install nats-server)');
  const dir = mkdtempSync(join(tmpdir(), 'bench-nats-'));
  const port = await freePort();
  const child = await startBroker(program, ['-a', '127.0.0.1', '-p', String(port), '-js', '-sd', dir], port);
  return {
    urls: { nats: `nats://127.0.0.1:${port}` },
    pids: [child.pid!],
    empty: async () => undefined, // The contender removes its streams.
    async stop() {
      await stopBroker(child);
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
