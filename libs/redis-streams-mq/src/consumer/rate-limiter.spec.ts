import fc from 'fast-check';
import { ManualClock } from '../../../../test/support/manual-clock.js';
import { RateLimiter } from './rate-limiter.js';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('RateLimiter', () => {
  it('lets at most so many begin in any window, and all that it has left', () => {
    const steps = fc.array(fc.nat(30), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 50 }), steps, (count, perMs, gaps) => {
        const clock = new ManualClock();
        const limiter = new RateLimiter({ count, perMs }, clock);
        const begun: number[] = [];
        for (const gap of gaps) {
          clock.advance(gap);
          const now = clock.monotonic();
          const inWindow = begun.filter((at) => at > now - perMs).length;
          expect(limiter.isFree).toBe(inWindow < count);
          expect(limiter.tryTake()).toBe(inWindow < count);
          if (inWindow < count) begun.push(now);
        }
      }),
    );
  });

  it('wakes those who wait in their order, as many as may begin, and lets nobody pass them', async () => {
    const clock = new ManualClock();
    const limiter = new RateLimiter({ count: 2, perMs: 100 }, clock);
    const { signal } = new AbortController();
    expect([limiter.tryTake(), limiter.tryTake(), limiter.tryTake()]).toEqual([true, true, false]);
    const woken: string[] = [];
    for (const name of ['a', 'b', 'c']) {
      void limiter.free(signal).then(() => {
        woken.push(name);
        limiter.tryTake();
      });
    }
    clock.advance(99);
    await turn();
    expect(woken).toEqual([]);
    clock.advance(1);
    expect(limiter.isFree).toBe(false);
    await turn();
    expect(woken).toEqual(['a', 'b']);
    clock.advance(100);
    await turn();
    expect(woken).toEqual(['a', 'b', 'c']);
    expect(clock.pending).toBe(0);
  });

  it('wakes another when one that was woken does not begin', async () => {
    const clock = new ManualClock();
    const limiter = new RateLimiter({ count: 1, perMs: 100 }, clock);
    const { signal } = new AbortController();
    limiter.tryTake();
    const woken: string[] = [];
    for (const name of ['stopped', 'other']) void limiter.free(signal).then(() => woken.push(name));
    clock.advance(100);
    await turn();
    expect(woken).toEqual(['stopped']);
    clock.advance(5);
    await turn();
    expect(woken).toEqual(['stopped', 'other']);
  });

  it('lets those go who are told to stop', async () => {
    const clock = new ManualClock();
    const limiter = new RateLimiter({ count: 1, perMs: 100 }, clock);
    const stopping = new AbortController();
    limiter.tryTake();
    const waiting = limiter.free(stopping.signal);
    stopping.abort();
    await waiting;
    await limiter.free(stopping.signal);
    clock.advance(100);
    expect(limiter.isFree).toBe(true);
  });
});
