import fc from 'fast-check';
import { bytesSerializer, jsonSerializer } from './serializer.js';

const roundTrip = (value: unknown): unknown => jsonSerializer.deserialize(jsonSerializer.serialize(value));

describe('jsonSerializer', () => {
  it('gives back every JSON value', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(roundTrip(value)).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it('writes UTF-8', () => {
    expect(jsonSerializer.serialize({ a: 'é😀' })).toEqual(Buffer.from('{"a":"é😀"}', 'utf8'));
    expect(roundTrip('\ud800')).toBe('\ud800');
  });

  it.each([
    ['undefined', undefined, 'JSON has no form for undefined'],
    ['a function', () => 1, 'JSON has no form for a function'],
    ['a symbol', Symbol('s'), 'JSON has no form for a symbol'],
    [
      'a toJSON without a result',
      { toJSON: () => undefined },
      'JSON has no form for an object whose toJSON() gives nothing',
    ],
    ['a BigInt', 1n, 'the payload cannot be written as JSON: Do not know how to serialize a BigInt'],
    ['a BigInt inside', { a: [1n] }, 'the payload cannot be written as JSON: Do not know how to serialize a BigInt'],
    ['a throwing toJSON', { toJSON: thrower(new Error('no')) }, 'the payload cannot be written as JSON: no'],
    [
      'a toJSON that throws text',
      [{ toJSON: thrower('no') }],
      "the payload cannot be written as JSON: toJSON threw 'no'",
    ],
  ])('refuses %s and says why', (_, value, message) => {
    expect(() => jsonSerializer.serialize(value)).toThrow(expect.objectContaining({ name: 'TypeError', message }));
  });

  it('refuses a cycle, names its path and keeps the cause', () => {
    const order: Record<string, unknown> = {};
    order['self'] = order;
    expect(() => jsonSerializer.serialize(order)).toThrow(
      expect.objectContaining({
        message: expect.stringMatching(
          /^the payload cannot be written as JSON: Converting circular structure[^]*'self'/,
        ),
        cause: expect.any(TypeError),
      }),
    );
  });

  it.each([
    ['a Buffer', Buffer.from('x')],
    ['a Uint8Array', new Uint8Array(2)],
    ['another view', new Float64Array(2)],
    ['an ArrayBuffer', new ArrayBuffer(2)],
  ])('refuses %s and names bytesSerializer', (_, value) => {
    expect(() => jsonSerializer.serialize(value)).toThrow(/bytesSerializer/);
  });

  it('keeps __proto__ keys as own properties and pollutes nothing', () => {
    const bytes = Buffer.from('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}');
    const value = jsonSerializer.deserialize(bytes) as object;
    expect(Object.keys(value)).toEqual(['__proto__', 'constructor']);
    expect(Object.getPrototypeOf(value)).toBe(Object.getPrototypeOf(JSON.parse('{}')));
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
    expect(jsonSerializer.serialize(value)).toEqual(bytes);
  });

  it.each([
    ['text that is not JSON', Buffer.from('secret'), new SyntaxError('the payload (6 bytes) is not JSON')],
    ['nothing', Buffer.alloc(0), new SyntaxError('the payload (0 bytes) is not JSON')],
    ['bytes that are not UTF-8', Buffer.from([0x22, 0xff, 0x22]), new TypeError('the payload (3 bytes) is not UTF-8')],
  ])('refuses %s without quoting it', (_, bytes, error) => {
    expect(() => jsonSerializer.deserialize(bytes)).toThrow(error);
  });
});

describe('bytesSerializer', () => {
  it('gives any bytes back as they were', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        const back = bytesSerializer.deserialize(bytesSerializer.serialize(bytes));
        expect(Buffer.isBuffer(back)).toBe(true);
        expect(back).toEqual(Buffer.from(bytes));
      }),
    );
  });

  it('takes exactly the window of a view', () => {
    const window = new Uint8Array([1, 2, 3, 4]).subarray(1, 3);
    expect(bytesSerializer.serialize(window)).toEqual(Buffer.from([2, 3]));
  });

  it('does not copy a Buffer', () => {
    const bytes = Buffer.from('x');
    expect(bytesSerializer.serialize(bytes)).toBe(bytes);
  });

  it.each([
    ['text', 'string'],
    [{ a: 1 }, 'object'],
    [null, 'null'],
    [undefined, 'undefined'],
    [new ArrayBuffer(1), 'object'],
  ])('refuses %p', (value, shown) => {
    expect(() => bytesSerializer.serialize(value)).toThrow(
      new TypeError(`bytesSerializer takes a Buffer or Uint8Array, not ${shown}`),
    );
  });
});

function thrower(thrown: unknown): () => never {
  return () => {
    throw thrown;
  };
}
