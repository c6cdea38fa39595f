import { Registry } from 'prom-client';
import type { TestInstance } from '../support/engine.js';
import { useMq } from '../support/mq-fixture.js';
import { samplesOf, valueOf } from '../support/scrape.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const topic = uniqueName('topic');
const group = uniqueName('group');
const RESTARTS = 200;
const KEYS_EACH = 50;

/** One life of a module: it sends with keys that nobody has used before. */
async function open(registry: Registry, life: number, onHandled = (): void => undefined): Promise<TestInstance> {
  const instance = await mq.open({ defaultPartitionCount: 2, metricsIntervalSec: 0.1 }, { registry });
  await instance.start({ topic, group, handle: onHandled });
  const messages = Array.from({ length: KEYS_EACH }, (_, i) => ({ payload: i, key: `key-${life}-${i}` }));
  expect((await instance.producer.sendBatch(topic, messages)).failed).toBe(0);
  return instance;
}

/** The names of all series, when everything has been said that one life says. */
async function seriesOf(registry: Registry, life: number): Promise<string[]> {
  let handled = 0;
  const instance = await open(registry, life, () => void handled++);
  await waitFor(() => handled >= KEYS_EACH);
  await waitFor(async () => (await valueOf(registry, 'redis_streaming_mq_lag', { topic, group })) === 0);
  // Whether this life waited for the lease of the last is chance.
  const samples = samplesOf(await registry.metrics()).filter(({ name }) => !name.includes('hand_over_pause'));
  await instance.close();
  return samples.map(({ name, labels }) => `${name} ${JSON.stringify(labels)}`).toSorted();
}

describe('OBS-02 the number of series', () => {
  it(`is the same after ${RESTARTS} restarts in one process and ${RESTARTS * KEYS_EACH} keys`, async () => {
    const registry = new Registry();
    await (await open(registry, 0)).close();
    const first = await seriesOf(registry, 1);
    for (let life = 2; life < RESTARTS; life++) await (await open(registry, life)).close();
    expect(await seriesOf(registry, RESTARTS)).toEqual(first);
    expect(samplesOf(await registry.metrics())).toEqual([]);
  }, 240_000);
});
