import fc from 'fast-check';
import { MqInvalidMessageError } from './errors.js';
import { checkPartition, createPartitioner, keyPartition, murmur2, toPositive } from './partitioner.js';

const GOLDEN: [key: string, ofThree: number, ofEight: number, of64: number][] = [
  ['', 0, 1, 25],
  ['0', 2, 4, 4],
  ['a', 1, 4, 60],
  ['customer-1', 0, 1, 1],
  ['21', 0, 4, 44],
  ['foobar', 0, 6, 62],
  ['ä😀', 1, 4, 28],
  ['\u0000', 2, 4, 60],
  ['\u00e9', 0, 7, 7],
  ['e\u0301', 1, 3, 27],
  ['👨‍👩‍👧‍👦', 0, 3, 59],
  ['שלום', 1, 1, 25],
  ['xxxxx', 2, 4, 52],
];

describe('murmur2', () => {
  it.each([
    ['21', -973932308],
    ['foobar', -790332482],
    ['a-little-bit-long-string', -985981536],
    ['a-little-bit-longer-string', -1486304829],
    ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
    ['abc', 479470107],
  ])("DATA-10 gives the value of Kafka's UtilsTest for %j", (text, hash) => {
    expect(murmur2(Buffer.from(text))).toBe(hash);
  });

  it('DATA-10 agrees with a transcription of the Java code for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 70 }), (bytes) => {
        expect(murmur2(bytes)).toBe(javaMurmur2(bytes));
      }),
    );
  });
});

describe('keyPartition', () => {
  it('DATA-10 clears the sign bit as Kafka does', () => {
    expect(toPositive(-973932308)).toBe(1173551340);
    expect(toPositive(-2147483648)).toBe(0);
    expect(toPositive(479470107)).toBe(479470107);
    expect(keyPartition(Buffer.from('21'), 12)).toBe(1173551340 % 12);
  });

  it('DATA-02 DATA-10 gives text and its UTF-8 bytes the same partition, at any length', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc.string({ unit: fc.constantFrom('a', 'ß', '語', '😀', '\ud800'), minLength: 200, maxLength: 1500 }),
    );
    fc.assert(
      fc.property(text, fc.integer({ min: 1, max: 5000 }), (key, count) => {
        const partition = keyPartition(key, count);
        expect(partition).toBe(keyPartition(Buffer.from(key), count));
        expect(checkPartition(partition, count)).toBe(partition);
      }),
    );
  });
});

describe('the spread of 100,000 keys', () => {
  const keysOf: [what: string, make: (i: number) => string | Buffer][] = [
    ['numbers', (i) => String(i)],
    ['names with a number', (i) => `customer-${i}`],
    ['text beyond ASCII', (i) => `kundin-ä-😀-${i}-語`],
    ['bytes', (i) => Buffer.from([0xff, i & 0xff, (i >> 8) & 0xff, (i >> 16) & 0xff, 0x80])],
    ['UUIDs', (i) => `0190a6b2-7a4e-7c3b-8f00-${i.toString(16).padStart(12, '0')}`],
  ];
  /** What chi-square with so many degrees of freedom exceeds once in a million times. */
  const LIMITS = new Map([
    [1, 0],
    [3, 27.7],
    [8, 40.6],
    [64, 129.1],
  ]);

  it.each(keysOf)('DATA-10 is even over 1, 3, 8 and 64 partitions, and inside them, for %s', (_what, make) => {
    for (const [count, limit] of LIMITS) {
      const found = Array.from({ length: count }, () => 0);
      for (let i = 0; i < 100_000; i++) found[checkPartition(keyPartition(make(i), count), count)]! += 1;
      const expected = 100_000 / count;
      const chiSquare = found.reduce((sum, n) => sum + (n - expected) ** 2 / expected, 0);
      expect([count, chiSquare > limit && chiSquare]).toEqual([count, false]);
    }
  });

  // Messages that are stored lie where these say: a change of any number would break the order of keys on an upgrade.
  it.each(GOLDEN)(
    'DATA-10 DATA-09 %j stays in the same partition of 3, 8 and 64, in every version',
    (key, ...partitions) => {
      expect([3, 8, 64].map((count) => keyPartition(key, count))).toEqual(partitions);
    },
  );
});

