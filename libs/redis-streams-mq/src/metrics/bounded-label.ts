/** Stands for every value beyond a limit. Parentheses are not allowed in topic names, so no topic is called this. */
export const OTHER_LABEL: string = '(other)';

/**
 * Passes the first `limit` distinct values of a label on and calls all others `(other)`: whatever an application does
 * with topic names, the number of series stays bounded.
 */
export class BoundedLabel {
  private readonly known = new Set<string>();

  constructor(private readonly limit: number) {}

  of(value: string): string {
    if (this.known.has(value)) return value;
    if (this.known.size >= this.limit) return OTHER_LABEL;
    this.known.add(value);
    return value;
  }

  /** Makes room again; answers whether the value had series of its own. */
  forget(value: string): boolean {
    return this.known.delete(value);
  }
}
