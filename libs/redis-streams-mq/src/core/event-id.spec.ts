import fc from 'fast-check';
import { MqInvalidMessageError } from './errors.js';
import { EventIdSource, eventIdFromWire, eventIdToWire, newEventId, newWireEventId } from './event-id.js';

const V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const PACKED = /^[A-Za-z0-9_-]{22}$/;
const UUID_SHAPE = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

const uuidText = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) =>
  Buffer.from(bytes)
    .toString('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-'),
);
const printable = fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 128 });

function timeOf(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}

describe('new event ids', () => {
  it('are UUIDs of version 7 that carry the time', () => {
    const before = Date.now();
    const id = newEventId();
    expect(id).toMatch(V7);
    expect(timeOf(id)).toBeGreaterThanOrEqual(before);
  });

  it('travel as 22 characters', () => {
    const wire = newWireEventId();
    expect(wire).toMatch(PACKED);
    expect(eventIdFromWire(wire)).toMatch(V7);
    expect(eventIdToWire(eventIdFromWire(wire))).toBe(wire);
  });

  it('increase in order of their making, in both forms', () => {
    const ids = Array.from({ length: 20_000 }, (_, i) => (i % 2 ? newEventId() : eventIdFromWire(newWireEventId())));
    expect(ids.every((id, i) => i === 0 || ids[i - 1]! < id)).toBe(true);
  });
});

describe('EventIdSource', () => {
  it('counts up while the clock stands still, and asks for random bytes again when they are used up', () => {
    let fills = 0;
    const source = new EventIdSource({ now: () => 1764547200000 }, (target) => target.fill(++fills));
    const ids = Array.from({ length: 600 }, () => source.next());
    expect(new Set(ids).size).toBe(600);
    expect([...ids].sort()).toEqual(ids);
    expect(new Set(ids.map(timeOf))).toEqual(new Set([1764547200000]));
    expect(ids[0]!.slice(-10)).toBe('0101010101');
    expect(ids.at(-1)!.slice(-10)).toBe('0303030303');
  });

  it('goes on from the latest time when the clock is set back', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 2 ** 45 }), { minLength: 2, maxLength: 50 }), (times) => {
        const clock = times[Symbol.iterator]();
        const source = new EventIdSource({ now: () => clock.next().value ?? 1 });
        let latest = 0;
        let previous = '';
        for (const time of times) {
          const id = source.next();
          latest = Math.max(latest, time);
          expect(id > previous).toBe(true);
          expect(timeOf(id)).toBe(latest);
          previous = id;
        }
      }),
    );
  });

  it('seeds the counter at random in each millisecond, so that two processes do not meet', () => {
    let now = 1;
    const source = new EventIdSource({ now: () => now++ });
    const counters = new Set(Array.from({ length: 500 }, () => source.next().slice(15, 23)));
    expect(counters.size).toBeGreaterThan(490);
  });
});

describe('eventIdToWire and eventIdFromWire', () => {
  it.each([
    ['00000000-0000-0000-0000-000000000000', 'AAAAAAAAAAAAAAAAAAAAAA'],
    ['ffffffff-ffff-ffff-ffff-ffffffffffff', '_____________________w'],
    ['0190b5f4-7e2a-7c3d-9b1e-0123456789ab', 'AZC19H4qfD2bHgEjRWeJqw'],
    ['order-17', '~order-17'],
    ['~order-17', '~~order-17'],
    ['AZC19H4qfD2bHgEjRWeJqw', '~AZC19H4qfD2bHgEjRWeJqw'],
    ['0190b5f47e2a7c3d9b1e0123456789ab', '~0190b5f47e2a7c3d9b1e0123456789ab'],
    ['0190b5f4-7e2a-7c3d-9b1e-0123456789ag', '~0190b5f4-7e2a-7c3d-9b1e-0123456789ag'],
    ['0190b5f4+7e2a-7c3d-9b1e-0123456789ab', '~0190b5f4+7e2a-7c3d-9b1e-0123456789ab'],
    [' ', '~ '],
  ])('packs %j as %j and back', (id, wire) => {
    expect(eventIdToWire(id)).toBe(wire);
    expect(eventIdFromWire(wire)).toBe(id);
  });

  it('takes upper case UUID text for lower case', () => {
    expect(eventIdToWire('0190B5F4-7E2A-7C3D-9B1E-0123456789AB')).toBe('AZC19H4qfD2bHgEjRWeJqw');
  });

  it('gives every UUID back, whatever its version, from 22 characters', () => {
    fc.assert(
      fc.property(uuidText, fc.boolean(), (id, upper) => {
        const wire = eventIdToWire(upper ? id.toUpperCase() : id);
        expect(wire).toBe(Buffer.from(id.replaceAll('-', ''), 'hex').toString('base64url'));
        expect(eventIdFromWire(wire)).toBe(id);
      }),
    );
  });

  it('gives every other printable text back', () => {
    fc.assert(
      fc.property(printable, (id) => {
        fc.pre(!UUID_SHAPE.test(id));
        expect(eventIdFromWire(eventIdToWire(id))).toBe(id);
      }),
    );
  });

  it('has one wire form for each id: what it accepts is what it makes', () => {
    const wire = fc.oneof(
      fc.string({ unit: fc.constantFrom(...'AQgwz09_-~'.split('')), minLength: 20, maxLength: 24 }),
      printable.map((text) => `~${text}`),
      uuidText.map((text) => `~${text}`),
      printable,
    );
    fc.assert(
      fc.property(wire, (text) => {
        const id = accepted(text);
        expect(id === undefined ? text : eventIdToWire(id)).toBe(text);
      }),
      { numRuns: 1000 },
    );
  });

  it.each(['', 'x'.repeat(129), 'ü', 'a\n', '\x7f', 'a😀'.repeat(12), `0190b5f4-7e2a-7c3d-9b1e-0123456789a\u0130`])(
    'refuses the id %j',
    (id) => {
      expect(() => eventIdToWire(id)).toThrow(expect.objectContaining({ code: 'MQ_INVALID_MESSAGE' }));
    },
  );

  it.each([7, null, undefined, {}, ['order-17'], Symbol('id')])(
    'refuses %p, which is no string, in both directions',
    (value) => {
      expect(() => eventIdToWire(value as string)).toThrow(MqInvalidMessageError);
      expect(() => eventIdFromWire(value as string)).toThrow(MqInvalidMessageError);
    },
  );

  it.each([
    '',
    '~',
    'order-17',
    'AAAAAAAAAAAAAAAAAAAAA',
    'AAAAAAAAAAAAAAAAAAAAAB',
    'AAAAAAAAAAAAAAAAAAAAAA==',
    'AAAAAAAAAAAAAAAAAAAA+A',
    '~ü',
    `~${'x'.repeat(129)}`,
    '~0190b5f4-7e2a-7c3d-9b1e-0123456789ab',
    '0190b5f4-7e2a-7c3d-9b1e-0123456789ab',
  ])('refuses the stored form %j', (wire) => {
    expect(() => eventIdFromWire(wire)).toThrow(
      expect.objectContaining({
        code: 'MQ_INVALID_MESSAGE',
        message: `the stored eventId is neither a packed UUID nor marked text, got ${JSON.stringify(wire.slice(0, 40))}`,
      }),
    );
  });
});

function accepted(wire: string): string | undefined {
  try {
    return eventIdFromWire(wire);
  } catch (error) {
    if (error instanceof MqInvalidMessageError) return undefined;
    throw error;
  }
}
