import { type Call, type Evidence, grouped, recordsOf } from '../checker/evidence.js';

/** How many messages had been accepted and were not yet settled in all groups, at a time. */
export function inFlightAt({ records, groups }: Evidence, calls: readonly Call[]): (at: number) => number {
  const byMessage = grouped(calls, ({ group, eventId }) => `${group} ${eventId}`);
  const spans = recordsOf(records, 'accepted').map(({ eventId, at }) => {
    const ends = groups.map((group) => settledAt(byMessage.get(`${group} ${eventId}`) ?? []));
    return { from: at, to: Math.max(...ends) };
  });
  return (at) => spans.filter(({ from, to }) => from <= at && at < to).length;
}

/** By the first call that succeeded, else by the last one. */
function settledAt(calls: readonly Call[]): number {
  const success = calls.find(({ outcome }) => outcome === 'success');
  return (success ?? calls.at(-1))?.to ?? Infinity;
}
