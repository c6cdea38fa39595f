import type { PartitionRef } from './events.js';
import type { PartitionShare } from './handler.js';
import { murmur2 } from './partitioner.js';

const { imul } = Math;

/** An instance that takes part in a group. */
export interface Member {
  /** Unique in the group. */
  readonly id: string;
  /** The most partitions it wants, over all topics of the group; 0 means no cap. */
  readonly cap: number;
  /** Topic to the share of its partitions that the member may own: those with `partition % modulo === remainder`. */
  readonly subscriptions: ReadonlyMap<string, PartitionShare>;
}

/** Who is to own what; partitions are named by `partitionId`, in order of topic and index. */
export interface Assignment {
  /** Every partition that was asked for; `null` for one that no member may own. */
  readonly owners: Map<string, string | null>;
  /** Partitions that their owner takes above its cap, because all who may own them are at theirs. */
  readonly overCap: Set<string>;
}

/** `orders:p:0`: a name for a partition that is unique among all topics. */
export function partitionId(topic: string, partition: number): string {
  return `${topic}:p:${partition}`;
}

/**
 * Divides the partitions of a group's topics among its members. `owners` says who holds what now (partition id to member
 * id); an owner that is no member, or may not own the partition, counts as none.
 *
 * It is pure, and the order of the inputs does not matter, so members that see the same state come to the same result.
 * - Members with the same choice of partitions differ by at most one, except where a cap holds one below. Where choices
 *   differ, no partition could go from a member to one that has at least two fewer.
 * - Owners keep what they hold as far as that allows: a leaver's share alone moves, a newcomer gets its share and nothing
 *   else moves.
 * - The result applied to itself changes nothing. Among members with the same choice, neither does a half-applied one:
 *   whoever looks during a hand-over sees the same heirs.
 * - Each partition that some member may own has an owner, above its cap if need be.
 *
 * First the numbers are settled, by water-filling on counts; then who gives up and who gets which partition, by the hash
 * of the pair (rendezvous hashing).
 */
export function assign(
  members: readonly Member[],
  partitions: readonly PartitionRef[],
  owners: ReadonlyMap<string, string>,
): Assignment {
  const people = toPeople(members);
  const pieces = toPieces(partitions);
  const pools = toPools(people, pieces);

  for (const pool of pools) keepOwners(pool, owners);
  settleCounts(pools);
  for (const pool of pools) settleOwners(pool);

  return {
    owners: new Map(pieces.map((piece) => [piece.id, piece.owner?.id ?? null])),
    overCap: findOverCap(people, pieces),
  };
}

interface Person {
  readonly id: string;
  /** Position among all members in order of id; decides ties. */
  readonly rank: number;
  readonly hash: number;
  readonly cap: number;
  readonly subscriptions: Member['subscriptions'];
  load: number;
}

interface Piece extends PartitionRef {
  readonly id: string;
  readonly rank: number;
  readonly hash: number;
  owner: Person | null;
}

/** One member's part in a pool. */
interface Seat {
  readonly person: Person;
  readonly held: Piece[];
  /** How many of the pool's partitions the member is to have. */
  quota: number;
}

/** The partitions that one same set of members may own. */
interface Pool {
  readonly seats: readonly Seat[];
  readonly pieces: Piece[];
  readonly free: Piece[];
}

function toPeople(members: readonly Member[]): Person[] {
  return members
    .toSorted((a, b) => compareText(a.id, b.id))
    .map(({ id, cap, subscriptions }, rank) => ({
      id,
      rank,
      hash: murmur2(Buffer.from(id)),
      cap: cap > 0 ? cap : Number.POSITIVE_INFINITY,
      subscriptions,
      load: 0,
    }));
}

function toPieces(partitions: readonly PartitionRef[]): Piece[] {
  const refs = new Map(partitions.map((ref) => [partitionId(ref.topic, ref.partition), ref]));
  return [...refs]
    .sort(([, a], [, b]) => compareText(a.topic, b.topic) || a.partition - b.partition)
    .map(([id, { topic, partition }], rank) => ({
      id,
      topic,
      partition,
      rank,
      hash: murmur2(Buffer.from(id)),
      owner: null,
    }));
}

