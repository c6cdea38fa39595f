import fc from 'fast-check';
import { compareStreamIds, isStreamId, nextStreamId, previousStreamId, streamIdTime } from './stream-id.js';

const MAX = 2n ** 64n - 1n;
const part = fc.oneof(
  fc.bigInt({ min: 0n, max: MAX }),
  fc.bigInt({ min: 0n, max: 120n }),
  fc.integer({ min: 0, max: 19 }).map((digits) => 10n ** BigInt(digits)),
  fc.constantFrom(0n, MAX - 1n, MAX),
);
const pair = fc.tuple(part, part);
const text = ([ms, seq]: readonly [bigint, bigint]): string => `${ms}-${seq}`;
const number = ([ms, seq]: readonly [bigint, bigint]): bigint => (ms << 64n) | seq;
const sign = (value: bigint): number => (value < 0n ? -1 : Number(value > 0n));

describe('compareStreamIds', () => {
  it.each([
    ['1-1', '1-1', 0],
    ['10-1', '9-10', 1],
    ['1-9', '1-10', -1],
    ['2-9', '1-10', 1],
    ['1700000000000-0', '1700000000000-1', -1],
    ['999-18446744073709551615', '1000-0', -1],
  ])('puts %s and %s in the order of the stream', (a, b, expected) => {
    expect(Math.sign(compareStreamIds(a, b))).toBe(expected);
    expect(Math.sign(compareStreamIds(b, a))).toBe(0 - expected);
  });

  it('agrees with 128-bit comparison for any two ids', () => {
    fc.assert(
      fc.property(pair, pair, fc.boolean(), (a, other, sameTime) => {
        const b: readonly [bigint, bigint] = sameTime ? [a[0], other[1]] : other;
        expect(Math.sign(compareStreamIds(text(a), text(b)))).toBe(sign(number(a) - number(b)));
      }),
      { numRuns: 1000 },
    );
  });
});

describe('isStreamId', () => {
  it('accepts every id that Redis can write', () => {
    fc.assert(fc.property(pair, (id) => expect(isStreamId(text(id))).toBe(true)));
  });

  it.each([
    '',
    '-',
    '1',
    '1-',
    '-1',
    '1-1-1',
    '01-1',
    '1-01',
    '1-1 ',
    '1-1\n',
    '+1-1',
    '1.0-1',
    '$',
    '>',
    '*',
    '١-١',
    '18446744073709551616-0',
    '0-18446744073709551616',
    '99999999999999999999-0',
    '184467440737095516150-0',
    7,
    null,
    undefined,
    ['1-1'],
  ])('refuses %j', (value) => {
    expect(isStreamId(value)).toBe(false);
  });
});

describe('streamIdTime', () => {
  it('is the part before the dash', () => {
    expect(streamIdTime('1764547200123-7')).toBe(1764547200123);
    expect(streamIdTime('0-1')).toBe(0);
  });
});

describe('nextStreamId and previousStreamId', () => {
  it.each([
    ['0-0', '0-1'],
    ['5-18446744073709551615', '6-0'],
    ['1764547200123-9', '1764547200123-10'],
    ['18446744073709551615-18446744073709551614', '18446744073709551615-18446744073709551615'],
  ])('has nothing between %s and %s', (id, next) => {
    expect(nextStreamId(id)).toBe(next);
    expect(previousStreamId(next)).toBe(id);
  });

  it('are one apart for any id', () => {
    fc.assert(
      fc.property(pair, (id) => {
        fc.pre(number(id) < (MAX << 64n) + MAX);
        const next = nextStreamId(text(id));
        const [ms, seq] = next.split('-');
        expect(number([BigInt(ms!), BigInt(seq!)])).toBe(number(id) + 1n);
        expect(previousStreamId(next)).toBe(text(id));
      }),
      { numRuns: 500 },
    );
  });

  it('throw at the ends instead of giving an id that is none', () => {
    expect(() => previousStreamId('0-0')).toThrow(RangeError);
    expect(() => nextStreamId('18446744073709551615-18446744073709551615')).toThrow(RangeError);
  });
});
