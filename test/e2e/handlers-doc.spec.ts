import type { Provider } from '@nestjs/common';
import { DeadLetterQueue, MqProducer, RedisStreamsMqModule, type SendOptions } from 'nestjs-redis-streams-mq';
import { blocksOf, diagnosticsOf, runSample } from '../support/doc-samples.js';
import { queueOptions, TestApps } from '../support/nest-app.js';
import { startRedis, uniqueName, type TestRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

interface Run {
  readonly about: string;
  readonly send: readonly (readonly [payload: unknown, options?: SendOptions, topic?: string])[];
  /** What the handlers print, in any order. */
  readonly prints: readonly string[];
  readonly deadLetters?: readonly string[];
}

const at = '2026-01-02T03:04:05Z';
/** One for each sample, in the order of the page. */
const runs: readonly Run[] = [
  {
    about: 'a global guard',
    send: [[{ id: 1 }], [{ id: 2 }, { headers: { 'x-tenant': 'blocked' } }]],
    prints: ['order 1'],
    deadLetters: ['rejected: a guard of Billing.onOrder denied the message'],
  },
  {
    about: 'parameters',
    send: [
      [{ id: 1 }, { key: 'ann', headers: { 'x-request-id': 'r1' } }],
      [{ id: 2 }, { key: 'bob' }, 'refunds'],
    ],
    prints: ['1 orders true 1 true {"id":1}', '1 ann r1 true', '2 bob undefined true'],
  },
  {
    about: 'class-validator',
    send: [[{ id: 1, customer: 'ann' }], [{ id: 'x', customer: 'ann' }]],
    prints: ['true 1'],
    deadLetters: ['validation: the payload is not valid: id must be an integer number'],
  },
  {
    about: 'a Standard Schema',
    send: [[{ id: 1, at }], [{ id: 'x', at }]],
    prints: ['1 2026'],
    deadLetters: ['validation: the payload is not valid: id: Invalid input: expected number, received string'],
  },
  { about: 'typed topics', send: [[{ id: 7 }]], prints: ['7 undefined', '8 2'] },
  {
    about: 'a request-scoped dependency',
    send: [[{ id: 1 }, { headers: { 'x-tenant': 'acme' } }], [{ id: 2 }]],
    prints: ['1 acme', '2 none'],
  },
  {
    about: 'control',
    send: [[{ id: 1 }], [{ id: 2 }], [{ id: 3 }]],
    prints: ['order 1, attempt 1', 'order 1, attempt 2', 'order 2, attempt 1', 'order 3, attempt 1'],
    deadLetters: ['rejected: hopeless', 'rejected: no such customer'],
  },
  {
    about: 'batches',
    send: [
      [{ id: 1 }, { partition: 0 }],
      [{ id: 2 }, { partition: 0 }],
      [{ id: 'x' }, { partition: 0 }],
    ],
    prints: ['order 1, attempt 1', 'order 2, attempt 1'],
    deadLetters: ['rejected: no such customer', 'validation: the payload is not valid: id must be an integer number'],
  },
  { about: 'handlers at run time', send: [[{ id: 1 }]], prints: ['paused', 'order 1'] },
];

const samples = blocksOf('docs/handlers.md', 'ts');
const apps = new TestApps();
let redis: TestRedis;
let printed: string[];
beforeAll(async () => {
  redis = await startRedis();
});
beforeEach(() => {
  printed = [];
  jest.spyOn(console, 'log').mockImplementation((...args) => void printed.push(args.map(String).join(' ')));
});
afterEach(async () => {
  jest.restoreAllMocks();
  await apps.closeAll();
});
afterAll(() => redis.stop());

describe('the samples of docs/handlers.md', () => {
  it('compile', () => {
    expect(samples).toHaveLength(runs.length);
    expect(diagnosticsOf(samples)).toEqual([]);
  }, 240_000);

  it.each(runs.map((run, index) => [run.about, run, samples[index] ?? ''] as const))(
    'work as they say: %s',
    async (_about, { send, prints, deadLetters = [] }, sample) => {
      const { providers } = runSample(sample, require) as { providers: Provider[] };
      const own = { ...redis, url: redis.url, keyPrefix: uniqueName(redis.keyPrefix) };
      const app = await apps.context({ imports: [RedisStreamsMqModule.forRoot(queueOptions(own))], providers });
      for (const [payload, options, topic = 'orders'] of send) await app.get(MqProducer).send(topic, payload, options);
      await waitFor(() => printed.length >= prints.length);
      const letters = await waitFor(async () => {
        const { items } = await app.get(DeadLetterQueue).list('orders');
        return items.length === deadLetters.length && items;
      });
      expect(letters.map(({ reason, error }) => `${reason}: ${error?.message}`).toSorted()).toEqual(deadLetters);
      expect(printed.toSorted()).toEqual([...prints].toSorted());
    },
  );
});
