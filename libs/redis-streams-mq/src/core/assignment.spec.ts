import fc from 'fast-check';
import { type Assignment, type Member, assign, partitionId } from './assignment.js';
import type { PartitionRef } from './events.js';
import type { PartitionShare } from './handler.js';

type Owners = ReadonlyMap<string, string>;

interface Situation {
  readonly members: readonly Member[];
  readonly partitions: readonly PartitionRef[];
  readonly owners: Owners;
}

const WHOLE: PartitionShare = { modulo: 1, remainder: 0 };
const NOBODY: Owners = new Map();

describe('assign', () => {
  it('names a partition by topic and index', () => {
    expect(partitionId('orders', 12)).toBe('orders:p:12');
  });

  it('divides evenly, all topics together', () => {
    const { owners, overCap } = assign(equals(4, ['a', 'b']), [...topic('a', 10), ...topic('b', 6)], NOBODY);
    expect(loads(owners)).toEqual({ m0: 4, m1: 4, m2: 4, m3: 4 });
    expect(overCap.size).toBe(0);
  });

  it('lists the partitions by topic and index', () => {
    const { owners } = assign(equals(1, ['a', 'b']), [...topic('b', 2), ...topic('a', 11).toReversed()], NOBODY);
    expect([...owners.keys()]).toEqual([...topic('a', 11), ...topic('b', 2)].map(idOf));
  });

  it('leaves alone what nobody may own', () => {
    expect(assign([], topic('a', 1), NOBODY).owners).toEqual(new Map([['a:p:0', null]]));
    expect(assign(equals(2, ['b']), topic('a', 1), new Map([['a:p:0', 'm0']])).owners).toEqual(
      new Map([['a:p:0', null]]),
    );
    expect(assign(equals(2, ['a']), [], NOBODY)).toEqual({ owners: new Map(), overCap: new Set() });
  });

  it('leaves a member without a partition when there are fewer partitions than members', () => {
    const { owners } = assign(equals(5, ['a']), topic('a', 3), NOBODY);
    expect(Object.values(loads(owners))).toEqual([1, 1, 1]);
  });

  it('keeps static shards apart', () => {
    const members = ['even', 'odd'].map((id, remainder) => member(id, { a: { modulo: 2, remainder } }));
    const { owners } = assign(members, topic('a', 5), new Map([['a:p:0', 'odd']]));
    expect([...owners.values()]).toEqual(['even', 'odd', 'even', 'odd', 'even']);
  });

  it('takes what nobody has room for above the cap, by the least loaded, and says which', () => {
    const { owners, overCap } = assign(
      [member('m0', { a: WHOLE }, 1), member('m1', { a: WHOLE }, 4)],
      topic('a', 8),
      NOBODY,
    );
    expect(loads(owners)).toEqual({ m0: 4, m1: 4 });
    expect(countBy(overCap, (id) => owners.get(id)!)).toEqual({ m0: 3 });
  });

  it('relieves a member above its cap as soon as another has room', () => {
    const crowded = [member('m0', { a: WHOLE }, 2)];
    const before = assign(crowded, topic('a', 5), NOBODY);
    expect(before.overCap.size).toBe(3);
    const after = assign([...crowded, member('m1', { a: WHOLE }, 2)], topic('a', 5), held(before));
    expect(loads(after.owners)).toEqual({ m0: 3, m1: 2 });
    expect(after.overCap.size).toBe(1);
  });

  it('gives a topic that one member alone reads to it, and more of the rest to others', () => {
    const members = [member('m0', { a: WHOLE, b: WHOLE }), member('m1', { b: WHOLE })];
    const partitions = [...topic('a', 3), ...topic('b', 5)];
    const allToFirst = new Map(partitions.map((ref) => [idOf(ref), 'm0']));
    for (const owners of [NOBODY, allToFirst]) {
      expect(loads(assign(members, partitions, owners).owners)).toEqual({ m0: 4, m1: 4 });
    }
  });

  it('spreads what a leaver leaves over all who stay', () => {
    const members = equals(11, ['a']);
    const before = assign(members, topic('a', 110), NOBODY);
    const after = assign(members.slice(1), topic('a', 110), held(before));
    const heirs = countBy(changed(before, after), (id) => after.owners.get(id)!);
    expect(Object.values(heirs)).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
  });

  describe('for members with the same choice', () => {
    it('differs by at most one where no cap holds a member below', () => {
      fc.assert(
        fc.property(equalSituations(), ({ members, partitions, owners }) => {
          const load = loads(assign(members, partitions, owners).owners);
          expect(members.map(({ id }) => load[id] ?? 0).sort(ascending)).toEqual(
            waterLevels(members, partitions.length).sort(ascending),
          );
        }),
        { numRuns: 300 },
      );
    });

    it('moves no more partitions than the quotas demand', () => {
      fc.assert(
        fc.property(equalSituations(), ({ members, partitions, owners }) => {
          const result = assign(members, partitions, owners);
          const living = [...owners].filter(([, owner]) => members.some(({ id }) => id === owner));
          const kept = living.filter(([id, owner]) => result.owners.get(id) === owner).length;
          expect(kept).toBe(
            mostThatCanStay(
              members,
              partitions.length,
              countBy(living, ([, owner]) => owner),
            ),
          );
        }),
        { numRuns: 300 },
      );
    });

    it("moves a leaver's share and nothing else", () => {
      fc.assert(
        fc.property(equalSituations(), fc.nat(), (situation, pick) => {
          const before = settled(situation);
          const leaver = situation.members[pick % situation.members.length]!.id;
          const after = assign(
            situation.members.filter(({ id }) => id !== leaver),
            situation.partitions,
            held(before),
          );
          expect(changed(before, after).filter((id) => before.owners.get(id) !== leaver)).toEqual([]);
        }),
        { numRuns: 300 },
      );
    });

    it('moves to a newcomer what it gets and nothing else', () => {
      fc.assert(
        fc.property(equalSituations(), fc.nat(), (situation, pick) => {
          const newcomer = situation.members[pick % situation.members.length]!;
          const members = situation.members.filter((other) => other !== newcomer);
          const before = settled({ ...situation, members });
          const after = assign(situation.members, situation.partitions, held(before));
          expect(changed(before, after).filter((id) => after.owners.get(id) !== newcomer.id)).toEqual([]);
        }),
        { numRuns: 300 },
      );
    });

    it('comes to the same result in the middle of a hand-over, whatever has been released or acquired', () => {
      fc.assert(
        fc.property(equalSituations(), fc.infiniteStream(fc.constantFrom('old', 'free', 'new')), (situation, steps) => {
          const target = assign(situation.members, situation.partitions, situation.owners);
          const between = new Map(situation.owners);
          for (const [id, heir] of target.owners) {
            const step = steps.next().value;
            if (heir === situation.owners.get(id) || heir === null || step === 'old') continue;
            if (step === 'new') between.set(id, heir);
            else between.delete(id);
          }
          expect(assign(situation.members, situation.partitions, between)).toEqual(target);
        }),
        { numRuns: 500 },
      );
    });
  });

  describe('for any members', () => {
    it('gives every partition to one who may own it, and to nobody only if nobody may', () => {
      fc.assert(
        fc.property(situations(), ({ members, partitions, owners }) => {
          const result = assign(members, partitions, owners);
          expect(result.owners.size).toBe(partitions.length);
          for (const ref of partitions) {
            const eligible = members.filter((candidate) => mayOwn(candidate, ref)).map(({ id }) => id);
            const owner = result.owners.get(idOf(ref));
            expect(eligible.length === 0 ? [null] : eligible).toContain(owner);
          }
        }),
      );
    });

    it('does not depend on the order of its inputs', () => {
      const shuffled = situations().chain((situation) =>
        fc.tuple(
          fc.constant(situation),
          shuffle(situation.members),
          shuffle(situation.partitions),
          shuffle([...situation.owners]),
        ),
      );
      fc.assert(
        fc.property(shuffled, ([{ members, partitions, owners }, otherMembers, otherPartitions, otherOwners]) => {
          const a = assign(members, partitions, owners);
          const b = assign(otherMembers, otherPartitions, new Map(otherOwners));
          expect([...b.owners]).toEqual([...a.owners]);
          expect(b.overCap).toEqual(a.overCap);
        }),
      );
    });

    it('changes nothing when it is applied to its own result', () => {
      fc.assert(
        fc.property(situations(), (situation) => {
          const once = settled(situation);
          expect(assign(situation.members, situation.partitions, held(once))).toEqual(once);
        }),
        { numRuns: 500 },
      );
    });

    it('exceeds a cap only where no one else has room, and reports exactly the excess', () => {
      fc.assert(
        fc.property(situations(), (situation) => {
          const { owners, overCap } = settled(situation);
          const load = loads(owners);
          const excess = countBy(overCap, (id) => owners.get(id)!);
          for (const { id, cap } of situation.members) {
            expect(excess[id] ?? 0).toBe(cap === 0 ? 0 : Math.max(0, (load[id] ?? 0) - cap));
          }
          for (const ref of situation.partitions.filter((p) => excess[owners.get(idOf(p)) ?? ''])) {
            const withRoom = situation.members.filter(
              (m) => mayOwn(m, ref) && (m.cap === 0 || (load[m.id] ?? 0) < m.cap),
            );
            expect(withRoom).toEqual([]);
          }
        }),
        { numRuns: 500 },
      );
    });

    it('leaves no partition with a member that has two more than another with room for it', () => {
      fc.assert(
        fc.property(situations(), (situation) => {
          const { owners } = settled(situation);
          const load = loads(owners);
          for (const ref of situation.partitions) {
            const owner = owners.get(idOf(ref));
            const others = situation.members.filter(
              (m) => mayOwn(m, ref) && (m.cap === 0 || (load[m.id] ?? 0) < m.cap),
            );
            for (const { id } of others) expect(load[owner!]! - (load[id] ?? 0)).toBeLessThan(2);
          }
        }),
        { numRuns: 500 },
      );
    });

    it('takes an owner that has gone, or may not own the partition, for none', () => {
      fc.assert(
        fc.property(situations(), ({ members, partitions, owners }) => {
          const valid = partitions.flatMap((ref): [string, string][] => {
            const owner = members.find(({ id }) => id === owners.get(idOf(ref)));
            return owner !== undefined && mayOwn(owner, ref) ? [[idOf(ref), owner.id]] : [];
          });
          expect(assign(members, partitions, owners)).toEqual(assign(members, partitions, new Map(valid)));
        }),
      );
    });
  });

  it('takes less than 50 ms of processor time for 200 members and 1,024 partitions', () => {
    const names = ['a', 'b', 'c', 'd'];
    const partitions = names.flatMap((name) => topic(name, 256));
    const members = equals(200, names);
    const uneven = members.map((m, i) => ({
      ...m,
      subscriptions: new Map([...m.subscriptions].filter((_, k) => (i + k) % 3)),
    }));
    const balanced = held(assign(members, partitions, NOBODY));
    const oneOwner = new Map(partitions.map((ref) => [idOf(ref), 'm0']));
    const cpuMs = (run: () => unknown): number => {
      const times = [1, 2, 3, 4, 5].map(() => {
        const start = process.cpuUsage();
        run();
        const { user, system } = process.cpuUsage(start);
        return (user + system) / 1000;
      });
      return Math.min(...times);
    };
    expect(cpuMs(() => assign(members, partitions, NOBODY))).toBeLessThan(50);
    expect(cpuMs(() => assign(members, partitions, oneOwner))).toBeLessThan(50);
    expect(cpuMs(() => assign(members.slice(20), partitions, balanced))).toBeLessThan(50);
    expect(cpuMs(() => assign(uneven, partitions, balanced))).toBeLessThan(50);
  });
});

