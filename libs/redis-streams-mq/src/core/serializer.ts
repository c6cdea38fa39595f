import { isUtf8 } from 'node:buffer';
import { inspect, types } from 'node:util';

/**
 * Makes bytes of a payload and a payload of bytes. Both sides of a topic need the same one. What `serialize` throws
 * makes the send fail with `MQ_UNSERIALIZABLE`; what `deserialize` throws makes the message a dead letter.
 */
export interface Serializer {
  serialize(value: unknown): Buffer;
  deserialize(bytes: Buffer): unknown;
}

/**
 * JSON in UTF-8, by the rules of `JSON.stringify`: a `Date` becomes text, and what JSON has no form for is left out
 * where it stands inside a payload. A payload that is lost as a whole throws instead: `undefined`, a function, a symbol
 * and binary data (that is for `bytesSerializer`), and so do a BigInt, a cycle and a throwing `toJSON` anywhere in it.
 */
export const jsonSerializer: Serializer = {
  serialize: (value: unknown): Buffer => Buffer.from(jsonText(value)),

  deserialize(bytes: Buffer): unknown {
    const text = bytes.toString();
    // What is not UTF-8 becomes this character; it may also stand in the text.
    if (text.includes(REPLACEMENT) && !isUtf8(bytes))
      throw new TypeError(`the payload (${bytes.length} bytes) is not UTF-8`);
    try {
      return JSON.parse(text);
    } catch {
      // V8's message quotes the text, and a payload must not get into logs: neither the message nor the cause is kept.
      throw new SyntaxError(`the payload (${bytes.length} bytes) is not JSON`);
    }
  },
};

/**
 * Bytes as they are: takes a `Uint8Array` and gives a `Buffer`. Neither direction copies, so the sender must not change
 * the bytes before the send has settled.
 */
export const bytesSerializer: Serializer = {
  serialize(value: unknown): Buffer {
    if (!types.isUint8Array(value)) {
      throw new TypeError(
        `bytesSerializer takes a Buffer or Uint8Array, not ${value === null ? 'null' : typeof value}`,
      );
    }
    return Buffer.isBuffer(value) ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  },

  deserialize: (bytes: Buffer): unknown => bytes,
};

/** What `jsonSerializer` makes bytes of. Well-formed: JSON escapes lone surrogates, so that these bytes are its only UTF-8 form. */
export function jsonText(value: unknown): string {
  if (ArrayBuffer.isView(value) || types.isAnyArrayBuffer(value)) {
    throw new TypeError('jsonSerializer does not carry binary data: use bytesSerializer, or put text into the payload');
  }
  const text = stringify(value);
  if (text === undefined) throw new TypeError(`JSON has no form for ${lostForm(value)}`);
  return text;
}

const REPLACEMENT = '\ufffd';

function stringify(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (error) {
    const reason = types.isNativeError(error) ? error.message : `toJSON threw ${inspect(error)}`;
    throw new TypeError(`the payload cannot be written as JSON: ${reason}`, { cause: error });
  }
}

function lostForm(value: unknown): string {
  if (value === undefined) return 'undefined';
  return typeof value === 'object' ? 'an object whose toJSON() gives nothing' : `a ${typeof value}`;
}
