import type { Bytes } from './values.js';

/** What Lua's `cmsgpack` is given and gives back: bytes, numbers, truth values and lists. */
export type Packable = Bytes | number | boolean | null | readonly Packable[];

/** As the `cmsgpack` of Redis writes it, for what the scripts pack. */
export function pack(value: Packable): Bytes {
  if (value === null) return '\xc0';
  if (typeof value === 'boolean') return value ? '\xc3' : '\xc2';
  if (typeof value === 'number') return packNumber(value);
  if (typeof value === 'string') return header(value.length, 0xa0, 32, [0xd9, 0xda, 0xdb]) + value;
  return header(value.length, 0x90, 16, [null, 0xdc, 0xdd]) + value.map(pack).join('');
}

/** @throws Error for bytes that are not one packed value of the kinds above. */
export function unpack(bytes: Bytes): Packable {
  const buffer = Buffer.from(bytes, 'latin1');
  const reader = new PackReader(buffer);
  return reader.read();
}

function packNumber(value: number): Bytes {
  const buffer = Buffer.alloc(9);
  if (Number.isInteger(value) && value >= 0 && value < 128) return String.fromCharCode(value);
  if (Number.isInteger(value) && Math.abs(value) < 2 ** 53) {
    buffer[0] = 0xd3;
    buffer.writeBigInt64BE(BigInt(value), 1);
  } else {
    buffer[0] = 0xcb;
    buffer.writeDoubleBE(value, 1);
  }
  return buffer.toString('latin1');
}

function header(
  length: number,
  fixed: number,
  fixedBelow: number,
  [one, two, four]: readonly [number | null, number, number],
): Bytes {
  const buffer = Buffer.alloc(5);
  if (length < fixedBelow) return String.fromCharCode(fixed | length);
  if (one !== null && length < 0x100) return String.fromCharCode(one, length);
  if (length < 0x1_0000) {
    buffer[0] = two;
    buffer.writeUInt16BE(length, 1);
    return buffer.toString('latin1', 0, 3);
  }
  buffer[0] = four;
  buffer.writeUInt32BE(length, 1);
  return buffer.toString('latin1');
}

class PackReader {
  private at = 0;

  constructor(private readonly buffer: Buffer) {}

  read(): Packable {
    const tag = this.buffer.readUInt8(this.at++);
    if (tag < 0x80) return tag;
    if (tag >= 0xe0) return tag - 0x100;
    if (tag >= 0xa0 && tag < 0xc0) return this.text(tag & 0x1f);
    if (tag >= 0x90 && tag < 0xa0) return this.list(tag & 0x0f);
    switch (tag) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xca:
        return this.skip(4, this.buffer.readFloatBE(this.at));
      case 0xcb:
        return this.skip(8, this.buffer.readDoubleBE(this.at));
      case 0xcc:
        return this.size(1);
      case 0xcd:
        return this.size(2);
      case 0xce:
        return this.size(4);
      case 0xd3:
        return this.skip(8, Number(this.buffer.readBigInt64BE(this.at)));
      case 0xd9:
        return this.text(this.size(1));
      case 0xda:
        return this.text(this.size(2));
      case 0xdb:
        return this.text(this.size(4));
      case 0xdc:
        return this.list(this.size(2));
      case 0xdd:
        return this.list(this.size(4));
      default:
        throw new Error('Bad data format in input.');
    }
  }

  private size(bytes: number): number {
    return this.skip(bytes, this.buffer.readUIntBE(this.at, bytes));
  }

  private skip<T>(bytes: number, value: T): T {
    this.at += bytes;
    return value;
  }

  private text(length: number): Bytes {
    if (this.at + length > this.buffer.length) throw new Error('Missing bytes in input.');
    return this.skip(length, this.buffer.toString('latin1', this.at, this.at + length));
  }

  private list(length: number): Packable[] {
    return Array.from({ length }, () => this.read());
  }
}
