import { simulate } from './simulation.js';

describe('simulate', () => {
  it('moves what has to move and nothing else, in balance', () => {
    const { steps, topics } = simulate(40, 410);
    expect(topics).toBe(1);
    expect(steps.map(({ name, moved, neededToMove }) => [name, moved - neededToMove])).toEqual(
      steps.map(({ name }) => [name, 0]),
    );
    expect(Math.max(...steps.map(({ spread }) => spread))).toBe(1);
    expect(steps[1]).toMatchObject({ name: 'nothing changes', moved: 0 });
  });

  it('spreads partitions over as many topics as they need, and serves one instance alone', () => {
    expect(simulate(1, 5_000)).toMatchObject({ topics: 2, partitions: 5_000 });
    expect(simulate(2, 3).steps).toHaveLength(7);
  });
});
