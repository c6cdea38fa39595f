export interface Totals {
  readonly count: number;
  readonly sum: number;
  readonly max: number;
}

/** Adds one value to what is known of a key. */
export function include(totals: Totals | undefined, value: number): Totals {
  if (totals === undefined) return { count: 1, sum: value, max: value };
  return { count: totals.count + 1, sum: totals.sum + value, max: Math.max(totals.max, value) };
}

/** Count, sum and maximum per key; an event counts once, however often it is added. */
export class KeyTotals {
  private readonly eventIds = new Set<string>();
  private readonly keys = new Map<string, Totals>();

  add(eventId: string, key: string, value: number): void {
    if (this.eventIds.has(eventId)) return;
    this.eventIds.add(eventId);
    this.keys.set(key, include(this.keys.get(key), value));
  }

  get byKey(): ReadonlyMap<string, Totals> {
    return this.keys;
  }

  get count(): number {
    return this.eventIds.size;
  }
}

/** The keys whose totals differ, each with both versions. Empty when all agree. */
export function differences(expected: ReadonlyMap<string, Totals>, actual: ReadonlyMap<string, Totals>): string[] {
  const keys = new Set([...expected.keys(), ...actual.keys()]);
  return [...keys].flatMap((key) => {
    const [wanted, got] = [text(expected.get(key)), text(actual.get(key))];
    return wanted === got ? [] : [`${key}: expected ${wanted}, got ${got}`];
  });
}

function text(totals: Totals | undefined): string {
  return totals ? `count ${totals.count} sum ${totals.sum} max ${totals.max}` : 'nothing';
}
