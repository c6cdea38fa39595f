import { ManualClock } from '../../../../test/support/manual-clock.js';
import { MqRedisError } from '../core/errors.js';
import { MqHealth, type ConsumptionState, type HealthProbe, type LoopState, type MqHealthDeps } from './health.js';

const good: HealthProbe = { reachable: true, writable: true, topics: 3 };
const loop: LoopState = { name: 'renew', alive: true, lastTickAgoMs: 100, maxQuietMs: 9_000 };
const consuming: ConsumptionState = { started: true, owned: 4, stuckHandlers: [], failingPartitions: [] };

function health(deps: Partial<MqHealthDeps> = {}) {
  const clock = new ManualClock();
  const probe = jest.fn(deps.probe ?? (() => Promise.resolve(good)));
  const all = { name: 'default', clock, loops: () => [loop], consumption: () => consuming, ...deps, probe };
  return { health: new MqHealth(all), clock, probe };
}

const upFields = {
  redis: { reachable: true, writable: true },
  topics: 3,
  loops: { total: 1, ticking: 1 },
  consuming: true,
  partitionsOwned: 4,
  stuckHandlers: [],
  failingPartitions: [],
};

function never<T>(): Promise<T> {
  return new Promise<T>(() => undefined);
}

describe('MqHealth.readiness', () => {
  it('is up with the number of topics when Redis takes writes and the loops tick', async () => {
    const { health: mq, clock } = health();
    expect(await mq.readiness()).toEqual({ redisStreamsMq: { status: 'up', ...upFields, reasons: [] } });
    expect(clock.pending).toBe(0);
  });

  it('has the name of a further instance in its key', async () => {
    const { health: mq } = health({ name: 'audit' });
    expect(Object.keys(await mq.readiness())).toEqual(['redisStreamsMq:audit']);
    expect(Object.keys(await mq.liveness())).toEqual(['redisStreamsMq:audit']);
  });

  it('is up for an instance that only produces', async () => {
    const consumption = () => ({ started: false, owned: 0, stuckHandlers: [], failingPartitions: [] });
    const { health: mq } = health({ loops: () => [], consumption });
    expect(await mq.readiness()).toEqual({
      redisStreamsMq: {
        ...upFields,
        status: 'up',
        reasons: [],
        loops: { total: 0, ticking: 0 },
        consuming: false,
        partitionsOwned: 0,
      },
    });
  });

  describe('with limits of the lag', () => {
    const lags = [
      { partition: 'orders:p:0:billing', messages: 20, ageMs: 900 },
      { partition: 'orders:p:1:billing', messages: 21, ageMs: 1_000.4 },
    ];
    const reasonsOf = async (deps: Partial<MqHealthDeps>) =>
      (await health(deps).health.readiness())['redisStreamsMq']!['reasons'];

    it('names the partitions that are beyond one, and shows how much there is', async () => {
      const lag = () => Promise.resolve({ lags });
      const { health: mq } = health({ lag, maxLag: 20, maxLagAgeMs: 900 });
      expect(await mq.readiness()).toMatchObject({
        redisStreamsMq: {
          status: 'down',
          lag: { messages: 41, oldestMs: 1_000 },
          reasons: [
            'more than 20 messages are unsettled: orders:p:1:billing (21)',
            'messages are older than 900 ms: orders:p:1:billing (1000 ms)',
          ],
        },
      });
      expect(await reasonsOf({ lag, maxLag: 21 })).toEqual([]);
      expect(await reasonsOf({ lag, maxLagAgeMs: 1_001 })).toEqual([]);
    });

    it('does not ask without one', async () => {
      const lag = jest.fn(() => Promise.resolve({ lags }));
      expect(await reasonsOf({ lag })).toEqual([]);
      expect(await reasonsOf({ lag, maxLag: 0, maxLagAgeMs: 0 })).toEqual([]);
      expect(lag).not.toHaveBeenCalled();
    });

    it('says that the lag is not known, unless Redis is away, which says enough', async () => {
      const lag = () => Promise.resolve({ lags: [], failure: 'WRONGTYPE' });
      expect(await reasonsOf({ lag, maxLag: 1 })).toEqual(['the lag cannot be read (WRONGTYPE)']);
      const probe = () => Promise.resolve({ ...good, reachable: false, writable: false });
      expect(await reasonsOf({ lag, maxLag: 1, probe })).toEqual(['Redis cannot be reached']);
    });

    it('answers within its time when the lag does not come, and asks once for many callers', async () => {
      const lag = jest.fn(() => never<{ lags: [] }>());
      const { health: mq, clock } = health({ lag, maxLag: 1, timeoutMs: 500 });
      const answers = [mq.readiness(), mq.readiness(), mq.readiness()];
      await new Promise((resolve) => void setImmediate(resolve)); // Redis itself answers.
      clock.advance(500);
      for (const answer of await Promise.all(answers)) {
        expect(answer['redisStreamsMq']).toMatchObject({
          status: 'down',
          lag: null,
          reasons: ['the lag cannot be read (no answer within 500 ms)'],
        });
      }
      expect(lag).toHaveBeenCalledTimes(1);
    });
  });

  it('is up for an instance that owns no partition because others own them all', async () => {
    const { health: mq } = health({ consumption: () => ({ ...consuming, owned: 0, unowned: [] }) });
    expect((await mq.readiness())['redisStreamsMq']).toMatchObject({ status: 'up', partitionsOwned: 0 });
  });

  const failures: [what: string, deps: Partial<MqHealthDeps>, reasons: string[], fields: Record<string, unknown>][] = [
    [
      'Redis is away',
      { probe: () => Promise.resolve({ reachable: false, writable: false, reason: 'ECONNREFUSED', topics: 0 }) },
      ['Redis cannot be reached (ECONNREFUSED)'],
      { redis: { reachable: false, writable: false }, topics: null },
    ],
    [
      'the probe rejects, by its code and not by its message',
      { probe: () => Promise.reject(new MqRedisError('MQ_REDIS_AWAY', 'connect to secret.host failed')) },
      ['Redis cannot be reached (MQ_REDIS_AWAY)'],
      { redis: { reachable: false, writable: false }, topics: null },
    ],
    [
      'the probe throws at once',
      {
        probe: () => {
          throw new TypeError('secret.host');
        },
      },
      ['Redis cannot be reached (unexpected error)'],
      { redis: { reachable: false, writable: false }, topics: null },
    ],
    [
      'Redis refuses writes',
      { probe: () => Promise.resolve({ reachable: true, writable: false, reason: 'NOREPLICAS\nmore', topics: 2 }) },
      ['Redis refuses writes (NOREPLICAS)'],
      { redis: { reachable: true, writable: false }, topics: 2 },
    ],
    [
      'a loop has stopped',
      { loops: () => [loop, { ...loop, name: 'mover', alive: false }] },
      ['loops have stopped: mover'],
      { loops: { total: 2, ticking: 1 } },
    ],
    [
      'a loop hangs',
      { loops: () => [{ ...loop, lastTickAgoMs: 9_001 }] },
      ['loops have been quiet for too long: renew'],
      { loops: { total: 1, ticking: 0 } },
    ],
    [
      'a loop ticks but fails',
      { loops: () => [{ ...loop, failing: 'NOPERM' }] },
      ['loops are failing: renew (NOPERM)'],
      { loops: { total: 1, ticking: 1 } },
    ],
    [
      'partitions have no owner',
      { consumption: () => ({ ...consuming, unowned: ['orders:1', 'orders:2'] }) },
      ['partitions have no owner: orders:1, orders:2'],
      {},
    ],
    [
      'a handler is stuck',
      { consumption: () => ({ ...consuming, stuckHandlers: [{ partition: 'orders:1', forMs: 61_000 }] }) },
      ['handlers are stuck: orders:1'],
      { stuckHandlers: [{ partition: 'orders:1', forMs: 61_000 }] },
    ],
    [
      'a partition cannot be read',
      { consumption: () => ({ ...consuming, failingPartitions: [{ partition: 'orders:1', error: 'WRONGTYPE' }] }) },
      ['partitions cannot be read: orders:1'],
      { failingPartitions: [{ partition: 'orders:1', error: 'WRONGTYPE' }] },
    ],
  ];

  it.each(failures)('is down with the reason when %s (OBS-05)', async (_what, deps, reasons, fields) => {
    const { health: mq, clock } = health(deps);
    expect(await mq.readiness()).toEqual({ redisStreamsMq: { status: 'down', ...upFields, ...fields, reasons } });
    expect(clock.pending).toBe(0);
  });

  it('gives all reasons at once', async () => {
    const { health: mq } = health({
      probe: () => Promise.resolve({ reachable: true, writable: false, reason: 'READONLY', topics: 1 }),
      loops: () => [{ ...loop, failing: 'READONLY' }],
      consumption: () => ({ ...consuming, unowned: ['orders:0'] }),
    });
    expect((await mq.readiness())['redisStreamsMq']?.['reasons']).toEqual([
      'Redis refuses writes (READONLY)',
      'loops are failing: renew (READONLY)',
      'partitions have no owner: orders:0',
    ]);
  });

  it('keeps its body small with a thousand bad partitions', async () => {
    const partitions = Array.from({ length: 1_000 }, (_, i) => `orders:${i}`);
    const { health: mq } = health({
      consumption: () => ({
        ...consuming,
        unowned: partitions,
        stuckHandlers: partitions.map((partition) => ({ partition, forMs: 1 })),
        failingPartitions: partitions.map((partition) => ({ partition, error: 'x'.repeat(10_000) })),
      }),
    });
    const result = await mq.readiness();
    expect(result['redisStreamsMq']?.['reasons']).toContain(
      `partitions have no owner: ${partitions.slice(0, 10).join(', ')} and 990 more`,
    );
    expect(JSON.stringify(result).length).toBeLessThan(5_000);
  });

  it('answers down within its timeout when the probe never settles, and up again after recovery (OBS-04)', async () => {
    const { health: mq, clock, probe } = health({ probe: never });
    const first = mq.readiness();
    clock.advance(1_999);
    let hasAnswered = false;
    void first.then(() => (hasAnswered = true));
    await new Promise(setImmediate);
    expect(hasAnswered).toBe(false);
    clock.advance(1);
    expect(await first).toEqual({
      redisStreamsMq: {
        status: 'down',
        ...upFields,
        redis: { reachable: false, writable: false },
        topics: null,
        reasons: ['Redis cannot be reached (no answer within 2000 ms)'],
      },
    });
    expect(clock.pending).toBe(0);

    probe.mockImplementation(() => Promise.resolve(good));
    expect((await mq.readiness())['redisStreamsMq']).toMatchObject({ status: 'up' });
    expect(probe).toHaveBeenCalledTimes(2);
  });

  it('waits as long as it is told', async () => {
    const { health: mq, clock } = health({ probe: never, timeoutMs: 50 });
    const result = mq.readiness();
    clock.advance(50);
    expect((await result)['redisStreamsMq']?.['reasons']).toEqual(['Redis cannot be reached (no answer within 50 ms)']);
  });

  it('shares one probe and one timer among concurrent calls, and asks anew afterwards', async () => {
    const answers: ((probe: HealthProbe) => void)[] = [];
    const { health: mq, clock, probe } = health({ probe: () => new Promise((resolve) => void answers.push(resolve)) });
    const calls = Array.from({ length: 20 }, () => mq.readiness());
    await new Promise(setImmediate);
    expect(probe).toHaveBeenCalledTimes(1);
    expect(clock.pending).toBe(1);
    answers[0]?.(good);
    const statuses = (await Promise.all(calls)).map((result) => result['redisStreamsMq']?.status);
    expect(new Set(statuses)).toEqual(new Set(['up']));
    expect(clock.pending).toBe(0);

    const next = mq.readiness();
    expect(probe).toHaveBeenCalledTimes(2);
    answers[1]?.({ ...good, topics: 4 });
    expect((await next)['redisStreamsMq']).toMatchObject({ topics: 4 });
  });

  it('drops what a probe says after its time, a rejection too', async () => {
    const late: ((error: Error) => void)[] = [];
    const { health: mq, clock, probe } = health({ probe: () => new Promise((_, reject) => void late.push(reject)) });
    const first = mq.readiness();
    clock.advance(2_000);
    await first;
    probe.mockImplementation(() => never());
    const second = mq.readiness();
    late[0]?.(new Error('too late'));
    await new Promise(setImmediate);
    expect(clock.pending).toBe(1);
    clock.advance(2_000);
    expect((await second)['redisStreamsMq']?.['reasons']).toEqual([
      'Redis cannot be reached (no answer within 2000 ms)',
    ]);
  });

  it.each([
    ['loops', { loops: () => fail() }],
    ['consumption', { consumption: () => fail() }],
    ['probe answer', { probe: () => Promise.resolve(undefined as unknown as HealthProbe) }],
  ] satisfies [string, Partial<MqHealthDeps>][])(
    'is down and does not throw when its %s cannot be read',
    async (_, deps) => {
      const { health: mq } = health(deps);
      expect(await mq.readiness()).toEqual({
        redisStreamsMq: { status: 'down', reasons: ['the state cannot be read (unexpected error)'] },
      });
    },
  );
});

