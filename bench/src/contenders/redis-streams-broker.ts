import { Redis } from 'ioredis';
import { StreamChannelBroker } from 'redis-streams-broker';
import type { Message, Payload } from '../payloads.js';
import type { Contender, ContenderContext } from './contender.js';
import { redisUrl } from './contender.js';

const FETCH = 100;
const POLL_MS = 500;
const NO_LIMIT = -1;

/** A plain library over one Redis stream and its consumer groups: no partitions, no retries, no owners. */
export const makeRedisStreamsBroker = (context: ContenderContext): Contender => ({
  async create({ name }) {
    const client = new Redis(redisUrl(context));
    await new StreamChannelBroker(client, name).joinConsumerGroup('group', '0');
    client.disconnect();
  },
  async producer({ name }) {
    const client = new Redis(redisUrl(context));
    const broker = new StreamChannelBroker(client, name);
    const send = ({ key, payload }: Message): Promise<string> =>
      broker.publish({ payload: JSON.stringify(payload), key }, NO_LIMIT);
    return {
      send,
      sendBatch: (messages) => Promise.all(messages.map(send)),
      close: async () => client.disconnect(),
    };
  },
  async consume({ name }, handle) {
    const client = new Redis(redisUrl(context));
    const broker = new StreamChannelBroker(client, name);
    const group = await broker.joinConsumerGroup('group', '0');
    let handled: Promise<unknown> = Promise.resolve();
    await group.subscribe(
      'consumer',
      async (messages) => {
        for (const { payload } of messages) handle(JSON.parse((payload as { payload: string }).payload) as Payload, 1);
        handled = Promise.all(messages.map((message) => message.markAsRead()));
        await handled;
        return FETCH;
      },
      POLL_MS,
      FETCH,
    );
    return {
      async close() {
        await broker.destroy();
        await handled;
        // Its loop may be reading still, and nobody hears that its connection was cut.
        await client.quit();
      },
    };
  },
  remove: async () => undefined,
});
