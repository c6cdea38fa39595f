export interface Delivery {
  /** Position in the order of publishing. */
  readonly row: number;
  readonly key: string | null;
  readonly startedAt: number;
}

/** How many deliveries came after a later message of the same key. Messages without a key have no order. */
export function countOutOfOrder(deliveries: Iterable<Delivery>): number {
  const furthest = new Map<string, number>();
  let count = 0;
  for (const { row, key } of [...deliveries].toSorted((a, b) => a.startedAt - b.startedAt)) {
    if (key === null) continue;
    if (row < (furthest.get(key) ?? -1)) count++;
    else furthest.set(key, row);
  }
  return count;
}
