import fc from 'fast-check';
import { Histogram, Registry } from 'prom-client';
import { BucketHistogram } from './bucket-histogram.js';

const config = { name: 'handle_ms', help: 'How "long"\nit took', labelNames: ['mq', 'topic'], buckets: [1, 2.5, 10] };
const of = (topic: string) => ({ mq: 'default', topic });

function pair() {
  const theirs = new Registry();
  const ours = new Registry();
  const model = new Histogram({ ...config, registers: [theirs] });
  const histogram = new BucketHistogram(config);
  ours.registerMetric(histogram as unknown as Histogram);
  return { theirs, ours, model, histogram };
}

it('exports what the histogram of prom-client exports', async () => {
  const values = fc.oneof(fc.constantFrom(0, 1, 2.5, 10, 10.1), fc.double({ min: 0, max: 20, noNaN: true }));
  const observations = fc.array(fc.record({ topic: fc.constantFrom('orders', 'a\\"b\n', ''), value: values }));
  await fc.assert(
    fc.asyncProperty(observations, async (all) => {
      const { theirs, ours, model, histogram } = pair();
      for (const { topic, value } of all) {
        model.labels(of(topic)).observe(value);
        histogram.labels(of(topic)).observe(value);
      }
      theirs.setDefaultLabels({ app: 'shop' });
      ours.setDefaultLabels({ app: 'shop' });
      const sorted = (text: string) => text.split('\n').map((line) => line.split(/[{,}]/).sort().join());
      expect(sorted(await ours.metrics())).toEqual(sorted(await theirs.metrics()));
      const json = async (registry: Registry) =>
        JSON.parse(
          JSON.stringify(await registry.getMetricsAsJSON(), (key, value: unknown) =>
            key === 'exemplar' ? undefined : value,
          ),
        ) as unknown;
      expect(await json(ours)).toEqual(await json(theirs));
    }),
  );
});

it('shows no series that was removed, and no other is touched', async () => {
  const { ours, histogram } = pair();
  histogram.labels(of('orders')).observe(1);
  histogram.labels(of('users')).observe(1);
  histogram.remove(of('orders'));
  const text = await ours.metrics();
  expect(text).toContain('handle_ms_count{mq="default",topic="users"} 1');
  expect(text).not.toContain('orders');
});

it('counts on after a reset in the series that are held', async () => {
  const { ours, histogram } = pair();
  const series = histogram.labels(of('orders'));
  series.observe(7);
  ours.resetMetrics();
  expect(await ours.metrics()).not.toContain('orders');
  series.observe(2);
  expect(await ours.metrics()).toContain('handle_ms_sum{mq="default",topic="orders"} 2');
});

it.each([NaN, Infinity, -Infinity])('refuses %p, which would spoil the sum for ever', (value) => {
  const { histogram } = pair();
  const series = histogram.labels(of('orders'));
  expect(() => series.observe(value)).toThrow(TypeError);
  expect(series).toMatchObject({ sum: 0, count: 0 });
});
