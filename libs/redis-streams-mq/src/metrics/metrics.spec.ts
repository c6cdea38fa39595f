import { Counter, Histogram, register, Registry, type OpenMetricsContentType } from 'prom-client';
import { MqEvents, type MqEventMap } from '../core/events.js';
import {
  clusterGaugeDefinitions,
  counterDefinitions,
  gaugeDefinitions,
  histogramDefinitions,
  type ClusterGaugeName,
} from './metric-definitions.js';
import { MqMetrics, type MetricGauges, type MqMetricsDeps } from './metrics.js';

const partition = { topic: 'orders', partition: 3 };
const owned = { ...partition, group: 'billing' };
const ofGroup = 'group="billing",mq="default",partition="3",topic="orders"';

const idle: MetricGauges = {
  inflight: () => 0,
  oldestCallMs: () => 0,
  moverAgeMs: () => 0,
  maxInflight: () => 0,
  maxLeasedPartitions: () => 0,
  leasedPartitions: () => 0,
  eligiblePartitions: () => 0,
  isReporting: () => false,
  cluster: () => ({}),
};

const opened: MqMetrics[] = [];

function instance(deps: Partial<MqMetricsDeps> = {}) {
  const listenerErrors: unknown[] = [];
  const events = deps.events ?? new MqEvents((error) => void listenerErrors.push(error));
  const registry = deps.registry ?? new Registry();
  const warnings: MqEventMap['warning'][] = [];
  events.on('warning', (warning) => void warnings.push(warning));
  const metrics = new MqMetrics({ events, registry, name: 'default', gauges: idle, ...deps });
  opened.push(metrics);
  return { events, registry, metrics, warnings, listenerErrors };
}

/** Every sample as `name{labels sorted by name} value`, without the gauges unless asked for. */
async function series(registry: MqMetricsDeps['registry'], { gauges = false } = {}): Promise<string[]> {
  const gaugeNames = Object.values({ ...gaugeDefinitions, ...clusterGaugeDefinitions }).map(
    ({ name }) => name as string,
  );
  return (await registry.metrics())
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name, labels, value] = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
      return { name: name ?? line, labels: (labels ?? '').split(/,(?=\w+=")/).toSorted(), value };
    })
    .filter(({ name }) => gauges || !gaugeNames.includes(name))
    .map(({ name, labels, value }) => `${name}{${labels.join(',')}} ${value}`);
}

function withoutBuckets(lines: readonly string[]): string[] {
  return lines.filter((line) => !line.includes('_bucket{'));
}

afterEach(() => {
  for (const metrics of opened.splice(0)) metrics.close();
});

