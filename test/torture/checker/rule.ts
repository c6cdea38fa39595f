import type { Call, Evidence } from './evidence.js';

export interface Violation {
  readonly rule: string;
  readonly counts: Counted | undefined;
  /** On the clock of `monotonicMs`; 0 where it has no time. */
  readonly at: number;
  readonly what: string;
}

/** The column of the table in which a violation is counted. */
export type Counted = 'lost' | 'disorder';

export type Report = (at: number, what: string) => void;

/** An invariant of the queue, or part of one. */
export interface Rule {
  /** Begins with the invariant, `I1` to `I6`. */
  readonly name: string;
  readonly counts?: Counted;
  check(evidence: Evidence, calls: readonly Call[], report: Report): void;
}
