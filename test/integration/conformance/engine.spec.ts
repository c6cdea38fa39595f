import type { EngineUnderTest } from '../../support/conformance/engine-under-test.js';
import { inMemory } from '../../support/conformance/in-memory.js';
import { onRedis } from '../../support/conformance/on-redis.js';
import { startRedis, type TestRedis } from '../../support/redis-server.js';
import type { ConformanceCase } from './conformance-case.js';
import { deliveryCases } from './delivery-cases.js';
import { failureCases } from './failure-cases.js';
import { orderCases } from './order-cases.js';

let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis?.stop());

const engines: readonly (readonly [string, () => Promise<EngineUnderTest>])[] = [
  ['on Redis', () => onRedis(redis)],
  ['in memory', inMemory],
];
const cases = [...deliveryCases, ...failureCases, ...orderCases].map((each) => [each.name, each] as const);

describe.each(engines)('the engine %s', (_engine, open) => {
  let engine: EngineUnderTest;
  beforeEach(async () => {
    engine = await open();
  });
  afterEach(() => engine?.close());

  const expectOf = ({ run }: ConformanceCase): Promise<void> => run({ engine });

  it.each(cases)('%s', (_name, each) => expectOf(each), 60_000);
});
