import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { parseQuery } from '../../../../test/support/promql.js';
import {
  clusterGaugeDefinitions,
  counterDefinitions,
  gaugeDefinitions,
  histogramDefinitions,
  type MetricDefinition,
} from './metric-definitions.js';

const root = join(__dirname, '../../../..');
const read = (file: string): string => readFileSync(join(root, file), 'utf8');

type Kind = 'counter' | 'histogram' | 'gauge';
interface Metric {
  readonly kind: Kind;
  readonly definition: MetricDefinition;
}

const metrics: Metric[] = [
  ...of('counter', counterDefinitions),
  ...of('histogram', histogramDefinitions),
  ...of('gauge', gaugeDefinitions),
  ...of('gauge', clusterGaugeDefinitions),
];

function of(kind: Kind, definitions: Record<string, MetricDefinition>): Metric[] {
  return Object.values(definitions).map((definition) => ({ kind, definition }));
}

/** Every series that a scrape has, with its labels as Prometheus keeps them; metrics.spec holds that each is fed. */
const series = new Map<string, { readonly kind: Kind; readonly labels: ReadonlySet<string> }>(
  metrics.flatMap(({ kind, definition: { name, labels } }) => {
    const all = ['mq', 'instance', 'job', ...labels];
    const plain = { kind, labels: new Set(all) };
    if (kind !== 'histogram') return [[name, plain] as const];
    const bucket = { kind, labels: new Set([...all, 'le']) };
    return [[`${name}_bucket`, bucket] as const, [`${name}_sum`, plain] as const, [`${name}_count`, plain] as const];
  }),
);

/** What is wrong with a query, against the series that there are. */
function problemsOf(query: string): string[] {
  const use = parseQuery(query);
  const problems = use.series.length === 0 ? ['asks for no series of ours'] : [];
  const common: (ReadonlySet<string> | undefined)[] = [];
  for (const { name, labels, rangedBy } of use.series) {
    const known = series.get(name);
    common.push(known?.labels);
    if (known === undefined) problems.push(`${name} does not exist`);
    for (const label of labels) if (known && !known.labels.has(label)) problems.push(`${name} has no label ${label}`);
    const isRate = rangedBy === 'rate' || rangedBy === 'increase';
    if (known?.kind === 'gauge' && isRate) problems.push(`${name} is a gauge: ${rangedBy} is for counters`);
    if (known && known.kind !== 'gauge' && rangedBy !== undefined && !isRate)
      problems.push(`${name} is a counter: ${rangedBy} is for gauges`);
  }
  for (const label of use.labels) {
    if (!common.every((labels) => labels?.has(label))) problems.push(`not all have the label ${label}`);
  }
  return problems.map((problem) => `${query}: ${problem}`);
}

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook_url: string };
}

const rules = (parse(read('docs/alerts.yml')) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  (group) => group.rules,
);

interface Dashboard {
  readonly panels: readonly { readonly type: string; readonly targets?: readonly { readonly expr: string }[] }[];
  readonly templating: { readonly list: readonly { readonly query: { readonly query: string } }[] };
}

describe('the parser of queries', () => {
  it('finds series, labels and ranges, and refuses words that it does not know', () => {
    expect(
      parseQuery(
        'sum by (mq, le) (rate(redis_streaming_mq_a_total{x="1", y=~"$y"}[5m])) > 1.5 or redis_streaming_mq_b',
      ),
    ).toEqual({
      series: [
        { name: 'redis_streaming_mq_a_total', labels: ['x', 'y'], rangedBy: 'rate' },
        { name: 'redis_streaming_mq_b', labels: [] },
      ],
      labels: ['mq', 'le'],
    });
    expect(parseQuery('label_values(redis_streaming_mq_a{mq=~"$mq"}, topic)').labels).toEqual(['topic']);
    expect(() => parseQuery('sum(redis_steaming_mq_a)')).toThrow('unknown word redis_steaming_mq_a');
  });

  it('and the check behind it find what is wrong', () => {
    const wrong = [
      'redis_streaming_mq_lagg > 1',
      'redis_streaming_mq_lag{partition="1"}',
      'sum by (reason) (redis_streaming_mq_lag)',
      'rate(redis_streaming_mq_lag[5m])',
      'delta(redis_streaming_mq_acked_total[5m])',
      'histogram_quantile(0.9, sum by (le) (rate(redis_streaming_mq_handle_latency_ms_count[5m])))',
      '1 > 0',
    ];
    expect(wrong.map((query) => problemsOf(query).length)).toEqual(wrong.map(() => 1));
  });
});

