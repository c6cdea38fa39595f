/** The part of a counter or a histogram that is needed here; `C` is what `labels()` answers. */
export interface LabelledMetric<C> {
  labels(labels: Record<string, string>): C;
  remove(labels: Record<string, string>): void;
}

interface Series<C> {
  readonly labels: Record<string, string>;
  readonly child: C;
}

/** Label value by label value; a walk costs a sixth of building and hashing one key, and it is done per message. */
type Branch<C> = Map<string, Branch<C> | Series<C>>;

/** All series of one `mq` name on one metric. Two applications in a process may use the same name. */
interface Share<C> {
  holders: number;
  readonly root: Branch<C>;
}

/**
 * Kept on the metric and not in a table of ours: it then lives exactly as long as the metric, and a second copy of this
 * library in the process finds it.
 */
const SHARES = Symbol.for('nestjs-redis-streams-mq.metric-shares');

/**
 * The series of one module instance on one metric. Labels are resolved once per combination of values; `release()`
 * removes the series when no other instance of the name holds them.
 */
export class MetricSeries<C, L extends readonly string[]> {
  private readonly shares: Map<string, Share<C>>;
  private readonly share: Share<C>;
  private isReleased = false;

  constructor(
    private readonly metric: LabelledMetric<C>,
    private readonly labelNames: L,
    private readonly mq: string,
  ) {
    const carrier = metric as { [SHARES]?: Map<string, Share<C>> };
    this.shares = carrier[SHARES] ??= new Map();
    this.share = this.shares.get(mq) ?? { holders: 0, root: new Map() };
    this.share.holders += 1;
    this.shares.set(mq, this.share);
  }

  /** The series with these values, in the order of the label names; made when it is not there. */
  at(...values: { readonly [K in keyof L]: string }): C {
    let node: Branch<C> | Series<C> | undefined = this.share.root;
    for (const value of values) {
      if (!(node instanceof Map)) break;
      node = node.get(value);
    }
    return node === undefined || node instanceof Map ? this.create(values) : node.child;
  }

  /** Removes every series whose first label has this value. */
  forget(firstValue: string): void {
    const node = this.share.root.get(firstValue);
    if (node === undefined) return;
    this.share.root.delete(firstValue);
    this.removeAll(node);
  }

  release(): void {
    if (this.isReleased) return;
    this.isReleased = true;
    this.share.holders -= 1;
    if (this.share.holders > 0) return;
    this.removeAll(this.share.root);
    this.shares.delete(this.mq);
  }

  private create(values: readonly string[]): C {
    const labels: Record<string, string> = { mq: this.mq };
    let branch = this.share.root;
    values.forEach((value, index) => {
      labels[this.labelNames[index] ?? ''] = value;
      if (index === values.length - 1) return;
      const next = branch.get(value);
      const below: Branch<C> = next instanceof Map ? next : new Map();
      branch.set(value, below);
      branch = below;
    });
    const child = this.metric.labels(labels);
    branch.set(values.at(-1) ?? '', { labels, child });
    return child;
  }

  private removeAll(node: Branch<C> | Series<C>): void {
    if (!(node instanceof Map)) return this.metric.remove(node.labels);
    for (const below of node.values()) this.removeAll(below);
  }
}
