import type { Member } from './assignment.js';
import type { PartitionShare } from './handler.js';

/** What an instance tells the others of a group about itself, as it is stored. */
export function describeMember({ cap, subscriptions }: Member): string {
  return JSON.stringify({
    cap,
    topics: [...subscriptions].map(([topic, { modulo, remainder }]) => [topic, modulo, remainder]),
  });
}

/** What another instance said; one that cannot be read counts as a member that wants nothing. */
export function parseMember(id: string, about: string): Member {
  const subscriptions = new Map<string, PartitionShare>();
  let cap = 0;
  try {
    const parsed = JSON.parse(about) as { cap?: unknown; topics?: unknown };
    if (Number.isSafeInteger(parsed.cap) && (parsed.cap as number) > 0) cap = parsed.cap as number;
    for (const item of Array.isArray(parsed.topics) ? (parsed.topics as unknown[]) : []) {
      const [topic, modulo, remainder] = Array.isArray(item) ? (item as unknown[]) : [];
      if (typeof topic !== 'string') continue;
      const valid = Number.isSafeInteger(modulo) && (modulo as number) > 0 && Number.isSafeInteger(remainder);
      subscriptions.set(
        topic,
        valid ? { modulo: modulo as number, remainder: remainder as number } : { modulo: 1, remainder: 0 },
      );
    }
  } catch {
    subscriptions.clear();
  }
  return { id, cap, subscriptions };
}
