import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { MemoryClient } from '../../libs/redis-streams-mq/src/testing/server/memory-client.js';
import { MemoryServer } from '../../libs/redis-streams-mq/src/testing/server/memory-server.js';
import { VirtualClock } from '../../libs/redis-streams-mq/src/testing/virtual-clock.js';

/** A connection to an in-memory server of its own, whose time stands still. */
export async function connectInMemory(): Promise<Connection> {
  const clock = new VirtualClock(Date.now());
  const client = new MemoryClient(new MemoryServer(clock));
  await client.connect();
  return new Connection('in-memory', client.asClient(), clock);
}
