import type { Clock, Timer } from '../core/clock.js';
import type { Entry } from './entry.js';
import type { Ledger } from './ledger.js';

/**
 * Who has a lane, and what waits behind it:
 *
 *     running --(free)----------> next | gone       handled: the next one in it, or nobody
 *     running --(holdBack)------> held              failed, and to be handled again before what waits in its lane
 *     held -----(due)-----------> recalled          its fields are fetched, since only its id was kept
 *     held -----(free)----------> next | gone       settled past us
 *     recalled -(recalled)------> next              to be taken before all that nobody has looked at
 *     next -----(take)----------> running
 *
 * What waits behind one that is held keeps its id alone, and its fields are fetched when its turn comes.
 */
interface Lane {
  by: Entry;
  state: 'running' | 'held' | 'recalled' | 'next';
  /** In the order of the partition. */
  waiting: Entry[];
  timer?: Timer | undefined;
}

export interface LanesDeps {
  readonly clock: Clock;
  readonly ledger: Ledger;
  /** May be taken now. */
  readonly ready: (entry: Entry) => void;
  /** Fetches the fields of these and calls `recalled` or `missing` for each, unless the ownership ends. */
  readonly recall: (entries: readonly Entry[]) => void;
}

/** Entries whose fields are fetched at once. */
const RECALLED_AT_ONCE = 16;

/** The lanes of one partition that are taken. */
export class Lanes {
  private readonly lanes = new Map<string, Lane>();
  private waitingWithFields = 0;

  constructor(private readonly deps: LanesDeps) {}

  /** Entries with their fields that wait for their lane. */
  get waiting(): number {
    return this.waitingWithFields;
  }

  /** Whether an entry that came to the head may be taken; if not, it waits here from now on. */
  admits(entry: Entry): boolean {
    if (entry.lane === undefined) {
      if (entry.notBefore <= this.deps.clock.monotonic()) return true;
      // Held by an earlier owner that kept order; here nothing waits for it.
      entry.lane = `held ${entry.source} ${entry.id}`;
    }
    const lane = this.lanes.get(entry.lane);
    if (lane !== undefined) {
      lane.waiting.push(entry);
      if (lane.state === 'held') this.deps.ledger.shelve(entry);
      else if (entry.fields !== null) this.waitingWithFields++;
      return false;
    }
    if (entry.fields !== null && entry.notBefore <= this.deps.clock.monotonic()) return true;
    this.lead(this.open(entry.lane, entry), entry);
    return false;
  }

  take(entry: Entry): void {
    if (entry.lane === undefined) return;
    const lane = this.lanes.get(entry.lane) ?? this.open(entry.lane, entry);
    lane.state = 'running';
  }

  /** The one that has this lane is out of the way. */
  free(entry: Entry): void {
    const lane = this.ledBy(entry);
    if (lane === undefined) return;
    lane.timer?.cancel();
    const next = lane.waiting.shift();
    if (next === undefined) {
      this.lanes.delete(entry.lane!);
    } else {
      if (next.fields !== null) this.waitingWithFields--;
      this.lead(lane, next);
    }
  }

  /** The one that has this lane failed and keeps it: it is the next to be handled in it, after `ms`. */
  holdBack(entry: Entry, ms: number): void {
    const lane = this.ledBy(entry);
    if (lane === undefined) return;
    // Settled past us, by whatever hand, since its handler began.
    if (!this.deps.ledger.holds(entry)) return this.free(entry);
    entry.notBefore = this.deps.clock.monotonic() + ms;
    this.hold(lane);
  }

  recalled(entry: Entry, fields: readonly Buffer[]): void {
    const { ledger } = this.deps;
    const lane = entry.lane === undefined ? undefined : this.lanes.get(entry.lane);
    if (lane?.by === entry) {
      if (lane.state !== 'recalled' || !ledger.unshelve(entry, fields)) return;
      lane.state = 'next';
      this.deps.ready(entry);
    } else if (lane !== undefined && lane.state !== 'held' && lane.waiting.includes(entry)) {
      if (ledger.unshelve(entry, fields)) this.waitingWithFields++;
    }
  }

  /** It is in its stream no longer. */
  missing(entry: Entry): void {
    const lane = entry.lane === undefined ? undefined : this.lanes.get(entry.lane);
    if (lane?.by === entry) this.free(entry);
    else if (lane !== undefined) lane.waiting = lane.waiting.filter((other) => other !== entry);
  }

  /** Forgets what waits; and, unless `keepHeld`, also what is held. A lane keeps the one that is running. */
  reset(keepHeld: boolean): void {
    this.waitingWithFields = 0;
    for (const [name, lane] of this.lanes) {
      lane.waiting = [];
      if (lane.state === 'running' || (lane.state === 'held' && keepHeld)) continue;
      lane.timer?.cancel();
      this.lanes.delete(name);
    }
  }

  private ledBy(entry: Entry): Lane | undefined {
    const lane = entry.lane === undefined ? undefined : this.lanes.get(entry.lane);
    return lane?.by === entry ? lane : undefined;
  }

  private open(name: string, by: Entry): Lane {
    const lane: Lane = { by, state: 'running', waiting: [] };
    this.lanes.set(name, lane);
    return lane;
  }

  private lead(lane: Lane, entry: Entry): void {
    lane.by = entry;
    entry.state = 'waiting';
    if (entry.notBefore > this.deps.clock.monotonic()) {
      this.hold(lane);
    } else if (entry.fields === null) {
      lane.state = 'recalled';
      const behind = lane.waiting.slice(0, RECALLED_AT_ONCE - 1).filter((other) => other.fields === null);
      this.deps.recall([entry, ...behind]);
    } else {
      lane.state = 'next';
      this.deps.ready(entry);
    }
  }

  private hold(lane: Lane): void {
    const { clock, ledger } = this.deps;
    lane.state = 'held';
    lane.by.state = 'held';
    ledger.shelve(lane.by);
    for (const entry of lane.waiting) {
      if (entry.fields === null) continue;
      this.waitingWithFields--;
      ledger.shelve(entry);
    }
    lane.timer?.cancel();
    // A timer of Node waits no longer than 25 days; a retry may.
    lane.timer = clock.setTimer(() => this.lead(lane, lane.by), lane.by.notBefore - clock.monotonic());
  }
}
