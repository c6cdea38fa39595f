import { Counter, Gauge, type Histogram, type OpenMetricsContentType, type Registry } from 'prom-client';
import { BucketHistogram } from './bucket-histogram.js';
import type { GaugeDefinition, HistogramDefinition, MetricDefinition, Reading } from './metric-definitions.js';

/** A registry of either exposition format. */
export type MetricsRegistry = Registry | Registry<OpenMetricsContentType>;

/** Told about a name that belongs to an unlike metric of the application's. */
export type OnClash = (name: string) => void;

/** What a gauge shows; none when there is nothing to say. Labels in the order of the definition, without `mq`. */
export type GaugeSource = () => readonly Reading[];

/** Marks gauges whose `collect` reads the sources kept here; on the gauge for the reason given in metric-series.ts. */
const SOURCES = Symbol.for('nestjs-redis-streams-mq.gauge-sources');

export function sharedCounter(registry: MetricsRegistry, definition: MetricDefinition, onClash: OnClash): Counter {
  return getOrCreate(registry, 'counter', definition, onClash, (base) => new Counter(base));
}

export function sharedHistogram(
  registry: MetricsRegistry,
  definition: HistogramDefinition,
  onClash: OnClash,
): BucketHistogram {
  const { buckets } = definition;
  return getOrCreate(registry, 'histogram', definition, onClash, ({ registers, ...base }) => {
    const histogram = new BucketHistogram({ ...base, buckets });
    for (const each of registers) each.registerMetric(histogram as unknown as Histogram);
    return histogram;
  });
}

/**
 * Adds `source` to the gauge, whose series at each scrape are exactly what its sources say then: readings of the same
 * labels are merged, and a series that nobody speaks of any more is gone. Returns what takes the source away.
 */
export function addGaugeSource(
  registry: MetricsRegistry,
  definition: GaugeDefinition,
  mq: string,
  source: GaugeSource,
  onClash: OnClash,
): () => void {
  const gauge = getOrCreate(registry, 'gauge', definition, onClash, (base) => {
    const sources = new Map<string, Set<GaugeSource>>();
    const created = new Gauge({
      ...base,
      collect() {
        this.reset();
        for (const [name, of] of sources) collectInto(this, definition, name, of);
      },
    });
    return Object.assign(created, { [SOURCES]: sources });
  });
  const sources = gauge[SOURCES];
  const ofThisName = sources.get(mq) ?? new Set();
  sources.set(mq, ofThisName.add(source));
  return () => {
    if (ofThisName.delete(source) && ofThisName.size === 0) sources.delete(mq);
  };
}

function collectInto(
  gauge: Gauge,
  { labels: names, merge = 'sum' }: GaugeDefinition,
  mq: string,
  sources: ReadonlySet<GaugeSource>,
): void {
  const merged = new Map<string, Reading>();
  for (const source of sources) {
    for (const { labels, value } of source()) {
      const id = labels.join('\0');
      const other = merged.get(id)?.value;
      const both = other === undefined ? value : merge === 'sum' ? other + value : Math.max(other, value);
      merged.set(id, { labels, value: both });
    }
  }
  for (const { labels, value } of merged.values()) {
    gauge.set({ mq, ...Object.fromEntries(names.map((name, i) => [name, labels[i] ?? ''])) }, value);
  }
}

interface MetricBase {
  readonly name: string;
  readonly help: string;
  readonly labelNames: string[];
  readonly registers: MetricsRegistry[];
}

/**
 * `new Counter` throws for a name that the registry knows, so the second instance takes the first one's metric. An
 * unlike metric of that name is the application's: it keeps the name, and ours counts unregistered.
 */
function getOrCreate<M extends object>(
  registry: MetricsRegistry,
  type: 'counter' | 'gauge' | 'histogram',
  definition: MetricDefinition,
  onClash: OnClash,
  create: (base: MetricBase) => M,
): M {
  const { name, help } = definition;
  const labelNames = ['mq', ...definition.labels];
  const existing: object | undefined = registry.getSingleMetric(name);
  if (existing === undefined) return create({ name, help, labelNames, registers: [registry] });
  if (isAlike(existing, type, labelNames)) return existing as M;
  onClash(name);
  return create({ name, help, labelNames, registers: [] });
}

/** By shape and not by class, because the application may have a prom-client of its own. */
function isAlike(metric: object, type: string, labelNames: readonly string[]): boolean {
  const found = metric as { readonly type?: unknown; readonly labelNames?: readonly string[] };
  if (found.type !== type || found.labelNames?.length !== labelNames.length) return false;
  if (type === 'gauge' && !(SOURCES in metric)) return false;
  return labelNames.every((label) => found.labelNames?.includes(label));
}
