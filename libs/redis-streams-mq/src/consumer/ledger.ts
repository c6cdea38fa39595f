import { SOURCES, type Entry, type Source } from './entry.js';
import type { InFlight } from './in-flight.js';

/**
 * What this owner holds of the group's pending entries, by id. The server's pending total must equal it; when it does
 * not, someone else took entries: a former owner's late read, a read whose reply was lost, a person.
 */
export class Ledger {
  private readonly held: Readonly<Record<Source, Map<string, Entry>>> = { stream: new Map(), retry: new Map() };

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
    held.set(entry.id, entry);
    this.inFlight.took(1);
    return true;
  }

  remove(source: Source, id: string): boolean {
    const entry = this.held[source].get(id);
    if (entry === undefined) return false;
    this.held[source].delete(id);
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
