/** Bounds of the streams of one partition; 0: none. */
export interface TopicRetention {
  readonly maxLen: number;
  readonly maxAgeMs: number;
  /** Removes also what some group has not settled. */
  readonly hardMaxLen: number;
  readonly dlqMaxLen: number;
  readonly dlqMaxAgeMs: number;
}

export const RETENTION_BOUNDS: readonly (keyof TopicRetention)[] = [
  'maxLen',
  'maxAgeMs',
  'hardMaxLen',
  'dlqMaxLen',
  'dlqMaxAgeMs',
];

/** A topic's own bounds: those that are named take the place of the options', `null` gives an option its place back. */
export type RetentionChange = { readonly [Bound in keyof TopicRetention]?: number | null };

/** What is wrong with these bounds in one sentence, or `undefined`. */
export function retentionProblem(change: unknown): string | undefined {
  if (typeof change !== 'object' || change === null) return 'retention must be an object of bounds';
  for (const [bound, value] of Object.entries(change)) {
    if (!(RETENTION_BOUNDS as readonly string[]).includes(bound)) {
      return `retention has no bound ${bound}; there are ${RETENTION_BOUNDS.join(', ')}`;
    }
    if (value !== null && value !== undefined && (!Number.isSafeInteger(value) || (value as number) < 0)) {
      return `${bound} must be an integer, 0 for no bound, or null for what the options say`;
    }
  }
  return undefined;
}
