import { useMq } from '../support/mq-fixture.js';
import { runHistories } from '../support/order-histories.js';

const mq = useMq();
const seeds = Array.from({ length: 40 }, (_, seed) => seed);

describe('histories of failures, deaths of owners and hand-overs', () => {
  it.each([1, 4])(
    'keep each key in order and lose nothing with retryOrdering key, %i at once',
    async (concurrency) => {
      const { disorder, lost, tried } = await runHistories(mq, seeds, { retryOrdering: 'key', concurrency });
      expect({ disorder, lost }).toEqual({ disorder: [], lost: [] });
      expect(tried.failures).toBeGreaterThan(100);
      expect(tried.deaths).toBeGreaterThan(10);
      expect(tried.handOvers).toBeGreaterThan(5);
    },
    120_000,
  );

  it('lose nothing but the order when nothing is held back', async () => {
    const { disorder, lost } = await runHistories(mq, seeds, { retryOrdering: 'relaxed' });
    expect(lost).toEqual([]);
    expect(disorder.length).toBeGreaterThan(100);
  }, 120_000);
});