function toPools(people: readonly Person[], pieces: readonly Piece[]): Pool[] {
  const subscribersOf = groupSubscribers(people);
  const poolOfGroups = new Map<string, Pool>();
  const poolOfPeople = new Map<string, Pool>();
  for (const piece of pieces) {
    const groups = (subscribersOf.get(piece.topic) ?? []).filter(
      ({ share }) => piece.partition % share.modulo === share.remainder,
    );
    if (groups.length === 0) continue;
    const groupsKey = groups.map((group) => group.number).join();
    let pool = poolOfGroups.get(groupsKey);
    if (pool === undefined) {
      const eligible = groups.flatMap((group) => group.people).sort((a, b) => a.rank - b.rank);
      const peopleKey = eligible.map((person) => person.rank).join();
      pool = poolOfPeople.get(peopleKey) ?? toPool(eligible);
      poolOfPeople.set(peopleKey, pool);
      poolOfGroups.set(groupsKey, pool);
    }
    pool.pieces.push(piece);
  }
  return [...poolOfPeople.values()];
}

function toPool(people: readonly Person[]): Pool {
  return { seats: people.map((person) => ({ person, held: [], quota: 0 })), pieces: [], free: [] };
}

/** Those who subscribe to one topic with the same share. */
interface Subscribers {
  readonly number: number;
  readonly share: PartitionShare;
  readonly people: Person[];
}

function groupSubscribers(people: readonly Person[]): Map<string, Subscribers[]> {
  const groupsOf = new Map<string, Subscribers[]>();
  let number = 0;
  for (const person of people) {
    for (const [topic, share] of person.subscriptions) {
      const groups = groupsOf.get(topic) ?? [];
      groupsOf.set(topic, groups);
      const group = groups.find((g) => g.share.modulo === share.modulo && g.share.remainder === share.remainder);
      if (group === undefined) groups.push({ number: number++, share, people: [person] });
      else group.people.push(person);
    }
  }
  return groupsOf;
}

function keepOwners(pool: Pool, owners: ReadonlyMap<string, string>): void {
  const seatOf = new Map(pool.seats.map((seat) => [seat.person.id, seat]));
  for (const piece of pool.pieces) {
    const owner = owners.get(piece.id);
    const seat = owner === undefined ? undefined : seatOf.get(owner);
    if (seat === undefined) {
      pool.free.push(piece);
    } else {
      seat.held.push(piece);
      take(seat);
    }
  }
}

/** Gives what is free to the least loaded, fewest choices first, then evens out. */
function settleCounts(pools: readonly Pool[]): void {
  for (const pool of pools.toSorted((a, b) => a.seats.length - b.seats.length)) {
    for (let left = pool.free.length; left > 0; left--) {
      const { withRoom, any } = leastLoaded(pool);
      take(withRoom ?? any);
    }
  }
  for (let move = bestMove(pools); move !== undefined; move = bestMove(pools)) {
    move.from.quota--;
    move.from.person.load--;
    take(move.to);
  }
}

function take(seat: Seat): void {
  seat.quota++;
  seat.person.load++;
}

function leastLoaded({ seats }: Pool): { readonly withRoom: Seat | undefined; readonly any: Seat } {
  let any = seats[0]!;
  let withRoom: Seat | undefined;
  for (const seat of seats) {
    const { load, cap } = seat.person;
    if (load < any.person.load) any = seat;
    if (load < cap && (withRoom === undefined || load < withRoom.person.load)) withRoom = seat;
  }
  return { withRoom, any };
}

interface Move {
  readonly from: Seat;
  readonly to: Seat;
  /** It takes a partition from one above its cap to one with room, which the balance does not have to justify. */
  readonly isRelief: boolean;
}

/**
 * Each move lowers first the sum of what is above caps, then the sum of the squared loads, so they come to an end.
 */
function bestMove(pools: readonly Pool[]): Move | undefined {
  let best: Move | undefined;
  for (const pool of pools) {
    const { withRoom, any } = leastLoaded(pool);
    for (const from of pool.seats) {
      if (from.quota === 0) continue;
      const isOver = from.person.load > from.person.cap;
      const isRelief = isOver && withRoom !== undefined;
      const to = withRoom ?? (isOver ? any : undefined);
      if (to === undefined || (!isRelief && from.person.load - to.person.load < 2)) continue;
      const move = { from, to, isRelief };
      if (best === undefined || compareMoves(move, best) < 0) best = move;
    }
  }
  return best;
}

