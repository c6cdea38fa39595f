import fc from 'fast-check';
import type { Clock, Timer } from '../core/clock.js';
import { EntryQueue } from './entry-queue.js';
import { toEntry, type Entry } from './entry.js';
import { InFlight } from './in-flight.js';
import { Ledger } from './ledger.js';

/** Time stands still until `pass` is called. */
class HandClock implements Clock {
  private at = 0;
  private timers: { readonly due: number; readonly fire: () => void }[] = [];

  now(): number {
    return this.at;
  }

  monotonic(): number {
    return this.at;
  }

  setTimer(fire: () => void, ms: number): Timer {
    const timer = { due: this.at + ms, fire };
    this.timers.push(timer);
    return { cancel: () => void (this.timers = this.timers.filter((other) => other !== timer)) };
  }

  pass(ms: number): void {
    this.at += ms;
    const due = this.timers.filter((timer) => timer.due <= this.at);
    this.timers = this.timers.filter((timer) => timer.due > this.at);
    for (const { fire } of due) fire();
  }
}

const fieldsOf = (lane?: string): Buffer[] => (lane === undefined ? [] : [Buffer.from('lane'), Buffer.from(lane)]);
const entry = (n: number, lane?: string): Entry => toEntry('stream', { id: `${n}-0`, fields: fieldsOf(lane) }, false);

function make(lowMark = 1, maxShelved = 100) {
  const clock = new HandClock();
  const ledger = new Ledger(new InFlight(0), () => queue.lookForRoom());
  const seen = { lows: 0, fulls: 0, recalled: [] as Entry[] };
  const queue: EntryQueue = new EntryQueue({
    clock,
    ledger,
    lowMark,
    maxShelved,
    laneOf: (fields) => fields[1]?.toString(),
    onLow: () => seen.lows++,
    onFull: () => seen.fulls++,
    recall: (entries) => seen.recalled.push(...entries),
  });
  const push = (...entries: Entry[]): void => {
    for (const each of entries) ledger.add(each);
    queue.push(entries);
  };
  /** Gives back the fields of all that was asked for. */
  const answer = (): void => {
    for (const each of seen.recalled.splice(0)) queue.recalled(each, fieldsOf(each.lane));
  };
  const takeAll = (): string[] => {
    const taken: string[] = [];
    for (let next = queue.take(); next !== undefined; next = queue.take()) taken.push(next.id);
    return taken;
  };
  return { queue, clock, ledger, seen, push, answer, takeAll };
}

