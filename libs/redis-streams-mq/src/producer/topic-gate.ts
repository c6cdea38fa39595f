import { MqInvalidMessageError, thrownText } from '../core/errors.js';
import { validateBy, type StandardSchema } from '../core/standard-schema.js';
import { SCHEMA_VERSION_HEADER, type AnyTypedTopic } from '../core/topic.js';
import type { SendOptions } from './outgoing-message.js';

/** What a topic's definition does to a message that is sent to it. */
export class TopicGate {
  /** Schemas that answered with a promise: waiting for it would let later sends pass. */
  private readonly asynchronous = new WeakSet<StandardSchema>();

  /**
   * The options of the send, with the definition's version.
   * @throws MqInvalidMessageError `MQ_INVALID_PAYLOAD` when the definition's schema refuses the payload.
   */
  pass({ name, schema, version }: AnyTypedTopic, payload: unknown, options: SendOptions): SendOptions {
    if (schema !== undefined && !this.asynchronous.has(schema)) this.check(name, schema, payload);
    // Bad options are refused where all are; so are headers that are none.
    const { headers = {} } = Object(options) as SendOptions;
    if (version === undefined || typeof headers !== 'object' || headers === null) return options;
    if (Object.hasOwn(headers, SCHEMA_VERSION_HEADER)) return options;
    return { ...options, headers: { ...headers, [SCHEMA_VERSION_HEADER]: version } };
  }

  private check(topic: string, schema: StandardSchema, payload: unknown): void {
    let validated: unknown;
    try {
      validated = validateBy(schema, payload);
    } catch (error) {
      const code = 'MQ_INVALID_PAYLOAD';
      throw new MqInvalidMessageError(code, `message for topic ${topic}: ${thrownText(error)}`, {
        cause: error,
        context: { topic },
      });
    }
    if (!(validated instanceof Promise)) return;
    validated.catch(() => undefined);
    this.asynchronous.add(schema);
  }
}
