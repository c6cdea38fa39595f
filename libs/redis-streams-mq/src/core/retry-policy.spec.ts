import fc from 'fast-check';
import { Backoff, backoffMs } from './retry-policy.js';

const bounds = { baseMs: 1000, maxMs: 60_000 };
const none = (): number => 0;
const half = (): number => 0.5;
const most = (): number => 1 - Number.EPSILON / 2;
const randomNumber = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const milliseconds = fc.integer({ min: 1, max: 7 * 86_400_000 });

describe('backoffMs', () => {
  it.each([
    [1, 1000],
    [2, 2000],
    [3, 4000],
    [6, 32_000],
    [7, 60_000],
    [2000, 60_000],
  ])('waits between half of and the whole delay after attempt %i', (attempt, delay) => {
    expect(backoffMs(attempt, bounds, none)).toBe(delay / 2);
    expect(backoffMs(attempt, bounds, half)).toBe(delay * 0.75);
    expect(backoffMs(attempt, bounds, most)).toBe(delay);
  });

  it.each([0, -1, -Infinity, Number.NaN, 0.5, 1.9])('takes attempt %p for the first', (attempt) => {
    expect(backoffMs(attempt, bounds, most)).toBe(1000);
  });

  it.each([Infinity, Number.MAX_SAFE_INTEGER, 1e308])('DEL-19 stays at the maximum for attempt %p', (attempt) => {
    expect(backoffMs(attempt, bounds, most)).toBe(60_000);
  });

  it('never waits longer than the maximum, even when the base is above it', () => {
    expect(backoffMs(1, { baseMs: 5000, maxMs: 100 }, most)).toBe(100);
  });

  it('waits at least a millisecond', () => {
    expect(backoffMs(1, { baseMs: 1, maxMs: 1 }, none)).toBe(1);
    expect(backoffMs(2000, { baseMs: 0, maxMs: 60_000 }, most)).toBe(1);
  });

  it('is an integer from half of the delay to the delay for any attempt and bounds', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: -5, max: 3000 }),
        milliseconds,
        milliseconds,
        randomNumber,
        (n, baseMs, maxMs, r) => {
          const wait = backoffMs(n, { baseMs, maxMs }, () => r);
          const delay = Math.min(baseMs * 2 ** Math.min(Math.max(n - 1, 0), 60), maxMs);
          expect(Number.isInteger(wait)).toBe(true);
          expect(wait).toBeGreaterThanOrEqual(delay / 2);
          expect(wait).toBeLessThanOrEqual(delay);
        },
      ),
    );
  });
});

describe('Backoff', () => {
  it('doubles its ceiling up to the maximum and starts again after a reset', () => {
    const backoff = new Backoff({ minMs: 50, maxMs: 1000 }, most);
    const first = [100, 200, 400, 800, 1000, 1000];
    expect(first.map(() => backoff.next())).toEqual(first);
    backoff.reset();
    expect(backoff.next()).toBe(100);
  });

  it('spreads from the minimum on', () => {
    const backoff = new Backoff({ minMs: 50, maxMs: 1000 }, none);
    expect([backoff.next(), backoff.next(), backoff.next()]).toEqual([50, 50, 50]);
  });

  it('is an integer within its range however often it is asked', () => {
    fc.assert(
      fc.property(milliseconds, milliseconds, randomNumber, (a, b, r) => {
        const range = { minMs: Math.min(a, b), maxMs: Math.max(a, b) };
        const backoff = new Backoff(range, () => r);
        for (let i = 0; i < 1100; i++) {
          const wait = backoff.next();
          if (!Number.isInteger(wait) || wait < range.minMs || wait > range.maxMs) throw new Error(`waits ${wait}`);
        }
      }),
      { numRuns: 50 },
    );
  });
});
