import type { Counter } from 'prom-client';
import type { GroupPartitionRef, MqEventMap, MqEventName, MqEvents, PartitionRef } from '../core/events.js';
import { BoundedLabel, OTHER_LABEL } from './bounded-label.js';
import type { BucketCounts } from './bucket-histogram.js';
import type { Readings } from './cluster-sample.js';
import {
  clusterGaugeDefinitions,
  counterDefinitions,
  gaugeDefinitions,
  histogramDefinitions,
  type ClusterGaugeName,
  type GaugeDefinition,
  type HistogramDefinition,
  type MetricDefinition,
  type Reading,
} from './metric-definitions.js';
import { MetricSeries } from './metric-series.js';
import { addGaugeSource, sharedCounter, sharedHistogram, type MetricsRegistry } from './shared-metrics.js';

/** What the gauges show, asked at each scrape. Local state only: a scrape must not wait for Redis. */
export interface MetricGauges {
  inflight(): number;
  oldestCallMs(): number;
  /** `undefined` where nothing is moved: the series is then left out. */
  moverAgeMs(): number | undefined;
  maxInflight(): number;
  maxLeasedPartitions(): number;
  leasedPartitions(): number;
  eligiblePartitions(): number;
  /** Whether this instance exports what concerns all. */
  isReporting(): boolean;
  /** What it exports then: the last sample, never a question to Redis. */
  cluster(): Readings;
}

export interface MqMetricsDeps {
  readonly events: MqEvents;
  /** Where the metrics are registered, and the only registry that is touched. */
  readonly registry: MetricsRegistry;
  /** Name of the module instance; the value of the label `mq`. */
  readonly name: string;
  readonly gauges: MetricGauges;
  /** Whether series are kept per partition; otherwise the label `partition` is empty. @default true */
  readonly partitionLabel?: boolean;
  /** How many topics get series of their own; what comes later is counted as topic `(other)`. @default 1000 */
  readonly maxTopics?: number;
}

/** Loops have some twenty kinds, error codes are fewer; the limit guards against names that carry more than a kind. */
const MAX_KINDS = 64;
const MAX_GROUPS = 500;

type Increment = Counter.Internal;
type Observation = BucketCounts;
type PartitionLabels = readonly ['topic', 'partition'];
type GroupPartitionLabels = readonly ['topic', 'partition', 'group'];

/**
 * Feeds prom-client from the engine's events. Instances and applications in one process share the metrics of a
 * registry and differ in the label `mq`. Labels never hold a key, an id or an error text.
 */
export class MqMetrics {
  private readonly maxTopics: number;
  private readonly topics: BoundedLabel;
  private readonly kinds = new BoundedLabel(MAX_KINDS);
  private readonly codes = new BoundedLabel(MAX_KINDS);
  private readonly byTopic: { forget(topic: string): void }[] = [];
  private readonly undo: (() => void)[] = [];

  constructor(private readonly deps: MqMetricsDeps) {
    this.maxTopics = deps.maxTopics ?? 1_000;
    this.topics = new BoundedLabel(this.maxTopics);
    this.countMessages();
    this.countOwnership();
    this.countTrouble();
    this.countMoved();
    this.countDeadLetters();
    this.countTrimmed();
    this.showGauges();
  }

  /** Removes the series of a topic that is gone, as after its deletion. */
  forgetTopic(topic: string): void {
    if (this.topics.forget(topic)) for (const series of this.byTopic) series.forget(topic);
  }

  /** Stops listening and removes the series of this instance, and no others. Idempotent. */
  close(): void {
    for (const undo of this.undo.splice(0)) undo();
  }

  private countMessages(): void {
    const produced = this.counter(counterDefinitions.produced);
    const consumed = this.counter(counterDefinitions.consumed);
    const acked = this.counter(counterDefinitions.acked);
    const retried = this.counter(counterDefinitions.retried);
    const payloadMissing = this.counter(counterDefinitions.payloadMissing);
    const handleLatency = this.histogram(histogramDefinitions.handleLatency);
    const endToEndLatency = this.histogram(histogramDefinitions.endToEndLatency);
    this.on('produced', (event) => this.ofPartition(produced, event).inc(event.count));
    this.on('consumed', (event) => this.ofGroup(consumed, event).inc(event.count));
    this.on('acked', (event) => this.ofGroup(acked, event).inc(event.count));
    this.on('retried', (event) => this.ofGroup(retried, event).inc());
    this.on('payloadMissing', (event) => this.ofGroup(payloadMissing, event).inc(event.ids.length));
    this.on('handled', ({ topic, group, outcome, durationMs, endToEndMs }) => {
      const label = this.topics.of(topic);
      handleLatency.at(label, group, outcome).observe(durationMs);
      // Publishing is timed by Redis' clock and the end by ours, so a difference of the clocks may make it negative.
      if (outcome === 'success') endToEndLatency.at(label, group).observe(Math.max(0, endToEndMs));
    });
  }