describe('MqMetrics, events', () => {
  type Emission = { [E in keyof MqEventMap]: [E, MqEventMap[E]] }[keyof MqEventMap];
  const cases: [what: string, emissions: Emission[], expected: string[]][] = [
    [
      'produced',
      [
        ['produced', { ...partition, count: 2 }],
        ['produced', { ...partition, count: 5 }],
      ],
      ['redis_streaming_mq_produced_total{mq="default",partition="3",topic="orders"} 7'],
    ],
    ['consumed', [['consumed', { ...owned, count: 32 }]], [`redis_streaming_mq_consumed_total{${ofGroup}} 32`]],
    ['acked', [['acked', { ...owned, count: 4 }]], [`redis_streaming_mq_acked_total{${ofGroup}} 4`]],
    [
      'retried, without id and error text',
      [
        ['retried', { ...owned, id: '1-0', attempt: 1, delayMs: 5, error: new Error('card 4711') }],
        ['retried', { ...owned, id: '2-0', attempt: 2, delayMs: 9, error: 'other text' }],
      ],
      [`redis_streaming_mq_retried_total{${ofGroup}} 2`],
    ],
    [
      'dead by reason',
      [
        ['dead', { ...owned, id: '1-0', attempt: 5, reason: 'exhausted', error: new Error('x') }],
        ['dead', { ...owned, id: '2-0', attempt: 1, reason: 'crash-loop', error: undefined }],
        ['dead', { ...owned, id: '3-0', attempt: 5, reason: 'exhausted', error: new Error('y') }],
      ],
      [
        'redis_streaming_mq_dead_total{group="billing",mq="default",partition="3",reason="exhausted",topic="orders"} 2',
        'redis_streaming_mq_dead_total{group="billing",mq="default",partition="3",reason="crash-loop",topic="orders"} 1',
      ],
    ],
    [
      'payload missing, by the number of entries',
      [['payloadMissing', { ...owned, ids: ['1-0', '2-0', '3-0'] }]],
      [`redis_streaming_mq_payload_missing_total{${ofGroup}} 3`],
    ],
    [
      'what retention removed, by rule',
      [
        ['trimmed', { ...partition, stream: 'stream', byLength: 5, byAge: 0, byHardBound: 2 }],
        ['trimmed', { ...partition, stream: 'stream', byLength: 1, byAge: 0, byHardBound: 0 }],
        ['trimmed', { ...partition, stream: 'dlq', byLength: 0, byAge: 3, byHardBound: 0 }],
        ['retentionPinned', { ...owned, length: 200_000 }],
        ['retentionAbandoned', { ...owned, count: 4, idleMs: 90_000 }],
      ],
      [
        `redis_streaming_mq_retention_pinned_total{${ofGroup}} 1`,
        `redis_streaming_mq_retention_abandoned_total{${ofGroup}} 4`,
        'redis_streaming_mq_trim_attempts_total{mq="default",partition="3",stream="stream",topic="orders"} 2',
        'redis_streaming_mq_trim_attempts_total{mq="default",partition="3",stream="dlq",topic="orders"} 1',
        'redis_streaming_mq_trim_deleted_total{mq="default",partition="3",reason="length",stream="stream",topic="orders"} 6',
        'redis_streaming_mq_trim_deleted_total{mq="default",partition="3",reason="hard-bound",stream="stream",topic="orders"} 2',
        'redis_streaming_mq_trim_deleted_total{mq="default",partition="3",reason="age",stream="dlq",topic="orders"} 3',
      ],
    ],
    [
      'send errors by code alone',
      [
        ['sendFailed', { topic: 'orders', code: 'MQ_SEND_TIMEOUT' }],
        ['sendFailed', { topic: 'any text at all', code: 'MQ_SEND_TIMEOUT' }],
      ],
      ['redis_streaming_mq_send_errors_total{code="MQ_SEND_TIMEOUT",mq="default"} 2'],
    ],
    [
      'leases',
      [
        ['leaseAcquired', { ...owned, epoch: 1, clean: false, withoutOwner: undefined }],
        ['leaseAcquired', { ...owned, epoch: 2, clean: true, withoutOwner: { since: 'released', ms: 12 } }],
        ['leaseAcquired', { ...owned, epoch: 3, clean: false, withoutOwner: { since: 'expired', ms: 300 } }],
        ['leaseReleased', { ...owned, epoch: 1 }],
        ['leaseLost', { ...owned, epoch: 2, reason: 'taken' }],
        ['takenOver', { ...owned, count: 6 }],
      ],
      [
        `redis_streaming_mq_lease_acquired_total{${ofGroup}} 3`,
        'redis_streaming_mq_hand_over_pause_ms_sum{group="billing",mq="default",since="released",topic="orders"} 12',
        'redis_streaming_mq_hand_over_pause_ms_count{group="billing",mq="default",since="released",topic="orders"} 1',
        'redis_streaming_mq_hand_over_pause_ms_sum{group="billing",mq="default",since="expired",topic="orders"} 300',
        'redis_streaming_mq_hand_over_pause_ms_count{group="billing",mq="default",since="expired",topic="orders"} 1',
        `redis_streaming_mq_lease_released_total{${ofGroup}} 1`,
        'redis_streaming_mq_lease_lost_total{group="billing",mq="default",partition="3",reason="taken",topic="orders"} 1',
        `redis_streaming_mq_taken_over_total{${ofGroup}} 6`,
      ],
    ],
    [
      'rebalances that moved something to or from this instance',
      [
        ['rebalanced', { group: 'billing', members: 2, owned: 4, acquired: 4, givenUp: 0 }],
        ['rebalanced', { group: 'billing', members: 2, owned: 4, acquired: 0, givenUp: 0 }],
        ['rebalanced', { group: 'billing', members: 3, owned: 3, acquired: 0, givenUp: 1 }],
      ],
      ['redis_streaming_mq_rebalances_total{group="billing",mq="default"} 2'],
    ],
    [
      'repairs',
      [
        ['ledgerRepaired', { ...owned, brought: 5, dropped: 0 }],
        ['healed', { ...owned, position: '5-0', reason: 'group lost' }],
        ['readerReplaced', { group: 'billing', reason: 'no answer for 812 ms' }],
      ],
      [
        `redis_streaming_mq_ledger_repairs_total{${ofGroup}} 1`,
        `redis_streaming_mq_healed_total{${ofGroup}} 1`,
        'redis_streaming_mq_reader_restarts_total{group="billing",mq="default"} 1',
      ],
    ],
    [
      'what the mover moved and set aside',
      [
        ['moved', { ...owned, moved: 3, bad: ['1-0'] }],
        ['moved', { ...partition, group: null, moved: 2, bad: [] }],
        ['moved', { ...partition, group: null, moved: 0, bad: ['2-0', '3-0'] }],
      ],
      [
        `redis_streaming_mq_retries_moved_total{${ofGroup}} 3`,
        'redis_streaming_mq_delayed_moved_total{mq="default",partition="3",topic="orders"} 2',
        'redis_streaming_mq_set_aside_total{kind="retry",mq="default",partition="3",topic="orders"} 1',
        'redis_streaming_mq_set_aside_total{kind="delayed",mq="default",partition="3",topic="orders"} 2',
      ],
    ],
    [
      'faults by kind of component, not by what it serves',
      [
        ['fault', { component: 'mover:orders:3', class: 'transient', error: new Error('x'), retryInMs: 100 }],
        ['fault', { component: 'mover:orders:4', class: 'transient', error: new Error('y'), retryInMs: 100 }],
        ['fault', { component: '{orders}', class: 'key', error: new Error('z'), retryInMs: 100 }],
      ],
      [
        'redis_streaming_mq_faults_total{class="transient",component="mover",mq="default"} 2',
        'redis_streaming_mq_faults_total{class="key",component="(other)",mq="default"} 1',
      ],
    ],
    [
      'backpressure',
      [
        ['backpressure', { group: 'billing', waitedMs: 7 }],
        ['backpressure', { group: 'billing', waitedMs: 13 }],
      ],
      [
        'redis_streaming_mq_backpressure_wait_total{group="billing",mq="default"} 2',
        'redis_streaming_mq_backpressure_wait_ms_sum{group="billing",mq="default"} 20',
        'redis_streaming_mq_backpressure_wait_ms_count{group="billing",mq="default"} 2',
      ],
    ],
    [
      'replays, where one that was already gone is neither success nor failure',
      [
        ['replayed', { ...owned, result: 'replayed', durationMs: 3 }],
        ['replayed', { ...owned, result: 'failed', durationMs: 4 }],
        ['replayed', { ...owned, result: 'gone', durationMs: 5 }],
        ['deadLetterDeleted', { ...partition, count: 9, by: 'delete' }],
        ['deadLetterDeleted', { ...partition, count: 40, by: 'clear' }],
      ],
      [
        'redis_streaming_dlq_cleared_total{mq="default",partition="3",topic="orders"} 40',
        'redis_streaming_dlq_deleted_total{mq="default",partition="3",topic="orders"} 9',
        `redis_streaming_dlq_replay_success_total{${ofGroup}} 1`,
        `redis_streaming_dlq_replay_failure_total{${ofGroup}} 1`,
        'redis_streaming_dlq_replay_latency_ms_sum{group="billing",mq="default",topic="orders"} 7',
        'redis_streaming_dlq_replay_latency_ms_count{group="billing",mq="default",topic="orders"} 2',
      ],
    ],
    [
      'handler latency by outcome, and end to end for successes alone',
      [
        ['handled', { ...owned, outcome: 'success', durationMs: 12, endToEndMs: 340 }],
        ['handled', { ...owned, partition: 4, outcome: 'success', durationMs: 8, endToEndMs: -5 }],
        ['handled', { ...owned, outcome: 'retry', durationMs: 2, endToEndMs: 9 }],
      ],
      [
        'redis_streaming_mq_handle_latency_ms_sum{group="billing",mq="default",outcome="success",topic="orders"} 20',
        'redis_streaming_mq_handle_latency_ms_count{group="billing",mq="default",outcome="success",topic="orders"} 2',
        'redis_streaming_mq_handle_latency_ms_sum{group="billing",mq="default",outcome="retry",topic="orders"} 2',
        'redis_streaming_mq_handle_latency_ms_count{group="billing",mq="default",outcome="retry",topic="orders"} 1',
        'redis_streaming_mq_end_to_end_latency_ms_sum{group="billing",mq="default",topic="orders"} 340',
        'redis_streaming_mq_end_to_end_latency_ms_count{group="billing",mq="default",topic="orders"} 2',
      ],
    ],
  ];

  it.each(cases)('counts %s', async (_what, emissions, expected) => {
    const { events, registry, listenerErrors } = instance();
    for (const [event, payload] of emissions) events.emit(event, payload);
    expect(withoutBuckets(await series(registry)).toSorted()).toEqual(expected.toSorted());
    expect(listenerErrors).toEqual([]);
  });

  it('feeds every metric it defines', async () => {
    const readings = Object.entries(clusterGaugeDefinitions).map(([name, { labels }]) => [
      name,
      [{ labels, value: 1 }],
    ]);
    const cluster = () => Object.fromEntries(readings) as ReturnType<MetricGauges['cluster']>;
    const { events, registry } = instance({ gauges: { ...idle, cluster } });
    for (const [, emissions] of cases) for (const [event, payload] of emissions) events.emit(event, payload);
    const lines = await series(registry, { gauges: true });
    const definitions = [counterDefinitions, histogramDefinitions, gaugeDefinitions, clusterGaugeDefinitions].flatMap(
      (of): { name: string }[] => Object.values(of),
    );
    const unfed = definitions.filter(({ name }) => !lines.some((line) => line.startsWith(name)));
    expect(unfed).toEqual([]);
    expect(new Set(definitions.map(({ name }) => name)).size).toBe(definitions.length);
  });

  it('puts latencies into buckets of milliseconds', async () => {
    const { events, registry } = instance();
    events.emit('handled', { ...owned, outcome: 'success', durationMs: 40, endToEndMs: 40 });
    const labels = 'mq="default",outcome="success",topic="orders"';
    const lines = await series(registry);
    expect(lines).toContain(`redis_streaming_mq_handle_latency_ms_bucket{group="billing",le="25",${labels}} 0`);
    expect(lines).toContain(`redis_streaming_mq_handle_latency_ms_bucket{group="billing",le="50",${labels}} 1`);
    expect(lines).toContain(`redis_streaming_mq_handle_latency_ms_bucket{group="billing",le="+Inf",${labels}} 1`);
  });

  it('leaves the partition label empty when it is switched off', async () => {
    const { events, registry } = instance({ partitionLabel: false });
    events.emit('acked', { ...owned, partition: 0, count: 1 });
    events.emit('acked', { ...owned, partition: 1, count: 1 });
    expect(await series(registry)).toEqual([
      'redis_streaming_mq_acked_total{group="billing",mq="default",partition="",topic="orders"} 2',
    ]);
  });
});

