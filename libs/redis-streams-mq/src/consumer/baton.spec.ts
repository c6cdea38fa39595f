import { setImmediate as turn } from 'node:timers/promises';
import { Baton } from './baton.js';

const [a, b, c] = [{ name: 'a' }, { name: 'b' }, { name: 'c' }];

/** Notes who gets it, in order. */
function watched() {
  const baton = new Baton();
  const taken: string[] = [];
  const take = (holder: { name: string }): void => {
    void baton.take(holder).then(() => taken.push(holder.name));
  };
  return { baton, taken, take };
}

it('is with one at a time, who keeps it from step to step', () => {
  const { baton } = watched();
  expect(baton.tryTake(a)).toBe(true);
  expect(baton.tryTake(b)).toBe(false);
  expect(baton.tryTake(a)).toBe(true);
});

it('is given on in the order in which others asked', async () => {
  const { baton, taken, take } = watched();
  baton.tryTake(a);
  take(b);
  take(c);
  baton.give(a);
  await Promise.resolve();
  expect(taken).toEqual(['b']);
  expect([baton.tryTake(a), baton.tryTake(b)]).toEqual([false, true]);
  baton.give(b);
  await Promise.resolve();
  expect(taken).toEqual(['b', 'c']);
});

it('is given by nobody who does not have it', () => {
  const { baton } = watched();
  baton.tryTake(a);
  baton.give(b);
  expect(baton.tryTake(b)).toBe(false);
});

it('stays with a holder that goes on in each turn of the event loop', async () => {
  const { baton, taken, take } = watched();
  baton.tryTake(a);
  take(b);
  for (let i = 0; i < 20; i++) {
    baton.tryTake(a);
    await turn();
  }
  expect(taken).toEqual([]);
});

it('leaves a holder that waits for something, and everybody who does so after it', async () => {
  const { baton, taken, take } = watched();
  baton.tryTake(a);
  take(b);
  take(c);
  for (let i = 0; i < 10; i++) await turn();
  expect(taken).toEqual(['b', 'c']);
});
