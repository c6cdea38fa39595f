import { about, type Call, grouped } from './evidence.js';
import type { Rule } from './rule.js';

export const storedInOrder: Rule = {
  name: 'I2 messages of a key are stored in the order of their sends',
  counts: 'disorder',
  check({ stored }, _, report) {
    for (const [key, messages] of grouped(stored, (message) => message.key)) {
      const first = new Map<string, number>();
      for (const { eventId, seq } of messages) if (!first.has(eventId)) first.set(eventId, seq);
      let last = 0;
      for (const seq of first.values()) {
        if (seq < last) report(0, `${key}#${seq} is stored behind #${last}`);
        last = Math.max(last, seq);
      }
    }
  },
};

export const startedInOrder: Rule = {
  name: 'I2 messages of a key are started in order, in every group',
  counts: 'disorder',
  check({ stored }, calls, report) {
    // The order of the stream, which the rule above compares with the order of the sends.
    const rank = new Map<string, number>();
    for (const [i, { eventId }] of stored.entries()) if (!rank.has(eventId)) rank.set(eventId, i);
    for (const ofKey of grouped(calls, ({ group, key }) => `${group} ${key}`).values()) {
      const seen = new Set<string>();
      let last: Call | undefined;
      for (const call of ofKey) {
        if (seen.has(call.eventId) || !rank.has(call.eventId)) continue;
        seen.add(call.eventId);
        const isBehind = last !== undefined && rank.get(call.eventId)! < rank.get(last.eventId)!;
        if (isBehind) report(call.from, `${about(call)} first started after ${about(last!)}`);
        else last = call;
      }
    }
  },
};