describe('MqMetrics, gauges', () => {
  it('reads the local state at each scrape', async () => {
    let inflight = 3;
    const gauges: MetricGauges = {
      inflight: () => inflight,
      oldestCallMs: () => 250,
      moverAgeMs: () => 40,
      maxInflight: () => 100,
      maxLeasedPartitions: () => 16,
      leasedPartitions: () => 4,
      eligiblePartitions: () => 8,
      isReporting: () => true,
      cluster: () => ({ lag: [{ labels: ['orders', 'billing'], value: 2 * inflight }] }),
    };
    const { registry } = instance({ gauges });
    const expected = (now: number) => [
      `redis_streaming_mq_inflight{mq="default"} ${now}`,
      'redis_streaming_mq_oldest_handler_call_ms{mq="default"} 250',
      'redis_streaming_mq_mover_age_ms{mq="default"} 40',
      'redis_streaming_mq_max_inflight{mq="default"} 100',
      'redis_streaming_mq_max_leased_partitions{mq="default"} 16',
      'redis_streaming_mq_leased_partitions{mq="default"} 4',
      'redis_streaming_mq_eligible_partitions{mq="default"} 8',
      'redis_streaming_mq_reporter{mq="default"} 1',
      `redis_streaming_mq_lag{group="billing",mq="default",topic="orders"} ${now * 2}`,
    ];
    expect(await series(registry, { gauges: true })).toEqual(expected(3));
    inflight = 0;
    expect(await series(registry, { gauges: true })).toEqual(expected(0));
  });

  it('shows of all instances what the sample says, and nothing that it says no more', async () => {
    let readings: ReturnType<MetricGauges['cluster']> = {
      topics: [{ labels: [], value: 2 }],
      lagAge: [
        { labels: ['orders', 'billing'], value: 5 },
        { labels: ['users', 'billing'], value: 9 },
      ],
    };
    const { registry } = instance({ gauges: { ...idle, cluster: () => readings } });
    const clusterNames = Object.values(clusterGaugeDefinitions).map(({ name }) => name as string);
    const ofAll = async () =>
      (await series(registry, { gauges: true })).filter((line) =>
        clusterNames.includes(line.slice(0, line.indexOf('{'))),
      );
    expect(await ofAll()).toEqual([
      'redis_streaming_mq_topics_total{mq="default"} 2',
      'redis_streaming_mq_lag_age_ms{group="billing",mq="default",topic="orders"} 5',
      'redis_streaming_mq_lag_age_ms{group="billing",mq="default",topic="users"} 9',
    ]);
    readings = { lagAge: [{ labels: ['users', 'billing'], value: 1 }] };
    expect(await ofAll()).toEqual(['redis_streaming_mq_lag_age_ms{group="billing",mq="default",topic="users"} 1']);
    readings = {};
    expect(await ofAll()).toEqual([]);
  });

  it('bounds the labels of what concerns all: counts beyond are summed up, of ages the highest is shown', async () => {
    const of = (name: ClusterGaugeName): ReturnType<MetricGauges['cluster']> => ({
      [name]: Array.from({ length: 2_000 }, (_, i) => ({ labels: [`t${i}`, 'billing'], value: i })),
    });
    const readings = { ...of('lag'), ...of('lagAge') };
    const { registry } = instance({ gauges: { ...idle, cluster: () => readings }, maxTopics: 10 });
    const lines = await series(registry, { gauges: true });
    const count = (name: string) => lines.filter((line) => line.startsWith(`${name}{`)).length;
    expect([count('redis_streaming_mq_lag'), count('redis_streaming_mq_lag_age_ms')]).toEqual([11, 11]);
    const sum = (2_000 * 1_999) / 2 - 45;
    expect(lines).toContain(`redis_streaming_mq_lag{group="billing",mq="default",topic="(other)"} ${sum}`);
    expect(lines).toContain('redis_streaming_mq_lag_age_ms{group="billing",mq="default",topic="(other)"} 1999');
  });

  it('leaves a gauge out that cannot be read, warns once, and does not fail the scrape', async () => {
    const error = new Error('not yet');
    const inflight = () => {
      throw error;
    };
    const { registry, warnings } = instance({ gauges: { ...idle, inflight } });
    await series(registry);
    const lines = await series(registry, { gauges: true });
    expect(lines.filter((line) => line.startsWith('redis_streaming_mq_inflight'))).toEqual([]);
    expect(lines).toContain('redis_streaming_mq_leased_partitions{mq="default"} 0');
    expect(warnings).toEqual([
      {
        message: 'a gauge cannot be read; its series is left out',
        fields: { metric: 'redis_streaming_mq_inflight', mq: 'default', error },
      },
    ]);
  });
});

