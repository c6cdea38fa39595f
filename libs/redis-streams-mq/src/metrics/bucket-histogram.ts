/** One value as a registry of prom-client exports it. */
export interface HistogramValue {
  readonly labels: Record<string, string | number>;
  readonly value: number;
  readonly metricName: string;
}

/** The counts of one series. */
export class BucketCounts {
  readonly counts: Float64Array;
  sum = 0;
  count = 0;

  constructor(
    readonly labels: Readonly<Record<string, string>>,
    private readonly bounds: readonly number[],
  ) {
    this.counts = new Float64Array(bounds.length);
  }

  observe(value: number): void {
    if (!Number.isFinite(value)) throw new TypeError(`not a number to observe: ${value}`);
    this.sum += value;
    this.count++;
    for (let i = 0; i < this.bounds.length; i++) {
      if (value > this.bounds[i]!) continue;
      this.counts[i]!++;
      return;
    }
  }
}

export interface BucketHistogramConfig {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
  /** Upper bounds, rising. */
  readonly buckets: readonly number[];
}

/**
 * What prom-client's histogram exports, with observations that cost a tenth: its own builds a key from the labels at each of
 * them, and two for each message took a twelfth of what consuming one costs. A registry asks a metric for no more than
 * what is here.
 */
export class BucketHistogram {
  readonly name: string;
  readonly help: string;
  readonly type = 'histogram';
  readonly aggregator = 'sum';
  readonly labelNames: readonly string[];
  private readonly bounds: readonly number[];
  private readonly series = new Map<string, BucketCounts>();

  constructor({ name, help, labelNames, buckets }: BucketHistogramConfig) {
    this.name = name;
    this.help = help;
    this.labelNames = labelNames;
    this.bounds = [...buckets];
  }

  /** The series with these labels; exported as soon as something was observed. */
  labels(labels: Readonly<Record<string, string>>): BucketCounts {
    const key = this.keyOf(labels);
    const found = this.series.get(key) ?? new BucketCounts({ ...labels }, this.bounds);
    this.series.set(key, found);
    return found;
  }

  remove(labels: Readonly<Record<string, string>>): void {
    this.series.delete(this.keyOf(labels));
  }

  /** Sets all series back; those that are held go on counting. */
  reset(): void {
    for (const series of this.series.values()) {
      series.counts.fill(0);
      series.sum = 0;
      series.count = 0;
    }
  }

  get(): Promise<Omit<BucketHistogramConfig, 'labelNames' | 'buckets'> & { readonly values: HistogramValue[] }> {
    const { name, help, type, aggregator } = this;
    const observed = [...this.series.values()].filter(({ count }) => count > 0);
    const values = observed.flatMap((series) => this.valuesOf(series));
    return Promise.resolve({ name, help, type, aggregator, values });
  }

  private valuesOf({ labels, counts, sum, count }: BucketCounts): HistogramValue[] {
    let upTo = 0;
    const metricName = `${this.name}_bucket`;
    return [
      ...this.bounds.map((le, i) => ({ labels: { le, ...labels }, value: (upTo += counts[i]!), metricName })),
      { labels: { le: '+Inf', ...labels }, value: count, metricName },
      { labels: { ...labels }, value: sum, metricName: `${this.name}_sum` },
      { labels: { ...labels }, value: count, metricName: `${this.name}_count` },
    ];
  }

  private keyOf(labels: Readonly<Record<string, string>>): string {
    return JSON.stringify(this.labelNames.map((name) => labels[name]));
  }
}