function idOf({ topic: name, partition }: PartitionRef): string {
  return partitionId(name, partition);
}

function topic(name: string, count: number): PartitionRef[] {
  return Array.from({ length: count }, (_, partition) => ({ topic: name, partition }));
}

function member(id: string, subscriptions: Readonly<Record<string, PartitionShare>>, cap = 0): Member {
  return { id, cap, subscriptions: new Map(Object.entries(subscriptions)) };
}

function equals(count: number, topics: readonly string[]): Member[] {
  const subscriptions = Object.fromEntries(topics.map((name) => [name, WHOLE]));
  return Array.from({ length: count }, (_, i) => member(`m${i}`, subscriptions));
}

function mayOwn({ subscriptions }: Member, { topic: name, partition }: PartitionRef): boolean {
  const share = subscriptions.get(name);
  return share !== undefined && partition % share.modulo === share.remainder;
}

function settled({ members, partitions, owners }: Situation): Assignment {
  return assign(members, partitions, owners);
}

function held({ owners }: Assignment): Owners {
  return new Map([...owners].filter((entry): entry is [string, string] => entry[1] !== null));
}

function changed(before: Assignment, after: Assignment): string[] {
  return [...before.owners].filter(([id, owner]) => after.owners.get(id) !== owner).map(([id]) => id);
}

