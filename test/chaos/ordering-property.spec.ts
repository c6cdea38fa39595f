import { useMq } from '../support/mq-fixture.js';
import { type Findings, runHistories } from '../support/order-histories.js';

const mq = useMq();
const AT_ONCE = 50;
const RUNS = 1_000;

describe('a thousand histories of failures, deaths of owners and hand-overs', () => {
  it('keep each key in order and lose nothing with retryOrdering key', async () => {
    const found: Findings[] = [];
    for (let from = 0; from < RUNS; from += AT_ONCE) {
      const seeds = Array.from({ length: AT_ONCE }, (_, i) => from + i);
      const concurrency = (from / AT_ONCE) % 2 === 0 ? 1 : 4;
      found.push(await runHistories(mq, seeds, { retryOrdering: 'key', concurrency }));
    }
    expect(found.every(({ tried }) => tried.failures > 0 && tried.deaths > 0 && tried.handOvers > 0)).toBe(true);
    expect(found.flatMap(({ disorder, lost }) => [...disorder, ...lost])).toEqual([]);
  }, 1_800_000);
});
