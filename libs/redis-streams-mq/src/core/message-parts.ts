import { MqInvalidMessageError, thrownText } from './errors.js';
import { jsonSerializer, jsonText, type Serializer } from './serializer.js';

const MAX_HEADER_BYTES = 65_536;

/** A refusal before anything is sent, naming the topic and the reason. */
export function invalidMessage(
  topic: string,
  what: string,
  code = 'MQ_INVALID_MESSAGE',
  cause?: unknown,
): MqInvalidMessageError {
  return new MqInvalidMessageError(code, `message for topic ${topic}: ${what}`, { cause, context: { topic } });
}

/**
 * JSON stays text, which ioredis writes without a buffer for each message in between.
 * @throws MqInvalidMessageError `MQ_UNSERIALIZABLE`, `MQ_PAYLOAD_TOO_LARGE`
 */
export function encodePayload(
  topic: string,
  payload: unknown,
  { serializer, maxPayloadBytes }: { readonly serializer: Serializer; readonly maxPayloadBytes: number },
): Buffer | string {
  const isJson = serializer === jsonSerializer;
  let encoded: Buffer | string;
  try {
    encoded = isJson ? jsonText(payload) : serializer.serialize(payload);
  } catch (error) {
    const reason = thrownText(error);
    throw invalidMessage(topic, `the payload cannot be serialized: ${reason}`, 'MQ_UNSERIALIZABLE', error);
  }
  if (!isJson && !Buffer.isBuffer(encoded))
    throw invalidMessage(topic, 'the serializer did not return a Buffer', 'MQ_UNSERIALIZABLE');
  const bytes = Buffer.byteLength(encoded);
  if (bytes > maxPayloadBytes) {
    throw invalidMessage(
      topic,
      `the payload has ${bytes} bytes, more than maxPayloadBytes ${maxPayloadBytes}`,
      'MQ_PAYLOAD_TOO_LARGE',
    );
  }
  return encoded;
}

/** `undefined` when there are none. @throws MqInvalidMessageError */
export function checkHeaders(topic: string, headers: unknown): Record<string, string> | undefined {
  if (headers === undefined || headers === null) return undefined;
  if (typeof headers !== 'object' || Symbol.iterator in headers)
    throw invalidMessage(topic, 'headers must be an object of strings');
  const entries = Object.entries(headers);
  let size = 0;
  for (const [name, value] of entries) {
    if (typeof value !== 'string') throw invalidMessage(topic, `header ${JSON.stringify(name)} must be a string`);
    size += name.length + value.length;
  }
  if (size > MAX_HEADER_BYTES) throw invalidMessage(topic, `headers are larger than ${MAX_HEADER_BYTES} characters`);
  return entries.length === 0 ? undefined : (headers as Record<string, string>);
}
