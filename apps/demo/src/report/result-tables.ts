import type { StoredResult } from '../ipc/ipc-messages.js';
import { KeyTotals } from './key-totals.js';

/** What the handlers have stored, a table per group: the demo's stand-in for a database. */
export class ResultTables {
  private readonly tables: ReadonlyMap<string, KeyTotals>;

  constructor(groups: readonly string[]) {
    this.tables = new Map(groups.map((group) => [group, new KeyTotals()]));
  }

  add({ group, eventId, key, value }: StoredResult): void {
    this.of(group).add(eventId, key, value);
  }

  of(group: string): KeyTotals {
    const table = this.tables.get(group);
    if (!table) throw new Error(`a result of the unknown group "${group}"`);
    return table;
  }
}