function countBy<T>(items: Iterable<T>, keyOf: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const item of items) counts[keyOf(item)] = (counts[keyOf(item)] ?? 0) + 1;
  return counts;
}

function loads(owners: ReadonlyMap<string, string | null>): Record<string, number> {
  const owned = [...owners.values()].filter((owner) => owner !== null);
  return countBy(owned.sort(), (owner) => owner);
}

function ascending(a: number, b: number): number {
  return a - b;
}

/** Each member's number of partitions when they are poured in one by one, the lowest first; above caps if they must be. */
function waterLevels(members: readonly Member[], total: number): number[] {
  const levels = members.map(({ cap }) => ({ level: 0, cap: cap || Infinity }));
  for (let i = 0; i < total; i++) {
    const withRoom = levels.filter(({ level, cap }) => level < cap);
    (withRoom.length > 0 ? withRoom : levels).reduce((a, b) => (b.level < a.level ? b : a)).level++;
  }
  return levels.map(({ level }) => level);
}

/**
 * How many partitions can stay where they are, at most. Two members one apart may trade places if that puts no more
 * above caps; trades are made as long as one lets another partition stay.
 */
function mostThatCanStay(members: readonly Member[], total: number, load: Readonly<Record<string, number>>): number {
  const levels = waterLevels(members, total);
  const sum = (term: (member: Member, i: number) => number): number => members.reduce((n, m, i) => n + term(m, i), 0);
  const staying = (): number => sum(({ id }, i) => Math.min(load[id] ?? 0, levels[i]!));
  const aboveCaps = (): number => sum(({ cap }, i) => (cap === 0 ? 0 : Math.max(0, levels[i]! - cap)));
  const least = aboveCaps();
  const trade = (i: number, k: number): boolean => {
    const before = staying();
    if (levels[i] !== levels[k]! + 1) return false;
    [levels[i], levels[k]] = [levels[k]!, levels[i]];
    if (aboveCaps() === least && staying() > before) return true;
    [levels[i], levels[k]] = [levels[k], levels[i]];
    return false;
  };
  while (levels.some((_, i) => levels.some((__, k) => trade(i, k))));
  return staying();
}