describe('MqMetrics, several in one process (OBS-01)', () => {
  it('shares the metrics of a registry by the label mq, and close removes its own series only', async () => {
    const registry = new Registry();
    const a = instance({ registry, name: 'a', gauges: { ...idle, inflight: () => 1 } });
    const b = instance({ registry, name: 'b', gauges: { ...idle, inflight: () => 2 } });
    a.events.emit('acked', { ...owned, count: 1 });
    a.events.emit('handled', { ...owned, outcome: 'success', durationMs: 1, endToEndMs: 1 });
    b.events.emit('acked', { ...owned, count: 2 });
    const acked = (mq: string, value: number) =>
      `redis_streaming_mq_acked_total{group="billing",mq="${mq}",partition="3",topic="orders"} ${value}`;
    const both = await series(registry, { gauges: true });
    expect(both).toEqual(
      expect.arrayContaining([
        acked('a', 1),
        acked('b', 2),
        'redis_streaming_mq_inflight{mq="a"} 1',
        'redis_streaming_mq_inflight{mq="b"} 2',
      ]),
    );

    a.metrics.close();
    a.metrics.close();
    a.events.emit('acked', { ...owned, count: 1 });
    b.events.emit('acked', { ...owned, count: 1 });
    expect(await series(registry)).toEqual([acked('b', 3)]);
    const left = await series(registry, { gauges: true });
    expect(left.filter((line) => line.includes('mq="a"'))).toEqual([]);
    expect(left).toContain('redis_streaming_mq_inflight{mq="b"} 2');
    expect(a.events.has('acked')).toBe(false);
    expect(b.events.has('acked')).toBe(true);
  });

  it('keeps the series of a name until its last instance is closed, and sums their gauges', async () => {
    const registry = new Registry();
    const one = instance({ registry, gauges: { ...idle, inflight: () => 1 } });
    const two = instance({ registry, gauges: { ...idle, inflight: () => 2 } });
    one.events.emit('acked', { ...owned, count: 1 });
    two.events.emit('acked', { ...owned, count: 1 });
    expect(await series(registry, { gauges: true })).toEqual(
      expect.arrayContaining([
        `redis_streaming_mq_acked_total{${ofGroup}} 2`,
        'redis_streaming_mq_inflight{mq="default"} 3',
      ]),
    );
    one.metrics.close();
    expect(await series(registry, { gauges: true })).toEqual(
      expect.arrayContaining([
        `redis_streaming_mq_acked_total{${ofGroup}} 2`,
        'redis_streaming_mq_inflight{mq="default"} 2',
      ]),
    );
    two.metrics.close();
    expect(await series(registry, { gauges: true })).toEqual([]);
  });

  it('starts from zero again after close, as a restarted module does', async () => {
    const registry = new Registry();
    const before = instance({ registry });
    before.events.emit('acked', { ...owned, count: 5 });
    before.metrics.close();
    const after = instance({ registry });
    after.events.emit('acked', { ...owned, count: 1 });
    expect(await series(registry)).toEqual([`redis_streaming_mq_acked_total{${ofGroup}} 1`]);
  });

  it('registers anew after registry.clear(), and the instance of before harms nothing', async () => {
    const registry = new Registry();
    const before = instance({ registry });
    before.events.emit('acked', { ...owned, count: 5 });
    registry.clear();
    const after = instance({ registry });
    after.events.emit('acked', { ...owned, count: 1 });
    before.events.emit('acked', { ...owned, count: 5 });
    before.metrics.close();
    expect(await series(registry)).toEqual([`redis_streaming_mq_acked_total{${ofGroup}} 1`]);
    expect(await series(registry, { gauges: true })).toContain('redis_streaming_mq_inflight{mq="default"} 0');
  });

  it('goes on counting after registry.resetMetrics()', async () => {
    const { registry, events, metrics } = instance();
    events.emit('acked', { ...owned, count: 5 });
    registry.resetMetrics();
    events.emit('acked', { ...owned, count: 1 });
    expect(await series(registry)).toEqual([`redis_streaming_mq_acked_total{${ofGroup}} 1`]);
    metrics.close();
    expect(await series(registry, { gauges: true })).toEqual([]);
  });

  it('does not touch the default registry unless it is the one given', async () => {
    expect(register.getMetricsAsArray()).toEqual([]);
    const { events } = instance();
    events.emit('acked', { ...owned, count: 1 });
    expect(register.getMetricsAsArray()).toEqual([]);

    const given = instance({ registry: register });
    given.events.emit('acked', { ...owned, count: 1 });
    expect(await series(register)).toEqual([`redis_streaming_mq_acked_total{${ofGroup}} 1`]);
    register.clear();
  });

  it("leaves an unlike metric of the application's alone and says so", async () => {
    const registry = new Registry();
    const name = 'redis_streaming_mq_acked_total';
    const help = "the application's";
    new Counter({ name, help, labelNames: ['shop'], registers: [registry] }).inc({ shop: 'x' }, 4);
    const { events, warnings, listenerErrors } = instance({ registry });
    events.emit('acked', { ...owned, count: 1 });
    events.emit('consumed', { ...owned, count: 1 });
    expect(await series(registry)).toEqual([
      'redis_streaming_mq_acked_total{shop="x"} 4',
      `redis_streaming_mq_consumed_total{${ofGroup}} 1`,
    ]);
    expect(warnings).toEqual([
      {
        message: 'the registry has an unlike metric of this name; rename it to see the one of the message queue',
        fields: { metric: name, mq: 'default' },
      },
    ]);
    expect(listenerErrors).toEqual([]);
  });

  it('uses a histogram that the application has registered with buckets of its own', async () => {
    const registry = new Registry();
    const { name, labels } = histogramDefinitions.endToEndLatency;
    new Histogram({ name, help: 'mine', labelNames: ['mq', ...labels], buckets: [50], registers: [registry] });
    const { events, warnings } = instance({ registry });
    events.emit('handled', { ...owned, outcome: 'success', durationMs: 1, endToEndMs: 60 });
    const lines = (await series(registry)).filter((line) => line.startsWith(`${name}_bucket`));
    expect(lines).toEqual([
      `${name}_bucket{group="billing",le="50",mq="default",topic="orders"} 0`,
      `${name}_bucket{group="billing",le="+Inf",mq="default",topic="orders"} 1`,
    ]);
    expect(warnings).toEqual([]);
  });

  it('shares a registry in OpenMetrics format, whose scrape renames the counters', async () => {
    const registry = new Registry<OpenMetricsContentType>();
    registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
    const a = instance({ registry, name: 'a' });
    a.events.emit('acked', { ...owned, count: 1 });
    await registry.metrics();
    const b = instance({ registry, name: 'b' });
    b.events.emit('acked', { ...owned, count: 2 });
    a.metrics.close();
    expect(await series(registry)).toEqual([
      'redis_streaming_mq_acked_total{group="billing",mq="b",partition="3",topic="orders"} 2',
    ]);
    expect(b.warnings).toEqual([]);
  });
});