  private countOwnership(): void {
    const acquired = this.counter(counterDefinitions.leaseAcquired);
    const released = this.counter(counterDefinitions.leaseReleased);
    const lost = this.counter(counterDefinitions.leaseLost);
    const takenOver = this.counter(counterDefinitions.takenOver);
    const rebalances = this.counter(counterDefinitions.rebalances);
    const handOverPause = this.histogram(histogramDefinitions.handOverPause);
    this.on('leaseAcquired', (event) => {
      this.ofGroup(acquired, event).inc();
      const { topic, group, withoutOwner } = event;
      if (withoutOwner === undefined) return;
      handOverPause.at(this.topics.of(topic), group, withoutOwner.since).observe(withoutOwner.ms);
    });
    this.on('leaseReleased', (event) => this.ofGroup(released, event).inc());
    this.on('leaseLost', (event) =>
      lost.at(this.topics.of(event.topic), this.partition(event), event.group, event.reason).inc(),
    );
    this.on('takenOver', (event) => this.ofGroup(takenOver, event).inc(event.count));
    this.on('rebalanced', ({ group, acquired: gained, givenUp }) => {
      if (gained + givenUp > 0) rebalances.at(group).inc();
    });
  }

  private countTrouble(): void {
    const sendErrors = this.counter(counterDefinitions.sendErrors);
    const ledgerRepairs = this.counter(counterDefinitions.ledgerRepairs);
    const healed = this.counter(counterDefinitions.healed);
    const readerRestarts = this.counter(counterDefinitions.readerRestarts);
    const faults = this.counter(counterDefinitions.faults);
    const waits = this.counter(counterDefinitions.backpressureWait);
    const waited = this.histogram(histogramDefinitions.backpressureWait);
    this.on('sendFailed', ({ code }) => sendErrors.at(this.codes.of(code)).inc());
    this.on('ledgerRepaired', (event) => this.ofGroup(ledgerRepairs, event).inc());
    this.on('healed', (event) => this.ofGroup(healed, event).inc());
    this.on('readerReplaced', ({ group }) => readerRestarts.at(group).inc());
    this.on('fault', (event) => faults.at(this.kinds.of(componentKind(event.component)), event.class).inc());
    this.on('backpressure', ({ group, waitedMs }) => {
      waits.at(group).inc();
      waited.at(group).observe(waitedMs);
    });
  }

  private countMoved(): void {
    const retries = this.counter(counterDefinitions.retriesMoved);
    const delayed = this.counter(counterDefinitions.delayedMoved);
    const setAside = this.counter(counterDefinitions.setAside);
    this.on('moved', (event) => {
      const { topic, group, moved, bad } = event;
      if (moved > 0 && group === null) this.ofPartition(delayed, event).inc(moved);
      if (moved > 0 && group !== null) this.ofGroup(retries, { ...event, group }).inc(moved);
      if (bad.length === 0) return;
      const kind = group === null ? 'delayed' : 'retry';
      setAside.at(this.topics.of(topic), this.partition(event), kind).inc(bad.length);
    });
  }

  private countDeadLetters(): void {
    const dead = this.counter(counterDefinitions.dead);
    const deleted = this.counter(counterDefinitions.deadLetterDeleted);
    const cleared = this.counter(counterDefinitions.deadLetterCleared);
    const success = this.counter(counterDefinitions.replaySuccess);
    const failure = this.counter(counterDefinitions.replayFailure);
    const latency = this.histogram(histogramDefinitions.replayLatency);
    this.on('dead', (event) =>
      dead.at(this.topics.of(event.topic), this.partition(event), event.group, event.reason).inc(),
    );
    this.on('deadLetterDeleted', (event) =>
      this.ofPartition(event.by === 'clear' ? cleared : deleted, event).inc(event.count),
    );
    this.on('replayed', (event) => {
      if (event.result === 'gone') return;
      this.ofGroup(event.result === 'replayed' ? success : failure, event).inc();
      latency.at(this.topics.of(event.topic), event.group).observe(event.durationMs);
    });
  }

  private countTrimmed(): void {
    const attempts = this.counter(counterDefinitions.trimAttempts);
    const deleted = this.counter(counterDefinitions.trimDeleted);
    const pinned = this.counter(counterDefinitions.retentionPinned);
    const abandoned = this.counter(counterDefinitions.retentionAbandoned);
    this.on('retentionPinned', (event) => this.ofGroup(pinned, event).inc());
    this.on('retentionAbandoned', (event) => this.ofGroup(abandoned, event).inc(event.count));
    this.on('trimmed', (event) => {
      const topic = this.topics.of(event.topic);
      const partition = this.partition(event);
      attempts.at(topic, partition, event.stream).inc();
      const { byLength, byAge, byHardBound } = event;
      for (const [reason, count] of Object.entries({ length: byLength, age: byAge, 'hard-bound': byHardBound })) {
        if (count > 0) deleted.at(topic, partition, reason, event.stream).inc(count);
      }
    });
  }

