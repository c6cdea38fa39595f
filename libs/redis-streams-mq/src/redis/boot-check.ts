import type { MqEvents } from '../core/events.js';
import type { Connection } from './connection.js';
import { asText } from './reply.js';
import { infoFields } from './server-state.js';

const OLDEST: readonly [number, number] = [6, 2];

/**
 * Looks at the server once, where it lets one look, and warns about what will hurt later: a version below 6.2, a policy
 * that evicts streams and leases. Never fails the boot: a hardened server may refuse INFO. Returns the warnings in short.
 */
export async function checkServer(connection: Connection, events: MqEvents): Promise<string[]> {
  const concerns: string[] = [];
  const server = await info(connection, 'server');
  const memory = await info(connection, 'memory');
  const version = /^\d+\.\d+/.exec(server.get('redis_version') ?? '')?.[0];
  if (version !== undefined) {
    const [major = 0, minor = 0] = version.split('.').map(Number);
    if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
      events.emit('warning', {
        message: 'this Redis is older than 6.2 and lacks commands the queue needs',
        fields: { version },
      });
      concerns.push(`Redis ${version} is older than 6.2`);
    }
  }
  const policy = memory.get('maxmemory_policy');
  if (policy !== undefined && policy !== 'noeviction') {
    events.emit('warning', {
      message: 'maxmemory-policy must be noeviction: this one deletes leases or whole streams when memory is full',
      fields: { policy },
    });
    concerns.push(`maxmemory-policy is ${policy} and not noeviction`);
  }
  return concerns;
}

async function info(connection: Connection, section: string): Promise<Map<string, string>> {
  try {
    return infoFields(asText(await connection.send('INFO', section)));
  } catch {
    // Refused: nothing can be said.
    return new Map();
  }
}