describe('docs/metrics.md', () => {
  it('has a row for each metric, with its type, labels and meaning, and no other', () => {
    const rows = [
      ...read('docs/metrics.md').matchAll(/^\| `(redis_\w+)`\s+\| (\w+)\s+\| (.*?)\s+\| (.*?)\s+\|$/gm),
    ].map(([, name, kind, labels, help]) => ({
      name,
      kind,
      labels: labels === '-' ? '' : labels!.replaceAll('`', ''),
      help,
    }));
    const expected = metrics.map(({ kind, definition: { name, labels, help } }) => ({
      name,
      kind,
      labels: labels.join(', '),
      help,
    }));
    expect(rows).toEqual(expected);
  });
});

describe('docs/alerts.yml', () => {
  it('asks for series and labels that exist', () => {
    expect(rules.flatMap(({ expr }) => problemsOf(expr))).toEqual([]);
  });

  it('names each rule once, with a severity, a summary and its runbook in operating.md, which has no other', () => {
    const runbooks = [...read('docs/operating.md').matchAll(/^### (Mq\w+)$/gm)].map(([, name]) => name);
    expect(rules.map(({ alert }) => alert)).toEqual(runbooks);
    expect(new Set(runbooks).size).toBe(runbooks.length);
    for (const { alert, labels, annotations } of rules) {
      expect(['critical', 'warning', 'info']).toContain(labels.severity);
      expect(annotations.summary).not.toBe('');
      expect(annotations.runbook_url).toBe(`operating.md#${alert.toLowerCase()}`);
    }
  });

  it('shows in its summaries only labels that the result has', () => {
    const unknown = rules.flatMap(({ alert, expr, annotations }) => {
      const shown = [...annotations.summary.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label!);
      const { labels } = parseQuery(expr);
      return shown.filter((label) => !labels.includes(label)).map((label) => `${alert}: ${label}`);
    });
    expect(unknown).toEqual([]);
  });
});

describe('the dashboard', () => {
  const dashboard = JSON.parse(read('ops/grafana/dashboards/redis-streams-mq.json')) as Dashboard;

  it('asks for series and labels that exist', () => {
    const queries = [
      ...dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
      ...dashboard.templating.list.map(({ query }) => query.query),
    ];
    expect(queries.length).toBeGreaterThan(30);
    expect(queries.flatMap((query) => problemsOf(query.replaceAll('$__rate_interval', '5m')))).toEqual([]);
  });
});

describe('docker-compose.yml', () => {
  interface Service {
    readonly image: string;
    readonly profiles?: readonly string[];
    readonly volumes: readonly string[];
  }
  const { services } = parse(read('docker-compose.yml')) as { services: Record<string, Service> };

  it('starts Redis alone unless monitoring is asked for', () => {
    expect(services['redis']?.profiles).toBeUndefined();
    expect(services['prometheus']?.profiles).toEqual(['monitoring']);
    expect(services['grafana']?.profiles).toEqual(['monitoring']);
  });

  it('mounts files that exist, where their readers look for them', () => {
    const mounts = Object.values(services)
      .flatMap(({ volumes }) => volumes)
      .filter((volume) => volume.startsWith('./'));
    const targets = new Map(mounts.map((mount) => mount.split(':').slice(0, 2).reverse() as [string, string]));
    expect(mounts).toHaveLength(5);
    const prometheus = parse(read(targets.get('/etc/prometheus/prometheus.yml')!)) as {
      rule_files: string[];
      scrape_configs: { file_sd_configs: { files: string[] }[] }[];
    };
    const wanted = [
      ...prometheus.rule_files,
      ...prometheus.scrape_configs.flatMap((job) => job.file_sd_configs.flatMap(({ files }) => files)),
    ];
    for (const file of wanted) expect(read(targets.get(file)!)).not.toBe('');
    const provider = parse(read('ops/grafana/provisioning/dashboards/dashboards.yml')) as {
      providers: { options: { path: string } }[];
    };
    expect(targets.get(provider.providers[0]!.options.path)).toBe('./ops/grafana/dashboards');
    const source = parse(read('ops/grafana/provisioning/datasources/prometheus.yml')) as {
      datasources: { uid: string }[];
    };
    const used = [...read('ops/grafana/dashboards/redis-streams-mq.json').matchAll(/"uid": "(\w+)"/g)];
    expect([...new Set(used.map(([, uid]) => uid))]).toEqual([source.datasources[0]!.uid]);
  });
});
