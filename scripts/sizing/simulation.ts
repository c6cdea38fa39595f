import { assign, partitionId, type Member } from '../../libs/redis-streams-mq/src/core/assignment.js';
import type { PartitionRef } from '../../libs/redis-streams-mq/src/core/events.js';
import { MAX_PARTITION_COUNT } from '../../libs/redis-streams-mq/src/core/options.js';

/** What the assignment did in one event. */
export interface Step {
  readonly name: string;
  /** The longest call of the assignment, in milliseconds; each instance makes it. */
  readonly slowestMs: number;
  /** Partitions that changed their owner; those without one count as well. */
  readonly moved: number;
  /** How many of them had to: those of instances that left, or the new one's share. */
  readonly neededToMove: number;
  /** Between the instance that owns most and the one that owns least. */
  readonly spread: number;
}

export interface Simulation {
  readonly members: number;
  readonly partitions: number;
  readonly topics: number;
  readonly steps: readonly Step[];
}

type Owners = ReadonlyMap<string, string>;

const ROLLING_STEPS = 100;

/** Lets instances come and go in one group, in memory: the assignment of the library alone, without Redis. */
export function simulate(memberCount: number, partitionCount: number): Simulation {
  const topics = Math.ceil(partitionCount / MAX_PARTITION_COUNT);
  const refs = Array.from({ length: partitionCount }, (_, i): PartitionRef => {
    return { topic: `topic-${i % topics}`, partition: Math.floor(i / topics) };
  });
  const fleet = new Fleet(refs, topics);
  const first = Array.from({ length: memberCount }, (_, i) => fleet.member(i));
  let next = memberCount;

  const steps: Step[] = [];
  steps.push(fleet.step('all start at once', first, partitionCount));
  steps.push(fleet.step('nothing changes', first, 0));
  steps.push(fleet.step('one joins', [...first, fleet.member(next++)], Math.floor(partitionCount / (memberCount + 1))));
  steps.push(fleet.step('one leaves', fleet.members.slice(1), fleet.ownedBy(fleet.members.slice(0, 1))));
  if (memberCount > 1) {
    const tenth = Math.ceil(memberCount / 10);
    const dead = fleet.members.slice(0, tenth);
    steps.push(fleet.step(`a tenth (${tenth}) dies at once`, fleet.members.slice(tenth), fleet.ownedBy(dead)));
    const back = Array.from({ length: tenth }, () => fleet.member(next++));
    const share = Math.floor(partitionCount / memberCount) * tenth;
    steps.push(fleet.step('as many come back', [...fleet.members, ...back], share));
    steps.push(restart(fleet, () => fleet.member(next++)));
  }
  return { members: memberCount, partitions: partitionCount, topics, steps };
}

/** A deployment: a few leave and new ones come in their place, until all are new. */
function restart(fleet: Fleet, another: () => Member): Step {
  const atOnce = Math.ceil(fleet.members.length / ROLLING_STEPS);
  const old = [...fleet.members];
  const steps: Step[] = [];
  for (let i = 0; i < old.length; i += atOnce) {
    const leavers = old.slice(i, i + atOnce);
    const gone = new Set(leavers);
    const stay = fleet.members.filter((member) => !gone.has(member));
    const newcomers = leavers.map(another);
    steps.push(fleet.step('', stay, fleet.ownedBy(leavers)));
    const share = Math.floor(fleet.partitionCount / old.length) * newcomers.length;
    steps.push(fleet.step('', [...stay, ...newcomers], share));
  }
  return {
    name: `all restart, ${atOnce} at a time`,
    slowestMs: Math.max(...steps.map((step) => step.slowestMs)),
    moved: steps.reduce((sum, step) => sum + step.moved, 0),
    neededToMove: steps.reduce((sum, step) => sum + step.neededToMove, 0),
    spread: Math.max(...steps.map((step) => step.spread)),
  };
}

class Fleet {
  members: readonly Member[] = [];
  private owners: Owners = new Map();
  private readonly subscriptions: Member['subscriptions'];

  constructor(
    private readonly refs: readonly PartitionRef[],
    topics: number,
  ) {
    const names = Array.from({ length: topics }, (_, i) => `topic-${i}`);
    this.subscriptions = new Map(names.map((name) => [name, { modulo: 1, remainder: 0 }]));
  }

  get partitionCount(): number {
    return this.refs.length;
  }

  member(number: number): Member {
    return { id: `consumer-host-${number}`, cap: 0, subscriptions: this.subscriptions };
  }

  ownedBy(members: readonly Member[]): number {
    const ids = new Set(members.map(({ id }) => id));
    return [...this.owners.values()].filter((owner) => ids.has(owner)).length;
  }

  /** Who is there has changed, and all follow the assignment. */
  step(name: string, members: readonly Member[], neededToMove: number): Step {
    const before = this.owners;
    const startedAt = performance.now();
    const { owners } = assign(members, this.refs, before);
    const slowestMs = performance.now() - startedAt;
    const after = new Map<string, string>();
    let moved = 0;
    for (const { topic, partition } of this.refs) {
      const id = partitionId(topic, partition);
      const owner = owners.get(id);
      if (typeof owner === 'string') after.set(id, owner);
      if (owner !== before.get(id)) moved++;
    }
    this.owners = after;
    this.members = members;
    const owned = new Map(members.map(({ id }) => [id, 0]));
    for (const owner of after.values()) owned.set(owner, owned.get(owner)! + 1);
    const counts = [...owned.values()];
    return { name, slowestMs, moved, neededToMove, spread: Math.max(...counts) - Math.min(...counts) };
  }
}
