import { SOURCES, type Entry, type Source } from './entry.js';
import type { InFlight } from './in-flight.js';

/**
 * What this owner holds of the group's pending entries, by id. The server's pending total must equal it; when it does
 * not, someone else took entries: a former owner's late read, a read whose reply was lost, a person.
 */
export class Ledger {
  private readonly held: Readonly<Record<Source, Map<string, Entry>>> = { stream: new Map(), retry: new Map() };

  constructor(private readonly inFlight: InFlight) {}

  get size(): number {
    return this.held.stream.size + this.held.retry.size;
  }

  count(source: Source): number {
    return this.held[source].size;
  }

  has(source: Source, id: string): boolean {
    return this.held[source].has(id);
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
    const removed = this.held[source].delete(id);
    if (removed) this.inFlight.gave(1);
    return removed;
  }

  *entries(): Generator<Entry> {
    for (const source of SOURCES) yield* this.held[source].values();
  }

  clear(): void {
    this.inFlight.gave(this.size);
    for (const source of SOURCES) this.held[source].clear();
  }
}
