import type { Totals } from '../report/key-totals.js';
import { formatCount, formatTable } from '../report/table.js';
import type { Flight } from './flight.js';

/** The statistics computed from the file alone, without the queue. */
export function totalsPerOrigin(flights: readonly Flight[]): Map<string, Totals> {
  const delays = new Map<string, number[]>();
  for (const { origin, delay } of flights) {
    const list = delays.get(origin);
    if (list) list.push(delay);
    else delays.set(origin, [delay]);
  }
  const totals = new Map<string, Totals>();
  for (const [origin, list] of delays) {
    totals.set(origin, {
      count: list.length,
      sum: list.reduce((sum, delay) => sum + delay, 0),
      max: Math.max(...list),
    });
  }
  return totals;
}

/** The origins with most flights: what the handler has, and what the file says. */
export function formatBusiestOrigins(
  expected: ReadonlyMap<string, Totals>,
  actual: ReadonlyMap<string, Totals>,
  limit = 5,
): string {
  const busiest = [...expected].toSorted(([, a], [, b]) => b.count - a.count).slice(0, limit);
  return formatTable(
    [
      { title: 'busiest origins' },
      { title: 'flights', align: 'right' },
      { title: 'minutes late', align: 'right' },
      { title: 'maximum', align: 'right' },
      { title: 'from the file', align: 'right' },
    ],
    busiest.map(([origin, file]) => {
      const got = actual.get(origin);
      const cells = got ? [got.count, got.sum, got.max].map(formatCount) : ['-', '-', '-'];
      return [origin, ...cells, [file.count, file.sum, file.max].map(formatCount).join(' / ')];
    }),
  );
}