function fail(): never {
  throw new Error('broken');
}

describe('MqHealth.liveness', () => {
  it('is up while the loops tick, and does not ask Redis', async () => {
    const { health: mq, probe, clock } = health({ probe: never });
    expect(await mq.liveness()).toEqual({
      redisStreamsMq: { status: 'up', loops: { total: 1, ticking: 1 }, reasons: [] },
    });
    expect(probe).not.toHaveBeenCalled();
    expect(clock.pending).toBe(0);
  });

  it('stays up where a restart would not help: Redis away, loops failing, handlers stuck, no owner', async () => {
    const { health: mq } = health({
      probe: () => Promise.reject(new Error('away')),
      loops: () => [{ ...loop, failing: 'ECONNREFUSED' }],
      consumption: () => ({
        ...consuming,
        unowned: ['orders:0'],
        stuckHandlers: [{ partition: 'orders:1', forMs: 1 }],
        failingPartitions: [{ partition: 'orders:2', error: 'WRONGTYPE' }],
      }),
    });
    expect((await mq.readiness())['redisStreamsMq']?.status).toBe('down');
    expect((await mq.liveness())['redisStreamsMq']?.status).toBe('up');
  });

  it.each([
    ['has stopped', { alive: false }, ['loops have stopped: renew']],
    ['is quiet for too long', { lastTickAgoMs: 60_000 }, ['loops have been quiet for too long: renew']],
    ['has stopped, said once', { alive: false, lastTickAgoMs: 60_000 }, ['loops have stopped: renew']],
  ] satisfies [string, Partial<LoopState>, string[]][])('is down when a loop %s', async (_, state, reasons) => {
    const { health: mq } = health({ loops: () => [{ ...loop, ...state }] });
    expect(await mq.liveness()).toEqual({
      redisStreamsMq: { status: 'down', loops: { total: 1, ticking: 0 }, reasons },
    });
  });

  it('is down and does not throw when the loops cannot be read', async () => {
    const { health: mq } = health({ loops: () => fail() });
    expect(await mq.liveness()).toEqual({
      redisStreamsMq: { status: 'down', reasons: ['the state cannot be read (unexpected error)'] },
    });
  });
});
