import { connect } from 'amqplib';
import type { Message, Payload } from '../payloads.js';
import type { Contender, ContenderContext } from './contender.js';

const PREFETCH = 500;

/** A queue, publisher confirms, each message acknowledged. Persistent and durable unless durability is off. */
export const makeRabbitmq = ({ urls, durability }: ContenderContext): Contender => {
  const url = urls.amqp!;
  const durable = durability !== 'off';
  return {
    async create({ name }) {
      const connection = await connect(url);
      const channel = await connection.createChannel();
      await channel.assertQueue(name, { durable, autoDelete: false });
      await connection.close();
    },
    async producer({ name }) {
      const connection = await connect(url);
      const channel = await connection.createConfirmChannel();
      const publish = ({ payload }: Message): Promise<void> =>
        new Promise((resolve, reject) => {
          const body = Buffer.from(JSON.stringify(payload));
          channel.sendToQueue(name, body, { persistent: durable }, (error: unknown) =>
            error ? reject(error as Error) : resolve(),
          );
        });
      return {
        send: publish,
        sendBatch: (messages) => Promise.all(messages.map(publish)),
        close: () => connection.close(),
      };
    },
    async consume({ name }, handle) {
      const connection = await connect(url);
      const channel = await connection.createChannel();
      await channel.prefetch(PREFETCH);
      await channel.consume(name, (message) => {
        if (message === null) return;
        try {
          handle(JSON.parse(message.content.toString()) as Payload, message.fields.redelivered ? 2 : 1);
          channel.ack(message);
        } catch {
          channel.nack(message);
        }
      });
      return { close: () => connection.close() };
    },
    async remove({ name }) {
      const connection = await connect(url);
      const channel = await connection.createChannel();
      await channel.deleteQueue(name);
      await connection.close();
    },
  };
};
