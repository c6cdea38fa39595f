import { connect, type NatsConnection } from '@nats-io/transport-node';
import { AckPolicy, jetstream, jetstreamManager, StorageType } from '@nats-io/jetstream';
import type { Payload } from '../payloads.js';
import type { Contender, ContenderContext, Topic } from './contender.js';

const MAX_ACK_PENDING = 10_000;
const FETCH = 1_000;

/** JetStream: a stream for the topic, a durable pull consumer for the group, each message acknowledged. */
export const makeNats = ({ urls, durability }: ContenderContext): Contender => {
  const open = (): Promise<NatsConnection> => connect({ servers: urls.nats! });
  return {
    async create({ name }) {
      const connection = await open();
      const manager = await jetstreamManager(connection);
      const storage = durability === 'off' ? StorageType.Memory : StorageType.File;
      await manager.streams.add({ name, subjects: [`${name}.*`], storage });
      await manager.consumers.add(name, {
        durable_name: 'group',
        ack_policy: AckPolicy.Explicit,
        max_ack_pending: MAX_ACK_PENDING,
      });
      await connection.close();
    },
    async producer({ name }) {
      const connection = await open();
      const js = jetstream(connection);
      const send: (message: { key: string; payload: Payload }) => Promise<unknown> = ({ key, payload }) =>
        js.publish(`${name}.${key}`, JSON.stringify(payload));
      return {
        send,
        sendBatch: (messages) => Promise.all(messages.map(send)),
        close: () => connection.close(),
      };
    },
    async consume({ name }: Topic, handle, { retryDelayMs = 0 }) {
      const connection = await open();
      const consumer = await jetstream(connection).consumers.get(name, 'group');
      const messages = await consumer.consume({ max_messages: FETCH });
      const loop = (async () => {
        for await (const message of messages) {
          try {
            handle(message.json(), message.info.deliveryCount);
            message.ack();
          } catch {
            message.nak(retryDelayMs);
          }
        }
      })();
      return {
        async close() {
          await messages.close();
          await loop;
          await connection.close();
        },
      };
    },
    async remove({ name }) {
      const connection = await open();
      await (await jetstreamManager(connection)).streams.delete(name);
      await connection.close();
    },
  };
};