describe('MqMetrics, cardinality (OBS-02)', () => {
  it('stays bounded with thousands of topics, keys and errors', async () => {
    const { events, registry } = instance({ maxTopics: 100 });
    for (let i = 0; i < 5_000; i += 1) {
      events.emit('produced', { topic: `t${i}`, partition: 0, count: 1 });
      events.emit('retried', { ...owned, id: `${i}-0`, attempt: 1, delayMs: 1, error: new Error(`text ${i}`) });
      events.emit('sendFailed', { topic: `t${i}`, code: `CODE_${i}` });
      events.emit('fault', { component: `k${'abcdefghij'[i % 10]}_${i}`, class: 'key', error: 0, retryInMs: 1 });
    }
    const lines = await series(registry);
    const count = (name: string) => lines.filter((line) => line.startsWith(name)).length;
    // 99 topics of their own and the rest in one series: the hundredth place is taken by `orders`.
    expect(count('redis_streaming_mq_produced_total')).toBe(100);
    expect(lines).toContain('redis_streaming_mq_produced_total{mq="default",partition="0",topic="(other)"} 4901');
    expect(count('redis_streaming_mq_retried_total')).toBe(1);
    expect(count('redis_streaming_mq_send_errors_total')).toBe(65);
    expect(count('redis_streaming_mq_faults_total')).toBe(10);
  });

  it('removes the series of a forgotten topic and counts it from zero when it comes back', async () => {
    const { events, registry, metrics } = instance({ maxTopics: 2 });
    const other = { topic: 'other', partition: 0, group: 'billing' };
    events.emit('acked', { ...owned, count: 1 });
    events.emit('acked', { ...owned, partition: 4, count: 1 });
    events.emit('produced', { ...partition, count: 1 });
    events.emit('handled', { ...owned, outcome: 'success', durationMs: 1, endToEndMs: 1 });
    events.emit('readerReplaced', { group: 'orders', reason: 'x' });
    events.emit('acked', { ...other, count: 2 });
    const restarts = 'redis_streaming_mq_reader_restarts_total{group="orders",mq="default"} 1';
    const kept = 'redis_streaming_mq_acked_total{group="billing",mq="default",partition="0",topic="other"} 2';

    metrics.forgetTopic('orders');
    metrics.forgetTopic('never-seen');
    expect(await series(registry)).toEqual([kept, restarts]);

    events.emit('acked', { ...owned, count: 1 });
    expect(await series(registry)).toEqual([kept, `redis_streaming_mq_acked_total{${ofGroup}} 1`, restarts]);
    metrics.close();
    expect(await series(registry, { gauges: true })).toEqual([]);
  });
});
