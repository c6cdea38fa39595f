import type { Clock } from '../core/clock.js';

interface Entry {
  loggedAt: number;
  suppressed: number;
}

/** Lets one line per subject through in an interval, and counts the others. */
export class LogLimiter {
  private readonly entries = new Map<string, Entry>();

  constructor(
    private readonly clock: Clock,
    private readonly intervalMs: number,
    /** Subjects beyond it are forgotten, oldest first: names of topics come from outside. */
    private readonly maxSubjects: number = 1_000,
  ) {}

  /** How many lines about `subject` were held back since the last one, or `null` when this one must be, too. */
  pass(subject: string): number | null {
    const now = this.clock.monotonic();
    const entry = this.entries.get(subject);
    if (entry !== undefined && now - entry.loggedAt < this.intervalMs) {
      entry.suppressed += 1;
      return null;
    }
    this.entries.delete(subject);
    this.entries.set(subject, { loggedAt: now, suppressed: 0 });
    const [oldest] = this.entries.keys();
    if (this.entries.size > this.maxSubjects && oldest !== undefined) this.entries.delete(oldest);
    return entry?.suppressed ?? 0;
  }
}