function compareMoves(a: Move, b: Move): number {
  return (
    Number(b.isRelief) - Number(a.isRelief) ||
    b.from.person.load - a.from.person.load ||
    a.to.person.load - b.to.person.load ||
    b.from.person.rank - a.from.person.rank
  );
}

function settleOwners(pool: Pool): void {
  const supply = [...pool.free];
  for (const { person, held, quota } of pool.seats) {
    if (held.length > quota) {
      held.sort((a, b) => compareWeights(person, a, b));
      supply.push(...held.splice(quota));
    }
    for (const piece of held) piece.owner = person;
  }
  deal(supply, pool.seats);
}

/** A partition's bid for a taker; the heavier one wins. */
interface Claim {
  readonly piece: Piece;
  readonly taker: Taker;
  readonly weight: number;
}

interface Taker {
  readonly person: Person;
  readonly need: number;
  claims: Claim[];
  /** The claim that gives way to a stronger one, once the need is met. */
  weakest: Claim | undefined;
}

/**
 * Gives `supply` to the members below their quota so that the heaviest pair of all comes about, then the heaviest of the
 * rest, and so on: a result that stays the same when a part of it has already happened. Deferred acceptance (Gale and
 * Shapley) finds it without sorting all pairs.
 */
function deal(supply: readonly Piece[], seats: readonly Seat[]): void {
  const takers = seats
    .filter((seat) => seat.held.length < seat.quota)
    .map(({ person, held, quota }): Taker => ({ person, need: quota - held.length, claims: [], weakest: undefined }));

  for (const piece of supply) {
    let claim: Claim | undefined = strongestClaim(piece, takers, undefined);
    while (claim !== undefined) claim = place(claim, takers);
  }
  for (const { person, claims } of takers) {
    for (const { piece } of claims) piece.owner = person;
  }
}

/** Books the claim; returns what the claim it displaced does next. */
function place(claim: Claim, takers: readonly Taker[]): Claim | undefined {
  const { taker } = claim;
  const displaced = taker.weakest;
  if (displaced !== undefined) taker.claims = taker.claims.filter((other) => other !== displaced);
  taker.claims.push(claim);
  if (taker.claims.length === taker.need) taker.weakest = taker.claims.reduce((a, b) => (isStronger(a, b) ? b : a));
  return displaced && strongestClaim(displaced.piece, takers, displaced);
}

/** The partition's strongest claim that would be accepted, among those weaker than `below`. */
function strongestClaim(piece: Piece, takers: readonly Taker[], below: Claim | undefined): Claim | undefined {
  let best: Claim | undefined;
  for (const taker of takers) {
    const weight = weigh(piece, taker.person);
    if (best !== undefined && weight < best.weight) continue;
    const claim = { piece, taker, weight };
    if (below !== undefined && !isStronger(below, claim)) continue;
    if (taker.weakest !== undefined && !isStronger(claim, taker.weakest)) continue;
    if (best === undefined || isStronger(claim, best)) best = claim;
  }
  return best;
}

/** A strict order of all claims: by weight, then partition, then member. */
function isStronger(a: Claim, b: Claim): boolean {
  if (a.weight !== b.weight) return a.weight > b.weight;
  if (a.piece !== b.piece) return a.piece.rank < b.piece.rank;
  return a.taker.person.rank < b.taker.person.rank;
}

function findOverCap(people: readonly Person[], pieces: readonly Piece[]): Set<string> {
  const overCap = new Set<string>();
  for (const person of people) {
    if (person.load <= person.cap) continue;
    const own = pieces.filter((piece) => piece.owner === person).sort((a, b) => compareWeights(person, a, b));
    for (const piece of own.slice(person.cap)) overCap.add(piece.id);
  }
  return overCap;
}

/** Puts first what the member would give up last. */
function compareWeights(person: Person, a: Piece, b: Piece): number {
  return weigh(b, person) - weigh(a, person) || a.rank - b.rank;
}

/** The rendezvous hash of a pair: a 32-bit integer, from the two hashes by the finalizer of MurmurHash3. */
function weigh(piece: Piece, person: Person): number {
  let hash = piece.hash ^ imul(person.hash, 0x9e3779b1);
  hash = imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** By UTF-16 code units: the same on every machine, whatever its locale. */
function compareText(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
