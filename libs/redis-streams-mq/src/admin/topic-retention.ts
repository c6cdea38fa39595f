/** Bounds of the streams of one partition; 0: none. */
export interface TopicRetention {
  readonly maxLen: number;
  readonly maxAgeMs: number;
  /** Removes also what some group has not settled. */
  readonly hardMaxLen: number;
  readonly dlqMaxLen: number;
  readonly dlqMaxAgeMs: number;
}
