import * as fc from 'fast-check';
import { DeadLetterTally, UNCOUNTED, type Counted } from './dead-letter-tally.js';

interface Letter {
  readonly id: number;
  readonly reason: string;
}

/** What the script answers about these letters. */
function look(letters: readonly Letter[], after: string, limit: number): Counted {
  const behind = letters.filter(({ id }) => id > Number.parseInt(after, 10)).slice(0, limit);
  return {
    length: letters.length,
    lastId: behind.length === 0 ? null : `${behind.at(-1)!.id}-0`,
    isEnd: behind.length < limit,
    counts: behind.map(({ reason }) => ({ group: 'g', reason, count: 1 })),
  };
}

function sample(tally: DeadLetterTally, letters: readonly Letter[], pages: number, limit = 4): void {
  for (let isMore = true; isMore && pages > 0; pages--) {
    const after = tally.next(letters.length);
    isMore = after !== null && tally.add(look(letters, after, limit));
  }
}

const resultOf = (tally: DeadLetterTally): Record<string, number> =>
  Object.fromEntries(tally.result.map(({ reason, count }) => [reason, count]));

describe('DeadLetterTally', () => {
  it('always adds up to the length, and is exact once it had the time to count, whatever came and went', () => {
    const change = fc.oneof(
      fc.record({ add: fc.constantFrom('exhausted', 'rejected', 'expired') }),
      fc.record({ remove: fc.nat() }),
    );
    fc.assert(
      fc.property(
        fc.array(fc.array(change, { maxLength: 12 }), { maxLength: 10 }),
        fc.integer({ min: 1, max: 3 }),
        (rounds, pages) => {
          const tally = new DeadLetterTally();
          let letters: Letter[] = [];
          let next = 1;
          for (const round of rounds) {
            for (const each of round) {
              if ('add' in each) letters.push({ id: next++, reason: each.add });
              else letters = letters.filter((_, i) => i !== each.remove % Math.max(1, letters.length));
            }
            sample(tally, letters, pages);
            const shown = Object.values(resultOf(tally)).reduce((sum, count) => sum + count, 0);
            expect(shown).toBe(letters.length);
          }
          sample(tally, letters, 1_000);
          const expected: Record<string, number> = {};
          for (const { reason } of letters) expected[reason] = (expected[reason] ?? 0) + 1;
          expect(resultOf(tally)).toEqual(expected);
        },
      ),
    );
  });

  it('reads each letter once, and calls those that it has not read yet uncounted', () => {
    const letters = Array.from({ length: 10 }, (_, i) => ({ id: i + 1, reason: 'exhausted' }));
    const tally = new DeadLetterTally();
    sample(tally, letters, 1);
    expect(resultOf(tally)).toEqual({ exhausted: 4, [UNCOUNTED]: 6 });
    sample(tally, letters, 9);
    expect(resultOf(tally)).toEqual({ exhausted: 10 });
    expect(tally.next(10)).toBe('10-0');
  });
});