  private showGauges(): void {
    const { gauges } = this.deps;
    this.gauge(gaugeDefinitions.inflight, () => gauges.inflight());
    this.gauge(gaugeDefinitions.oldestCall, () => gauges.oldestCallMs());
    this.gauge(gaugeDefinitions.moverAge, () => gauges.moverAgeMs());
    this.gauge(gaugeDefinitions.maxInflight, () => gauges.maxInflight());
    this.gauge(gaugeDefinitions.maxLeasedPartitions, () => gauges.maxLeasedPartitions());
    this.gauge(gaugeDefinitions.leasedPartitions, () => gauges.leasedPartitions());
    this.gauge(gaugeDefinitions.eligiblePartitions, () => gauges.eligiblePartitions());
    this.gauge(gaugeDefinitions.reporter, () => Number(gauges.isReporting()));
    for (const name of Object.keys(clusterGaugeDefinitions) as ClusterGaugeName[]) {
      const definition: GaugeDefinition = clusterGaugeDefinitions[name];
      this.addGauge(definition, () => this.bounded(definition.labels, gauges.cluster()[name] ?? []));
    }
  }

  /** The first values of each label as they are, in the order of the sample, which is that of their names. */
  private bounded(names: readonly string[], readings: readonly Reading[]): readonly Reading[] {
    if (names.length === 0) return readings;
    const limits: Record<string, number> = { topic: this.maxTopics, group: MAX_GROUPS };
    const bounds = names.map((name) => new BoundedLabel(limits[name] ?? MAX_KINDS));
    return readings.map(({ labels, value }) => ({ labels: labels.map((text, i) => bounds[i]!.of(text)), value }));
  }

  private on<E extends MqEventName>(event: E, listener: (payload: MqEventMap[E]) => void): void {
    // Unsubscribing comes before the removal of the series: `close()` undoes from the front.
    this.undo.unshift(this.deps.events.on(event, listener));
  }

  private counter<L extends readonly string[]>(
    definition: MetricDefinition & { readonly labels: L },
  ): MetricSeries<Increment, L> {
    return this.track(definition, sharedCounter(this.deps.registry, definition, this.onClash));
  }

  private histogram<L extends readonly string[]>(
    definition: HistogramDefinition & { readonly labels: L },
  ): MetricSeries<Observation, L> {
    return this.track(definition, sharedHistogram(this.deps.registry, definition, this.onClash));
  }

  private track<C, L extends readonly string[]>(
    definition: { readonly labels: L },
    metric: ConstructorParameters<typeof MetricSeries<C, L>>[0],
  ): MetricSeries<C, L> {
    const series = new MetricSeries<C, L>(metric, definition.labels, this.deps.name);
    if (definition.labels[0] === 'topic') this.byTopic.push(series);
    this.undo.push(() => series.release());
    return series;
  }

  private gauge(definition: GaugeDefinition, read: () => number | undefined): void {
    this.addGauge(definition, () => {
      const value = read();
      return value === undefined ? [] : [{ labels: [], value }];
    });
  }

  private addGauge(definition: GaugeDefinition, read: () => readonly Reading[]): void {
    const { events, name, registry } = this.deps;
    let hasWarned = false;
    const source = (): readonly Reading[] => {
      try {
        return read();
      } catch (error) {
        // What throws here fails the whole scrape, the application's own metrics included.
        const fields = { metric: definition.name, mq: name, error };
        if (!hasWarned) events.emit('warning', { message: 'a gauge cannot be read; its series is left out', fields });
        hasWarned = true;
        return [];
      }
    };
    this.undo.push(addGaugeSource(registry, definition, name, source, this.onClash));
  }

  private readonly onClash = (metric: string): void => {
    this.deps.events.emit('warning', {
      message: 'the registry has an unlike metric of this name; rename it to see the one of the message queue',
      fields: { metric, mq: this.deps.name },
    });
  };

  private ofPartition<C>(series: MetricSeries<C, PartitionLabels>, event: PartitionRef): C {
    return series.at(this.topics.of(event.topic), this.partition(event));
  }

  private ofGroup<C>(series: MetricSeries<C, GroupPartitionLabels>, event: GroupPartitionRef): C {
    return series.at(this.topics.of(event.topic), this.partition(event), event.group);
  }

  private partition(event: PartitionRef): string {
    return this.deps.partitionLabel === false ? '' : String(event.partition);
  }
}

/** `mover` of `mover:orders:3`: components may be named after what they serve, labels may not. */
function componentKind(component: string): string {
  return /^[A-Za-z][A-Za-z_-]*/.exec(component)?.[0] ?? OTHER_LABEL;
}
