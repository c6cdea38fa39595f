import { createHash } from 'node:crypto';

/** A number in [0, 1) that depends on nothing but these words, in whatever process. */
export function draw(...words: (string | number)[]): number {
  return createHash('sha1').update(words.join('/')).digest().readUInt32BE(0) / 2 ** 32;
}

/** Numbers in [0, 1), the same sequence for the same seed. */
export function randomOf(seed: string): () => number {
  let turn = 0;
  return () => draw(seed, turn++);
}

export function between(random: () => number, low: number, high: number): number {
  return low + random() * (high - low);
}

export function pick<T>(random: () => number, items: readonly T[]): T {
  return items[Math.floor(random() * items.length)]!;
}

export function shuffled<T>(random: () => number, items: readonly T[]): T[] {
  const result = [...items];
  for (let i = result.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [result[i], result[j]] = [result[j]!, result[i]!];
  }
  return result;
}
