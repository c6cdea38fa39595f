import type { Bytes } from './values.js';

/** A step of SCAN and its kin. */
export interface ScanPage {
  readonly items: readonly Bytes[];
  /** Cursor of the next step; 0 after the last. */
  readonly next: number;
}

/**
 * About `count` items from a cursor on. They come in the order of their hashes, and the cursor is a hash: what is there all
 * the time is in some step, whatever comes and goes meanwhile, as Redis promises it.
 */
export function pageOf(all: Iterable<Bytes>, cursor: number, count: number): ScanPage {
  const left = [...all]
    .map((item) => [hashOf(item), item] as const)
    .filter(([hash]) => hash >= cursor)
    .sort(([a], [b]) => a - b);
  const next = left[count]?.[0] ?? 0;
  // Of equal hashes all or none, since the cursor names them together.
  const end = next === 0 ? left.length : left.findIndex(([hash]) => hash === next);
  if (end > 0) return { items: left.slice(0, end).map(([, item]) => item), next };
  const behind = left.findIndex(([hash]) => hash > next);
  return {
    items: left.slice(0, behind < 0 ? left.length : behind).map(([, item]) => item),
    next: left[behind]?.[0] ?? 0,
  };
}

/** FNV-1a, never 0, which is the cursor of the beginning. */
function hashOf(item: Bytes): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < item.length; i++) hash = Math.imul(hash ^ item.charCodeAt(i), 0x01000193) >>> 0;
  return hash || 1;
}

/** Whether a text matches a pattern as MATCH takes it: `*`, `?`, `[a-c]`, `[^a]`, and `\\` in front of what is meant itself. */
export function matcher(pattern: Bytes): (text: Bytes) => boolean {
  const literal = (text: string): string => text.replaceAll(/[$()*+./?[\\\]^{|}-]/g, String.raw`\$&`);
  const source = pattern.replaceAll(/\\([^])|\[(\^?)((?:\\[^]|[^\]])*)\]|(\*+)|(\?)|([^])/g, (...match: string[]) => {
    const [, escaped, not, set, stars, any, other] = match;
    if (stars) return '[^]*';
    if (any) return '[^]';
    if (set === undefined) return literal(escaped ?? other!);
    if (set === '') return not ? '[^]' : '[]';
    const members = set.replaceAll(/\\([^])|([^])-([^])|([^])/g, (...part: string[]) => {
      const [, self, from, to, one] = part;
      if (from === undefined) return literal(self ?? one!);
      const [low, high] = [from, to!].sort();
      return `${literal(low!)}-${literal(high!)}`;
    });
    return `[${not}${members}]`;
  });
  const expression = new RegExp(`^${source}$`);
  return (text) => expression.test(text);
}
