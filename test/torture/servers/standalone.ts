import { setTimeout as sleep } from 'node:timers/promises';
import { startRedis } from '../../support/redis-server.js';
import { proxied } from './proxied.js';
import { demote, fillUp, flushScripts, stutter, killClients } from './server-faults.js';
import type { Servers } from './servers.js';

const LONGEST_OUTAGE_MS = 2_500;
const STOPPED_MS = 3_000;

/** One Redis with an append-only file that is synced before each answer, so that what it has accepted survives its kill. */
export async function startStandalone(): Promise<Servers> {
  const redis = await startRedis({ aof: true, args: ['--appendfsync', 'always'] });
  const client = redis.client();
  return {
    kind: 'standalone',
    client: () => client,
    network: () => proxied(redis.port),
    faults: {
      async 'kill-redis'(extent) {
        await redis.kill();
        await sleep(extent * LONGEST_OUTAGE_MS);
        await redis.restart();
        return `away for ${Math.round(extent * LONGEST_OUTAGE_MS)} ms`;
      },
      async 'stop-redis'() {
        redis.pause();
        await sleep(STOPPED_MS);
        redis.resume();
        return `for ${STOPPED_MS} ms`;
      },
      'script-flush': () => flushScripts([client]),
      'client-kill': () => killClients([client]),
      'full-redis': () => fillUp([client]),
      'slow-redis': () => stutter([redis]),
      readonly: () => demote(client),
    },
    failovers: [],
    stop: () => redis.stop(),
  };
}
