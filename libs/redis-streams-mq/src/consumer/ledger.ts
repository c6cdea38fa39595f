import { SOURCES, type Entry, type Source } from './entry.js';
import type { InFlight } from './in-flight.js';

/**
 * What this owner holds of the group's pending entries, by id. The server's pending total must equal it; when it does
 * not, someone else took entries: a former owner's late read, a read whose reply was lost, a person.
 */
export class Ledger {
  private readonly held: Readonly<Record<Source, EntriesById>> = {
    stream: new EntriesById(),
    retry: new EntriesById(),
  };

  private shelvedCount = 0;

  /** @param onUnshelved - called when one entry fewer is held with its id alone. */
  constructor(
    private readonly inFlight: InFlight,
    private readonly onUnshelved: () => void,
  ) {}

  /** Entries that are held with their ids alone; they do not count as being in flight. */
  get shelved(): number {
    return this.shelvedCount;
  }

  get size(): number {
    return this.held.stream.size + this.held.retry.size;
  }

  count(source: Source): number {
    return this.held[source].size;
  }

  has(source: Source, id: string): boolean {
    return this.held[source].has(id);
  }

  /** This very entry, and not the same one met anew. */
  holds(entry: Entry): boolean {
    return this.held[entry.source].get(entry.id) === entry;
  }

  /** False when it is held already. */
  add(entry: Entry): boolean {
    const held = this.held[entry.source];
    if (held.has(entry.id)) return false;
    held.add(entry.id, entry);
    this.inFlight.took(1);
    return true;
  }

  remove(source: Source, id: string): boolean {
    const entry = this.held[source].take(id);
    if (entry === undefined) return false;
    if (entry.fields === null) this.unshelved();
    else this.inFlight.gave(1);
    return true;
  }

  /** Forgets what the entry contains; it is in Redis. */
  shelve(entry: Entry): void {
    if (entry.fields === null || !this.holds(entry)) return;
    entry.fields = null;
    this.shelvedCount++;
    this.inFlight.gave(1);
  }

  /** False when it is held no longer. */
  unshelve(entry: Entry, fields: readonly Buffer[]): boolean {
    if (entry.fields !== null || !this.holds(entry)) return false;
    entry.fields = fields;
    this.inFlight.took(1);
    this.unshelved();
    return true;
  }

  private unshelved(): void {
    this.shelvedCount--;
    this.onUnshelved();
  }

  *entries(): Generator<Entry> {
    for (const source of SOURCES) yield* this.held[source].values();
  }

  clear(): void {
    this.inFlight.gave(this.size - this.shelvedCount);
    this.shelvedCount = 0;
    for (const source of SOURCES) this.held[source].clear();
  }
}

/**
 * A map by id, as one of numbers and an array: a map that things come to and leave all the time makes itself new tables,
 * and the old ones keep the entries that were in them alive until the next full garbage collection.
 */
class EntriesById {
  private readonly places = new Map<string, number>();
  private readonly entries: (Entry | undefined)[] = [];
  private readonly free: number[] = [];

  get size(): number {
    return this.places.size;
  }

  has(id: string): boolean {
    return this.places.has(id);
  }

  get(id: string): Entry | undefined {
    const place = this.places.get(id);
    return place === undefined ? undefined : this.entries[place];
  }

  /** For an id that is not there yet. */
  add(id: string, entry: Entry): void {
    const place = this.free.pop() ?? this.entries.length;
    this.entries[place] = entry;
    this.places.set(id, place);
  }

  /** The entry that was there. */
  take(id: string): Entry | undefined {
    const place = this.places.get(id);
    if (place === undefined) return undefined;
    const entry = this.entries[place];
    this.entries[place] = undefined;
    this.free.push(place);
    this.places.delete(id);
    return entry;
  }

  /** In the order in which they came. */
  *values(): Generator<Entry> {
    for (const place of this.places.values()) yield this.entries[place]!;
  }

  clear(): void {
    this.places.clear();
    this.entries.length = 0;
    this.free.length = 0;
  }
}
