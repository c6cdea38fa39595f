import type { DeadLetterEdit } from '../core/dead-letter.js';
import { checkHeaders, encodePayload, invalidMessage } from '../core/message-parts.js';
import type { Serializer } from '../core/serializer.js';
import type { Arg } from '../redis/reply.js';
import { invalid } from './dead-letter-filter.js';

/**
 * The fields that are to be replaced, as names and values.
 * @throws MqAdminError `MQ_INVALID_ARGUMENT`, MqInvalidMessageError
 */
export function editArgs(
  topic: string,
  edit: DeadLetterEdit | undefined,
  settings: { readonly serializer: Serializer; readonly maxPayloadBytes: number },
): Arg[] {
  if (edit === undefined) return [];
  if (typeof edit !== 'object' || edit === null) throw invalid('the edit must be an object');
  const unknown = Object.keys(edit).find((name) => !['payload', 'payloadBytes', 'headers'].includes(name));
  if (unknown !== undefined) throw invalid(`${JSON.stringify(unknown)} of a dead letter cannot be edited`);
  const args: Arg[] = [];
  if ('payload' in edit && edit.payloadBytes !== undefined)
    throw invalid('payload and payloadBytes exclude each other');
  if ('payload' in edit) args.push('payload', encodePayload(topic, edit.payload, settings));
  if (edit.payloadBytes !== undefined) args.push('payload', checkBytes(topic, edit.payloadBytes, settings));
  if (edit.headers !== undefined) args.push('headers', JSON.stringify(checkHeaders(topic, edit.headers) ?? {}));
  if (args.length === 0) throw invalid('the edit is empty');
  return args;
}

function checkBytes(topic: string, bytes: unknown, { maxPayloadBytes }: { readonly maxPayloadBytes: number }): Buffer {
  if (!(bytes instanceof Uint8Array)) throw invalid('payloadBytes must be a Buffer or a Uint8Array');
  if (bytes.length > maxPayloadBytes) {
    const text = `the payload has ${bytes.length} bytes, more than maxPayloadBytes ${maxPayloadBytes}`;
    throw invalidMessage(topic, text, 'MQ_PAYLOAD_TOO_LARGE');
  }
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
