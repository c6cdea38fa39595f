import { randomFillSync } from 'node:crypto';
import { v7 } from 'uuid';
import { type Clock, systemClock } from './clock.js';
import { MqInvalidMessageError } from './errors.js';

/*
 * An event id has two forms. In the API it is text: mostly a UUID, lower case. On the wire it is either the 22
 * base64url characters of the UUID's 16 bytes, or `~` and the text itself. `~` is not in base64url, so no text can be
 * taken for a packed UUID, and each id has exactly one wire form.
 */

const WIRE_LENGTH = 22;
const UUID_SHAPE = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const PRINTABLE = /^[\x20-\x7e]{1,128}$/;
const TEXT_MARK = '~';
const UUID_LENGTH = 36;

const bytes = Buffer.alloc(16);

/** A new event id as UUID text. It sorts after every earlier one of this process. */
export function newEventId(): string {
  return processSource.next();
}

/** The same as `eventIdToWire(newEventId())`, in one step. */
export function newWireEventId(): string {
  return processSource.nextWire();
}

/**
 * The wire form of an event id: UUID text of any version (upper case is taken for lower), or any other 1 to 128
 * printable ASCII characters.
 * @throws MqInvalidMessageError `MQ_INVALID_MESSAGE`
 */
export function eventIdToWire(id: string): string {
  if (typeof id === 'string') {
    if (id.length === UUID_LENGTH && packUuid(id)) return bytes.toString('base64url');
    if (PRINTABLE.test(id)) return TEXT_MARK + id;
  }
  throw invalid('eventId must be a UUID or 1 to 128 printable ASCII characters', id);
}

/**
 * The event id of a wire form; the exact inverse of `eventIdToWire`.
 * @throws MqInvalidMessageError `MQ_INVALID_MESSAGE` for what `eventIdToWire` never makes
 */
export function eventIdFromWire(wire: string): string {
  if (typeof wire === 'string') {
    const uuid = wire.length === WIRE_LENGTH ? unpackedUuid(wire) : null;
    if (uuid !== null) return uuid;
    const text = wire.slice(1);
    if (wire.startsWith(TEXT_MARK) && PRINTABLE.test(text) && !UUID_SHAPE.test(text)) return text;
  }
  throw invalid('the stored eventId is neither a packed UUID nor marked text', wire);
}

/**
 * Makes UUIDv7 ids in increasing order, also within a millisecond and when the clock goes back: the time of an id never
 * falls and a counter goes up under it (RFC 9562, section 6.2, method 1). The counter and the random bytes are kept
 * here and not left to `uuid`, because its newer versions ask the kernel for each id, which takes ten times as long.
 */
export class EventIdSource {
  private timeMs = 0;
  private counter = 0;
  private readonly pool = Buffer.alloc(4096);
  private readonly slices = Array.from({ length: 256 }, (_, i) => this.pool.subarray(16 * i, 16 * i + 16));
  private slicesUsed = this.slices.length;
  private readonly layout = { random: this.pool, msecs: 0, seq: 0 };

  constructor(
    private readonly clock: Pick<Clock, 'now'> = systemClock,
    private readonly fillRandom: (target: Buffer) => void = (target) => void randomFillSync(target),
  ) {}

  /** The next id as UUID text. */
  next(): string {
    this.fill();
    return uuidText();
  }

  /** The next id in its wire form. */
  nextWire(): string {
    this.fill();
    return bytes.toString('base64url');
  }

  private fill(): void {
    if (this.slicesUsed === this.slices.length) {
      this.fillRandom(this.pool);
      this.slicesUsed = 0;
    }
    const random = this.slices[this.slicesUsed++]!;
    const now = this.clock.now();
    if (now > this.timeMs) {
      this.timeMs = now;
      this.counter = random.readUInt32BE(0) >>> 2;
    } else if (++this.counter > 0x7fff_ffff) {
      this.timeMs++;
      this.counter = 0;
    }
    this.layout.random = random;
    this.layout.msecs = this.timeMs;
    this.layout.seq = this.counter;
    v7(this.layout, bytes);
  }
}

const processSource = new EventIdSource();

function uuidText(): string {
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** Value of a hexadecimal digit by character code; 16 marks every other character. */
const digitOf = Uint8Array.from({ length: 128 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16);
  return Number.isNaN(digit) ? 16 : digit;
});

/** Writes the UUID into `bytes`, or returns false when the 36 characters are not shaped as one. */
function packUuid(text: string): boolean {
  let wrong = 0;
  for (let at = 0, to = 0; to < 16; at += 2, to++) {
    if (to === 4 || to === 6 || to === 8 || to === 10) wrong |= text.charCodeAt(at++) ^ 0x2d;
    const high = digitOf[text.charCodeAt(at)] ?? 16;
    const low = digitOf[text.charCodeAt(at + 1)] ?? 16;
    wrong |= (high | low) & 16;
    bytes[to] = (high << 4) | low;
  }
  return wrong === 0;
}

/** Value of a base64url character by its code; 64 marks every other character. */
const sextetOf = Uint8Array.from({ length: 128 }, (_, code) => {
  const sextet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'.indexOf(String.fromCharCode(code));
  return sextet < 0 ? 64 : sextet;
});
const DIGITS = Buffer.from('0123456789abcdef');
const uuid = Buffer.from('00000000-0000-0000-0000-000000000000');
/** Where the digits of a UUID are in its text. */
const PLACES = Array.from(uuid.keys()).filter((place) => uuid[place] !== 0x2d);

/** The text of a packed UUID in one step, since it is made for each message; `null` for what is none. */
function unpackedUuid(wire: string): string | null {
  let wrong = 0;
  let bits = 0;
  let count = 0;
  let digit = 0;
  for (let at = 0; at < WIRE_LENGTH; at++) {
    const sextet = sextetOf[wire.charCodeAt(at)] ?? 64;
    wrong |= sextet & 64;
    bits = ((bits << 6) | sextet) & 0xfff;
    for (count += 6; count >= 4 && digit < PLACES.length; digit++) {
      count -= 4;
      uuid[PLACES[digit]!] = DIGITS[(bits >> count) & 15]!;
    }
  }
  // 22 characters hold four bits more than a UUID has: each UUID has one form only.
  return wrong === 0 && (bits & 15) === 0 ? uuid.toString('latin1') : null;
}

function invalid(message: string, value: unknown): MqInvalidMessageError {
  const shown = typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : value === null ? 'null' : typeof value;
  return new MqInvalidMessageError('MQ_INVALID_MESSAGE', `${message}, got ${shown}`);
}