describe('createPartitioner', () => {
  it('sends a key to the partition of its hash, whatever came before', () => {
    const partitioner = createPartitioner();
    for (let i = 0; i < 10; i++) {
      partitioner(null, 16, 'orders');
      expect(partitioner(Buffer.from('foobar'), 16, 'orders')).toBe(keyPartition('foobar', 16));
    }
  });

  it('DATA-09 deals keyless messages to the partitions in turn, each topic on its own', () => {
    const partitioner = createPartitioner(() => 0.5);
    const take = (topic: string) => Array.from({ length: 5 }, () => partitioner(null, 4, topic));
    expect(take('orders')).toEqual([2, 3, 0, 1, 2]);
    expect(take('payments')).toEqual([2, 3, 0, 1, 2]);
    expect(take('orders')).toEqual([3, 0, 1, 2, 3]);
  });

  it('stays inside the partitions and even when their number changes', () => {
    const counts = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 40 });
    fc.assert(
      fc.property(counts, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (partitionCounts, start) => {
        const partitioner = createPartitioner(() => start);
        for (const count of partitionCounts) {
          const dealt = Array.from({ length: count }, () => 0);
          for (let i = 0; i < count * 3; i++) dealt[checkPartition(partitioner(null, count, 't'), count)]! += 1;
          expect(new Set(dealt)).toEqual(new Set([3]));
        }
      }),
    );
  });

  it('starts different producers at different partitions', () => {
    const starts = new Set(Array.from({ length: 200 }, () => createPartitioner()(null, 4, 'orders')));
    expect(starts).toEqual(new Set([0, 1, 2, 3]));
  });
});

describe('checkPartition', () => {
  it.each([0, 1, 3])('accepts %p of 4', (value) => {
    expect(checkPartition(value, 4)).toBe(value);
  });

  it.each([
    [-1, '-1'],
    [4, '4'],
    [1.5, '1.5'],
    [Number.NaN, 'NaN'],
    [Number.POSITIVE_INFINITY, 'Infinity'],
    ['1', '"1"'],
    [null, 'object'],
    [undefined, 'undefined'],
    [1n, 'bigint'],
    [Promise.resolve(1), 'object'],
  ])('DATA-10 refuses %p of 4 with the range in the message', (value, shown) => {
    expect(() => checkPartition(value, 4)).toThrow(MqInvalidMessageError);
    expect(() => checkPartition(value, 4)).toThrow(
      expect.objectContaining({
        code: 'MQ_INVALID_PARTITION',
        message: `partition must be an integer from 0 to 3, got ${shown}`,
      }),
    );
  });
});

/** The Java code line by line, on BigInt, so that no trick of 32-bit JavaScript arithmetic is shared with ours. */
function javaMurmur2(data: Uint8Array): number {
  const int = (value: bigint): bigint => BigInt.asUintN(32, value);
  const at = (index: number): bigint => BigInt(data[index]!);
  const m = 0x5bd1e995n;
  let h = int(0x9747b28cn ^ BigInt(data.length));
  const words = Math.floor(data.length / 4);
  for (let i = 0; i < words; i++) {
    let k = at(4 * i) + (at(4 * i + 1) << 8n) + (at(4 * i + 2) << 16n) + (at(4 * i + 3) << 24n);
    k = int(k * m);
    k ^= k >> 24n;
    k = int(k * m);
    h = int(h * m) ^ k;
  }
  const rest = data.length % 4;
  if (rest >= 3) h ^= at(4 * words + 2) << 16n;
  if (rest >= 2) h ^= at(4 * words + 1) << 8n;
  if (rest >= 1) h = int((h ^ at(4 * words)) * m);
  h ^= h >> 13n;
  h = int(h * m);
  h ^= h >> 15n;
  return Number(BigInt.asIntN(32, h));
}
