import fc from 'fast-check';
import { EntryQueue } from './entry-queue.js';
import { toEntry, type Entry } from './entry.js';

const entry = (n: number, lane?: string): Entry => ({
  ...toEntry('stream', { id: `${n}-0`, fields: [] }, false),
  lane,
});
const byLane = (given: Entry): string | undefined => given.lane;
const queueOf = (...entries: Entry[]): EntryQueue => {
  const queue = new EntryQueue(1, () => undefined, byLane);
  queue.push(entries);
  return queue;
};
const takeAll = (queue: EntryQueue): string[] => {
  const taken: string[] = [];
  for (let next = queue.take(); next !== undefined; next = queue.take()) taken.push(next.id);
  return taken;
};

describe('the queue of a partition', () => {
  it('gives one entry of each lane, and the next of a lane when the one before is out of the way', () => {
    const [a1, a2, b1, a3, free] = [entry(1, 'a'), entry(2, 'a'), entry(3, 'b'), entry(4, 'a'), entry(5)];
    const queue = queueOf(a1, a2, b1, a3, free);
    expect(takeAll(queue)).toEqual(['1-0', '3-0', '5-0']);
    expect(queue.length).toBe(2);
    queue.free(b1);
    expect(queue.take()).toBeUndefined();
    queue.free(a1);
    queue.free(a1);
    expect(takeAll(queue)).toEqual(['2-0']);
    queue.free(a2);
    expect(takeAll(queue)).toEqual(['4-0']);
  });

  it('gives what came free before what came later', () => {
    const a1 = entry(1, 'a');
    const queue = queueOf(a1, entry(2, 'a'));
    queue.take();
    expect(queue.peek()).toBeUndefined();
    queue.push([entry(3, 'c')]);
    queue.free(a1);
    expect(takeAll(queue)).toEqual(['2-0', '3-0']);
  });

  it('keeps the lanes of what was taken when all that waits is replaced, and no others', () => {
    const [a1, a2, b1, b2] = [entry(1, 'a'), entry(2, 'a'), entry(3, 'b'), entry(4, 'b')];
    const queue = queueOf(a1, a2, b1, b2);
    expect(takeAll(queue)).toEqual(['1-0', '3-0']);
    queue.free(b1);
    queue.replace([entry(0, 'a'), a2, b2]);
    expect(takeAll(queue)).toEqual(['4-0']);
    queue.free(a1);
    expect(takeAll(queue)).toEqual(['0-0']);
    queue.clear();
    expect(queue.length).toBe(0);
  });

  it('gives nothing while it is frozen', () => {
    const queue = queueOf(entry(1));
    queue.freeze();
    expect([queue.peek(), queue.take()]).toEqual([undefined, undefined]);
    queue.thaw();
    expect(queue.take()?.id).toBe('1-0');
  });

  it('says once that it has run low, each time', () => {
    let lows = 0;
    const queue = new EntryQueue(2, () => lows++);
    queue.push([entry(1), entry(2), entry(3)]);
    takeAll(queue);
    expect(lows).toBe(1);
    queue.push([entry(4)]);
    takeAll(queue);
    expect(lows).toBe(1);
    queue.push([entry(5), entry(6)]);
    takeAll(queue);
    expect(lows).toBe(2);
  });

  it('loses nothing and keeps every lane in order, whatever is taken and freed when', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('a', 'b', 'c', undefined)),
        fc.infiniteStream(fc.nat()),
        (lanes, choices) => {
          const entries = lanes.map((lane, n) => entry(n + 1, lane));
          const queue = new EntryQueue(1, () => undefined, byLane);
          const waiting = [...entries];
          const running: Entry[] = [];
          const started: Entry[] = [];
          while (started.length < entries.length || running.length > 0) {
            const choice = choices.next().value!;
            if (choice % 3 === 0) queue.push(waiting.splice(0, 1 + (choice % 5)));
            else if (choice % 3 === 1 && running.length > 0) queue.free(running.splice(choice % running.length, 1)[0]!);
            const taken = choice % 2 === 0 ? queue.take() : undefined;
            if (taken === undefined) continue;
            expect(running.filter(({ lane }) => lane !== undefined && lane === taken.lane)).toEqual([]);
            running.push(taken);
            started.push(taken);
          }
          for (const lane of ['a', 'b', 'c', undefined]) {
            expect(started.filter((each) => each.lane === lane)).toEqual(entries.filter((each) => each.lane === lane));
          }
        },
      ),
    );
  });
});
