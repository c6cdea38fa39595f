import fc from 'fast-check';
import { eventIdFromWire, eventIdToWire } from './event-id.js';
import { decodeMessage, encodeMessage, MalformedEntryError, type StoredMessage } from './message.js';

const WIRE_ID = 'AZC19H4qfD2bHgEjRWeJqw';
const UUID = '0190b5f4-7e2a-7c3d-9b1e-0123456789ab';

const bytesOf = (fields: readonly (string | Buffer)[]): Buffer[] => fields.map((field) => Buffer.from(field));

describe('encodeMessage', () => {
  it('writes the fields in one order, and only those that are given', () => {
    const payload = Buffer.from('p');
    expect(encodeMessage({ payload, key: null, eventId: WIRE_ID })).toEqual(['payload', payload, 'eventId', WIRE_ID]);
    expect(encodeMessage({ ttlMs: 5, timestamp: 7, headers: { a: 'b' }, eventId: WIRE_ID, key: 'k', payload })).toEqual(
      ['payload', payload, 'key', 'k', 'eventId', WIRE_ID, 'headers', '{"a":"b"}', 'timestamp', '7', 'ttl', '5'],
    );
  });

  it('tells the empty key from none', () => {
    const stored = { payload: Buffer.alloc(0), eventId: WIRE_ID };
    expect(decodeMessage(bytesOf(encodeMessage({ ...stored, key: '' }))).key).toBe('');
    expect(decodeMessage(bytesOf(encodeMessage({ ...stored, key: null }))).key).toBeNull();
  });
});

describe('decodeMessage', () => {
  // Keys are well-formed Unicode, which the producer checks; headers may be any text.
  const message: fc.Arbitrary<StoredMessage> = fc.record(
    {
      payload: fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)),
      key: fc.option(fc.string({ unit: 'binary' })),
      eventId: fc
        .oneof(fc.uuid(), fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 128 }))
        .map(eventIdToWire),
      headers: fc.dictionary(
        fc.oneof(
          fc.constant('__proto__'),
          fc.string({ unit: fc.nat({ max: 0xffff }).map((unit) => String.fromCharCode(unit)) }),
        ),
        fc.string({ unit: fc.nat({ max: 0xffff }).map((unit) => String.fromCharCode(unit)) }),
      ),
      timestamp: fc.maxSafeNat(),
      ttlMs: fc.maxSafeNat(),
    },
    { requiredKeys: ['payload', 'key', 'eventId'] },
  );

  it('gives back what was encoded', () => {
    fc.assert(
      fc.property(message, ({ headers = {}, ...rest }) => {
        const { headers: decodedHeaders, ...decoded } = decodeMessage(bytesOf(encodeMessage({ ...rest, headers })));
        expect(decoded).toEqual({ ...rest, eventId: eventIdFromWire(rest.eventId) });
        expect(Object.entries(decodedHeaders)).toEqual(Object.entries(headers));
      }),
      { numRuns: 500 },
    );
  });

  it('reads a message without optional fields', () => {
    expect(decodeMessage(bytesOf(['payload', 'p', 'eventId', WIRE_ID]))).toEqual({
      payload: Buffer.from('p'),
      key: null,
      eventId: UUID,
      headers: Object.create(null) as object,
    });
  });

  it('keeps a header named __proto__ as a header', () => {
    const { headers } = decodeMessage(bytesOf(['payload', 'p', 'eventId', WIRE_ID, 'headers', '{"__proto__":"x"}']));
    expect(Object.entries(headers)).toEqual([['__proto__', 'x']]);
    expect('toString' in headers).toBe(false);
  });

  it('gives headers that no handler can spoil for the next message', () => {
    const { headers } = decodeMessage(bytesOf(['payload', 'p', 'eventId', WIRE_ID]));
    expect(() => Object.assign(headers, { a: 'b' })).toThrow(TypeError);
  });

  it('does not mind the order of the fields, nor fields of others', () => {
    const fields = ['own', 'x', 'eventId', WIRE_ID, 'constructor', 'y', 'payload', 'p', '', ''];
    expect(decodeMessage(bytesOf(fields))).toMatchObject({ payload: Buffer.from('p'), eventId: UUID });
  });

  const whole = { payload: 'p', eventId: WIRE_ID };
  it.each<[string, Record<string, string>]>([
    ['no payload field', { eventId: WIRE_ID }],
    ['no eventId field', { payload: 'p' }],
    ['bad eventId', { ...whole, eventId: UUID }],
    ['bad eventId', { ...whole, eventId: '' }],
    ['headers are not JSON', { ...whole, headers: '' }],
    ['headers are not JSON', { ...whole, headers: '{"a":' }],
    ['headers are not an object', { ...whole, headers: 'null' }],
    ['headers are not an object', { ...whole, headers: '["a"]' }],
    ['headers are not an object', { ...whole, headers: '"a"' }],
    ['a header is not a string', { ...whole, headers: '{"a":1}' }],
    ['a header is not a string', { ...whole, headers: '{"a":null}' }],
    ...['', ' ', 'x', '-1', '+1', '1.5', '1e3', '0x10', ' 1', '1 ', '9007199254740992', 'Infinity'].flatMap(
      (value): [string, Record<string, string>][] => [
        ['bad timestamp', { ...whole, timestamp: value }],
        ['bad ttl', { ...whole, ttl: value }],
      ],
    ),
    ['65 fields', { ...whole, ...Object.fromEntries(Array.from({ length: 63 }, (_, i) => [`x${i}`, ''])) }],
  ])('refuses an entry with %s: %j', (reason, fields) => {
    expect(() => decodeMessage(bytesOf(Object.entries(fields).flat()))).toThrow(
      expect.objectContaining({ code: 'MQ_MALFORMED_ENTRY', message: `malformed stream entry: ${reason}` }),
    );
  });

  it('fails with nothing but a malformed entry, whatever the entry holds', () => {
    const name = fc.constantFrom('payload', 'key', 'eventId', 'headers', 'timestamp', 'ttl', 'own');
    const value = fc.oneof(
      fc.uint8Array({ maxLength: 24 }).map((bytes) => Buffer.from(bytes)),
      fc.json({ maxDepth: 2 }),
      fc.constantFrom(WIRE_ID, '~text', '5'),
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(name, value), { maxLength: 70 }), (pairs) => {
        try {
          decodeMessage(bytesOf(pairs.flat()));
        } catch (error) {
          if (!(error instanceof MalformedEntryError)) throw error;
        }
      }),
      { numRuns: 1_000 },
    );
  });
});