describe('the queue of a partition', () => {
  it('gives one entry of each lane, and the next of a lane when the one before is out of the way', () => {
    const { queue, push, takeAll } = make();
    const [a1, a2, b1] = [entry(1, 'a'), entry(2, 'a'), entry(3, 'b')];
    push(a1, a2, b1, entry(4, 'a'), entry(5));
    expect(takeAll()).toEqual(['1-0', '3-0', '5-0']);
    expect(queue.length).toBe(2);
    queue.free(b1);
    expect(takeAll()).toEqual([]);
    queue.free(a1);
    queue.free(a1);
    expect(takeAll()).toEqual(['2-0']);
    queue.free(a2);
    expect(takeAll()).toEqual(['4-0']);
  });

  it('gives what came free before what came later', () => {
    const { queue, push, takeAll } = make();
    const a1 = entry(1, 'a');
    push(a1, entry(2, 'a'));
    expect(takeAll()).toEqual(['1-0']);
    push(entry(3, 'c'));
    queue.free(a1);
    expect(takeAll()).toEqual(['2-0', '3-0']);
  });

  it('keeps the lanes of what was taken when all that waits is replaced, and no others', () => {
    const { queue, push, takeAll } = make();
    const [a1, a2, b1, b2] = [entry(1, 'a'), entry(2, 'a'), entry(3, 'b'), entry(4, 'b')];
    push(a1, a2, b1, b2);
    expect(takeAll()).toEqual(['1-0', '3-0']);
    queue.free(b1);
    queue.replace([entry(0, 'a'), a2, b2]);
    expect(takeAll()).toEqual(['4-0']);
    queue.free(a1);
    expect(takeAll()).toEqual(['0-0']);
    queue.clear();
    expect(queue.length).toBe(0);
  });

  it('gives nothing while it is frozen', () => {
    const { queue, push, takeAll } = make();
    push(entry(1));
    queue.freeze();
    expect([queue.peek(), queue.take()]).toEqual([undefined, undefined]);
    queue.thaw();
    expect(takeAll()).toEqual(['1-0']);
  });

  it('says once that it has run low, each time', () => {
    const { seen, push, takeAll } = make(2);
    push(entry(1), entry(2), entry(3));
    takeAll();
    expect(seen.lows).toBe(1);
    push(entry(4));
    takeAll();
    expect(seen.lows).toBe(1);
    push(entry(5), entry(6));
    takeAll();
    expect(seen.lows).toBe(2);
  });

  it('holds back what failed and all behind it in its lane, by their ids alone, and lets the other lanes pass', () => {
    const { queue, clock, ledger, seen, push, answer, takeAll } = make();
    const [a1, a2, b1] = [entry(1, 'a'), entry(2, 'a'), entry(3, 'b')];
    push(a1, a2, b1);
    expect(takeAll()).toEqual(['1-0', '3-0']);
    queue.holdBack(a1, 100);
    push(entry(4, 'a'), entry(5, 'c'));
    expect(takeAll()).toEqual(['5-0']);
    expect([a1.fields, a2.fields, ledger.shelved, queue.length]).toEqual([null, null, 3, 0]);
    clock.pass(99);
    expect(seen.recalled).toEqual([]);
    clock.pass(1);
    answer();
    expect(takeAll()).toEqual(['1-0']);
    queue.free(a1);
    answer();
    expect(takeAll()).toEqual(['2-0']);
    queue.free(a2);
    answer();
    expect(takeAll()).toEqual(['4-0']);
    expect(ledger.shelved).toBe(0);
  });

  it('has no room while as many as may be are held back, and says so once', () => {
    const { queue, clock, seen, push, answer, takeAll } = make(3, 3);
    const first = entry(1, 'a');
    push(first, entry(2, 'a'), entry(3, 'a'));
    expect(takeAll()).toEqual(['1-0']);
    queue.holdBack(first, 100);
    expect([queue.isFull, queue.hasRoom, seen.fulls]).toEqual([true, false, 1]);
    const { lows } = seen;
    clock.pass(100);
    answer();
    expect(takeAll()).toEqual(['1-0']);
    expect([queue.isFull, queue.hasRoom, seen.fulls]).toEqual([false, true, 1]);
    expect(seen.lows).toBeGreaterThan(lows);
  });

  it('has room again when one that is held back is settled past us, and says so', () => {
    const { queue, ledger, seen, push, takeAll } = make(3, 3);
    const first = entry(1, 'a');
    push(first, entry(2, 'a'), entry(3, 'a'));
    takeAll();
    queue.holdBack(first, 100);
    const { lows } = seen;
    ledger.remove('stream', '3-0');
    expect([queue.isFull, seen.lows]).toEqual([false, lows + 1]);
  });

  it('has no room when what is behind one that is out of the way has to wait, and says so', () => {
    const { queue, seen, push, takeAll } = make(3, 2);
    const [first, second] = [entry(1, 'a'), entry(2, 'a')];
    second.notBefore = 50;
    push(first, second, entry(3, 'a'));
    expect(takeAll()).toEqual(['1-0']);
    queue.free(first);
    expect([queue.isFull, seen.fulls]).toEqual([true, 1]);
  });

  it('holds nothing back that was settled past us: its lane goes on', () => {
    const { queue, clock, ledger, push, takeAll } = make();
    const first = entry(1, 'a');
    push(first, entry(2, 'a'));
    takeAll();
    ledger.remove('stream', '1-0');
    queue.holdBack(first, 100);
    expect(takeAll()).toEqual(['2-0']);
    clock.pass(100);
    expect(takeAll()).toEqual([]);
  });

  it('starts what an earlier owner held back when it is due, in its place', () => {
    const { queue, clock, push, answer, takeAll } = make();
    const [a1, free] = [entry(1, 'a'), entry(3)];
    a1.notBefore = 50;
    free.notBefore = 80;
    push(a1, entry(2, 'a'), free, entry(4));
    expect(takeAll()).toEqual(['4-0']);
    clock.pass(50);
    answer();
    expect(takeAll()).toEqual(['1-0']);
    clock.pass(30);
    answer();
    expect(takeAll()).toEqual(['3-0']);
    queue.free(a1);
    answer();
    expect(takeAll()).toEqual(['2-0']);
  });

  it('keeps what is held back when all that waits is replaced; what is gone while it was held frees its lane', () => {
    const { queue, clock, ledger, push, answer, takeAll } = make();
    const [a1, a2, b1, b2] = [entry(1, 'a'), entry(2, 'a'), entry(3, 'b'), entry(4, 'b')];
    push(a1, a2, b1, b2);
    takeAll();
    queue.holdBack(a1, 100);
    queue.holdBack(b1, 100);
    ledger.remove('stream', '3-0');
    queue.free(b1);
    queue.replace([a2, b2]);
    expect(takeAll()).toEqual([]);
    answer();
    expect(takeAll()).toEqual(['4-0']);
    clock.pass(100);
    answer();
    expect(takeAll()).toEqual(['1-0']);
    queue.free(a1);
    answer();
    expect(takeAll()).toEqual(['2-0']);
  });

  it('passes what is in its stream no longer', () => {
    const { queue, clock, ledger, seen, push, answer, takeAll } = make();
    const a1 = entry(1, 'a');
    push(a1, entry(2, 'a'), entry(3, 'a'));
    takeAll();
    queue.holdBack(a1, 100);
    clock.pass(100);
    const [first, second, ...others] = seen.recalled.splice(0);
    for (const gone of [second!, first!]) {
      ledger.remove('stream', gone.id);
      queue.missing(gone);
    }
    for (const other of others) queue.recalled(other, fieldsOf('a'));
    answer();
    expect(takeAll()).toEqual(['3-0']);
  });

  it('loses nothing and keeps every lane in order, whatever is taken, held back, replaced and freed when', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('a', 'b', 'c')), fc.infiniteStream(fc.nat()), (lanes, choices) => {
        const entries = lanes.map((lane, n) => entry(n + 1, lane));
        const { queue, clock, ledger, push, answer } = make();
        const unread = [...entries];
        const running: Entry[] = [];
        const done: Entry[] = [];
        const wrong: Entry[] = [];
        const someRunning = (choice: number): Entry | undefined => running.splice(choice % running.length, 1)[0];
        while (done.length < entries.length) {
          const choice = choices.next().value!;
          const what = choice % 8;
          if (what === 0) push(...unread.splice(0, 1 + (choice % 5)));
          else if (what === 1) answer();
          else if (what === 2) clock.pass(choice % 7);
          else if (what === 3 && running.length > 0) queue.holdBack(someRunning(choice)!, choice % 9);
          else if (what === 4) queue.replace([...ledger.entries()].filter(({ state }) => state === 'waiting'));
          else if (what === 5 && running.length > 0) {
            const ended = someRunning(choice)!;
            ledger.remove('stream', ended.id);
            done.push(ended);
            queue.free(ended);
          } else {
            const taken = queue.take();
            if (taken === undefined) continue;
            if (taken.fields === null || running.some(({ lane }) => lane === taken.lane)) wrong.push(taken);
            taken.state = 'running';
            running.push(taken);
          }
        }
        for (const lane of ['a', 'b', 'c']) {
          const ids = (of: Entry[]): string[] => of.filter((each) => each.lane === lane).map(({ id }) => id);
          expect(ids(done)).toEqual(ids(entries));
        }
        expect(wrong).toEqual([]);
        expect([ledger.size, ledger.shelved, queue.length]).toEqual([0, 0, 0]);
      }),
      { numRuns: 1_000 },
    );
  });
});