function shuffle<T>(items: readonly T[]): fc.Arbitrary<T[]> {
  return fc.shuffledSubarray([...items], { minLength: items.length });
}

function ownersOf(partitions: readonly PartitionRef[], members: readonly Member[]): fc.Arbitrary<Owners> {
  const someone = fc.constantFrom(...members.map(({ id }) => id), 'gone', undefined);
  const skewed = fc.oneof(someone, fc.constant(members[0]?.id));
  return fc
    .array(skewed, { minLength: partitions.length, maxLength: partitions.length })
    .map(
      (names) => new Map(partitions.flatMap((ref, i): [string, string][] => (names[i] ? [[idOf(ref), names[i]]] : []))),
    );
}

function partitionsOf(topics: readonly string[]): fc.Arbitrary<PartitionRef[]> {
  return fc
    .tuple(...topics.map((name) => fc.integer({ min: 0, max: 14 }).map((count) => topic(name, count))))
    .map((p) => p.flat());
}

function complete(members: fc.Arbitrary<Member[]>, topics: readonly string[]): fc.Arbitrary<Situation> {
  return fc
    .tuple(members, partitionsOf(topics))
    .chain(([people, partitions]) =>
      ownersOf(partitions, people).map((owners) => ({ members: people, partitions, owners })),
    );
}

function equalSituations(): fc.Arbitrary<Situation> {
  const topics = ['a', 'b'];
  const subscriptions = { a: WHOLE, b: WHOLE };
  const caps = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 9 }));
  const members = fc
    .oneof(
      fc.array(fc.constant(0), { minLength: 1, maxLength: 9 }),
      fc.array(caps, { minLength: 1, maxLength: 9 }),
      fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 5 }),
    )
    .map((list) => list.map((cap, i) => member(`m${i}`, subscriptions, cap)));
  return complete(members, topics);
}

function situations(): fc.Arbitrary<Situation> {
  const topics = ['a', 'b', 'c'];
  const share = fc.oneof(
    fc.constant(WHOLE),
    fc.integer({ min: 1, max: 3 }).chain((modulo) => fc.nat(modulo - 1).map((remainder) => ({ modulo, remainder }))),
  );
  const subscriptions = fc.uniqueArray(fc.tuple(fc.constantFrom(...topics), share), {
    selector: ([name]) => name,
    maxLength: 3,
  });
  const members = fc
    .array(fc.tuple(subscriptions, fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 6 }))), { maxLength: 8 })
    .map((list) => list.map(([subs, cap], i) => member(`m${i}`, Object.fromEntries(subs), cap)));
  return complete(members, topics);
}
