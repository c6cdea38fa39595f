/** Longer names are compared by their beginning: the cost grows with the square. */
const COMPARED_LENGTH = 64;

/** Levenshtein distance, as two rows of the table of Wagner and Fischer (1974). */
function distance(a: string, b: string): number {
  let above = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = above[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(substitution, above[j]! + 1, row[j - 1]! + 1));
    }
    above = row;
  }
  return above[b.length]!;
}

const plain = (name: string): string =>
  name
    .slice(0, COMPARED_LENGTH)
    .replace(/[-_.\s]/g, '')
    .toLowerCase();

/**
 * The known name that looks most like `name`, whatever the spelling (camelCase, kebab-case, snake_case). The distance is
 * taken relative to the length, so that `leaseTtl` leads to `leaseTtlSeconds` and not to a shorter stranger.
 *
 * @returns `undefined` when nothing is known that is not further away than `most`.
 */
export function nearestName(name: string, known: Iterable<string>, most: number = Infinity): string | undefined {
  const wanted = plain(name);
  let nearest: string | undefined;
  let least = Infinity;
  for (const candidate of known) {
    const other = plain(candidate);
    const relative = distance(wanted, other) / Math.max(wanted.length, other.length, 1);
    if (relative <= most && relative < least) [nearest, least] = [candidate, relative];
  }
  return nearest;
}
