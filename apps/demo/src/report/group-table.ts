import type { GroupFigures } from './call-log.js';
import { formatCount, formatTable } from './table.js';

/** Explanations that a scenario gives beside figures of one of its groups. */
export type GroupNotes = Partial<Record<'handled' | 'retried' | 'dead', string>>;

export interface GroupTable {
  readonly group: string;
  readonly published: number;
  readonly dead: number;
  readonly figures: GroupFigures;
  readonly notes: GroupNotes;
}

export function formatGroupTable({ group, published, dead, figures, notes }: GroupTable): string {
  const shares = [...figures.handledByInstance].toSorted(([a], [b]) => a - b);
  const byInstance = shares.map(([instance, count]) => `instance ${instance}: ${formatCount(count)}`).join(', ');
  const handledNote = [byInstance, notes.handled].filter(Boolean).join('; ');
  return formatTable(
    [{ title: `group ${group}` }, { title: '', align: 'right' }, { title: '' }],
    [
      ['published', formatCount(published), ''],
      ['handled', formatCount(figures.handled), handledNote],
      ['retried', formatCount(figures.retried), notes.retried ?? ''],
      ['dead', formatCount(dead), notes.dead ?? ''],
      ['duplicates', formatCount(figures.duplicates), 'handled again although it was handled'],
      [
        'keys out of order',
        formatCount(figures.keysOutOfOrder),
        'first deliveries; retries are left out: by default later messages pass them',
      ],
      ['messages a second', formatCount(figures.perSecond), 'from the first send to the last one handled'],
      ['p50', formatMs(figures.p50Ms), 'from send to handled'],
      ['p99', formatMs(figures.p99Ms), 'the same; as fast as possible means waiting in line, see --rate'],
    ],
  );
}

function formatMs(ms: number): string {
  return `${ms.toFixed(ms < 100 ? 1 : 0)} ms`;
}
