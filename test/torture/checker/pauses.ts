import type { Span } from './disturbances.js';
import { type Call, type Evidence, grouped, placeOf, recordsOf } from './evidence.js';

/** A time in which messages waited in a partition of a group and no handler ran there. */
export interface Pause {
  readonly place: string;
  readonly from: number;
  readonly to: number;
}

const NOTABLE_MS = 50;

/** Of all places, those that are not too short to matter, in no order. */
export function pausesOf(evidence: Evidence, calls: readonly Call[]): Pause[] {
  const accepted = grouped(recordsOf(evidence.records, 'accepted'), ({ partition }) => String(partition));
  const byPlace = grouped(calls, placeOf);
  const pauses: Pause[] = [];
  for (const [partition, messages] of accepted) {
    for (const group of evidence.groups) {
      const place = placeOf({ group, partition: Number(partition) });
      const ofPlace = byPlace.get(place) ?? [];
      const startedAt = new Map<string, number>();
      for (const { eventId, from } of ofPlace) if (!startedAt.has(eventId)) startedAt.set(eventId, from);
      // A message that was never started may have been taken by a failover; whether it was lost is told elsewhere.
      const waits = messages
        .map(({ eventId, at }) => ({ from: at, to: startedAt.get(eventId) ?? at }))
        .filter(({ from, to }) => to > from);
      for (const pause of without(waits, ofPlace)) {
        if (pause.to - pause.from >= NOTABLE_MS) pauses.push({ place, ...pause });
      }
    }
  }
  return pauses;
}

/** The union of the one, less the union of the other. */
function without(spans: readonly Span[], less: readonly Span[]): Span[] {
  const result: Span[] = [];
  const busy = union(less);
  let first = 0;
  for (const { from, to } of union(spans)) {
    let at = from;
    while (first < busy.length && busy[first]!.to <= at) first++;
    for (let i = first; i < busy.length && busy[i]!.from < to; i++) {
      if (busy[i]!.from > at) result.push({ from: at, to: busy[i]!.from });
      at = Math.max(at, busy[i]!.to);
    }
    if (at < to) result.push({ from: at, to });
  }
  return result;
}

function union(spans: readonly Span[]): Span[] {
  const result: { from: number; to: number }[] = [];
  for (const { from, to } of spans.toSorted((a, b) => a.from - b.from)) {
    const last = result.at(-1);
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
    else result.push({ from, to });
  }
  return result;
}
