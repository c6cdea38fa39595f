import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import * as fc from 'fast-check';
import { MqInvalidOptionsError } from './errors.js';
import { kebabName } from './kebab-options.js';
import type { OptionKind } from './option-rules.js';
import { MAX_TIMER_MS, type MqOptions, type ResolvedMqOptions } from './options.js';
import { mqOptionRules, resolveOptions } from './resolve-options.js';
import { jsonSerializer } from './serializer.js';

type Garbage = Record<string, unknown>;
const resolve = (options: unknown): ResolvedMqOptions => resolveOptions(options as MqOptions);

function problemsOf(options: unknown): readonly string[] {
  try {
    resolve(options);
  } catch (error) {
    if (!(error instanceof MqInvalidOptionsError) || error.problems.length === 0) throw error;
    return error.problems;
  }
  return [];
}

/** Values that are valid in any combination, the defaults of the others included. */
const ms = (min: number, max: number = MAX_TIMER_MS) => fc.integer({ min, max });
const sec = (min: number, max: number = MAX_TIMER_MS) => ms(min, max).map((value) => value / 1000);
const validOptions: fc.Arbitrary<Partial<MqOptions>> = (() => {
  const batch = fc.integer({ min: 1, max: 10_000 });
  const keep = fc.nat(Number.MAX_SAFE_INTEGER);
  const name = fc.stringMatching(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,40}$/);
  return fc.record(
    {
      redis: fc.constantFrom<unknown>('redis://localhost', { host: 'h' }),
      enabled: fc.boolean(),
      autoStart: fc.boolean(),
      keyPrefix: fc.constantFrom('app', 'app:mq', ' '),
      streamKeyPrefix: fc.constantFrom('app:data', 's', 'app:retries'),
      consumerNamePrefix: fc.constantFrom('', 'c-', 'pod.'),
      defaultConsumerGroup: name,
      defaultDlqGroup: name,
      dlqConsumerSuffix: name,
      defaultPartitionCount: fc.integer({ min: 1, max: 4096 }),
      workerThreads: fc.integer({ min: 1, max: 65_536 }),
      consumerBatchCount: batch,
      consumerPollTimeoutMs: ms(1, 7499),
      leaseTtlSeconds: sec(15_000),
      rebalanceIntervalSec: sec(10),
      renewIntervalSec: sec(10, 7499),
      pendingScanIntervalSec: sec(10),
      claimIdleMs: keep,
      claimBatchSize: batch,
      retryMaxAttempts: fc.integer({ min: 1, max: 1_000_000 }),
      retryBaseBackoffMs: ms(0, 60_000),
      retryMaxBackoffMs: ms(60_000),
      retryMoverBatch: batch,
      retryMoverIntervalSec: sec(10),
      maxInFlight: fc.nat(10_000_000).filter((n) => n !== 1),
      maxLeasedPartitionsPerConsumer: fc.nat(1_000_000),
      retentionMaxLenPerPartition: keep,
      retentionHardMaxLenPerPartition: keep,
      retentionMs: keep,
      retentionAbandonedGroupMs: keep,
      trimIntervalSec: sec(10),
      dlqRetentionMaxLen: keep,
      dlqRetentionMs: keep,
      ackDeletePolicy: fc.constant('none' as const),
      startFrom: fc.constantFrom('earliest' as const, 'latest' as const),
      autoCreateTopics: fc.boolean(),
      sendTimeoutMs: ms(1),
      sendBufferLimit: fc.integer({ min: 1, max: 10_000_000 }),
      maxPayloadBytes: fc.integer({ min: 1, max: 536_870_912 }),
      handlerTimeoutMs: ms(0),
      drainTimeoutMs: ms(1),
      ackFlushMs: fc.nat(10_000),
      maxBlockingConnections: batch,
      waitReplicas: fc.nat(100),
      waitReplicasTimeoutMs: ms(1, 4999),
      failFast: fc.boolean(),
      bootTimeoutMs: ms(1),
      redisTimeoutMs: ms(5000),
      healthMaxLag: keep,
      healthMaxLagAgeMs: keep,
      metricsEnabled: fc.boolean(),
      metricsIntervalSec: sec(100),
      serializer: fc.constant({ serialize: () => Buffer.alloc(0), deserialize: () => null }),
      partitioner: fc.constant(() => 0),
    } satisfies { [K in keyof MqOptions]-?: fc.Arbitrary<unknown> },
    { requiredKeys: [] },
  );
})();

const optionNames = ['redis', ...Object.keys(mqOptionRules)];

function ofKind(kind: OptionKind): string[] {
  return Object.entries(mqOptionRules).flatMap(([name, rule]) => (rule.kind === kind ? [name] : []));
}

describe('resolveOptions', () => {
  it('sets every field, from nothing', () => {
    expect(resolve({})).toEqual({
      redis: undefined,
      enabled: true,
      autoStart: true,
      keyPrefix: 'streaming:mq',
      streamKeyPrefix: 'stream:topic',
      consumerNamePrefix: 'consumer-',
      defaultConsumerGroup: undefined,
      defaultDlqGroup: 'dlq-group',
      dlqConsumerSuffix: '-dlq',
      defaultPartitionCount: 4,
      workerThreads: 16,
      consumerBatchCount: 32,
      consumerPollTimeoutMs: 500,
      leaseTtlSeconds: 15,
      rebalanceIntervalSec: 5,
      renewIntervalSec: 3,
      pendingScanIntervalSec: 30,
      claimIdleMs: 300_000,
      claimBatchSize: 100,
      retryMaxAttempts: 5,
      retryBaseBackoffMs: 1000,
      retryMaxBackoffMs: 60_000,
      retryMoverBatch: 100,
      retryMoverIntervalSec: 1,
      maxInFlight: 0,
      maxLeasedPartitionsPerConsumer: 0,
      retentionMaxLenPerPartition: 100_000,
      retentionHardMaxLenPerPartition: 0,
      retentionMs: 0,
      retentionAbandonedGroupMs: 0,
      trimIntervalSec: 60,
      dlqRetentionMaxLen: 0,
      dlqRetentionMs: 0,
      ackDeletePolicy: 'none',
      startFrom: 'earliest',
      autoCreateTopics: true,
      sendTimeoutMs: 10_000,
      sendBufferLimit: 100_000,
      maxPayloadBytes: 1_048_576,
      handlerTimeoutMs: 300_000,
      drainTimeoutMs: 20_000,
      ackFlushMs: 5,
      maxBlockingConnections: 64,
      waitReplicas: 0,
      waitReplicasTimeoutMs: 1000,
      failFast: false,
      bootTimeoutMs: 10_000,
      redisTimeoutMs: 5000,
      healthMaxLag: 0,
      healthMaxLagAgeMs: 0,
      metricsEnabled: true,
      metricsIntervalSec: 15,
      serializer: jsonSerializer,
      partitioner: undefined,
      leaseTtlMs: 15_000,
      rebalanceIntervalMs: 5000,
      renewIntervalMs: 3000,
      pendingScanIntervalMs: 30_000,
      retryMoverIntervalMs: 1000,
      trimIntervalMs: 60_000,
      metricsIntervalMs: 15_000,
    });
  });

  it('has every default as it is documented', () => {
    const source = readFileSync(join(__dirname, 'options.ts'), 'utf8');
    const documented = new Map(
      [...source.matchAll(/@defaultValue (.+)\n\s+\*\/\n\s+readonly (\w+)\?:/g)].map(([, value, name]) => [
        name,
        value,
      ]),
    );
    for (const [name, rule] of Object.entries(mqOptionRules)) {
      const value: unknown = rule.defaultValue;
      const text = value === jsonSerializer ? 'jsonSerializer' : inspect(value);
      expect([name, documented.get(name)]).toEqual([name, text]);
    }
    expect(new Set(documented.keys())).toEqual(new Set(optionNames));
  });

  it('resolves any subset of valid options to a frozen object that holds them', () => {
    fc.assert(
      fc.property(validOptions, (options) => {
        const resolved = resolve(options);
        expect(resolved).toMatchObject(options);
        expect(Object.isFrozen(resolved)).toBe(true);
        expect(new Set(Object.keys(resolved))).toEqual(new Set(Object.keys(resolve({}))));
        expect(resolved.leaseTtlMs / 1000).toBe(resolved.leaseTtlSeconds);
        expect(Number.isInteger(resolved.trimIntervalMs)).toBe(true);
        expect(Number.isInteger(resolved.metricsIntervalMs)).toBe(true);
      }),
    );
  });

  it('takes a YAML block, all its values being text, as it takes the same options in camelCase', () => {
    fc.assert(
      fc.property(validOptions, fc.boolean(), (options, asText) => {
        const block: Garbage = {};
        for (const [name, value] of Object.entries(options)) {
          const scalar = typeof value === 'number' || typeof value === 'boolean';
          block[kebabName(name)] = scalar && asText ? ` ${value} ` : value;
        }
        expect(resolve(block)).toEqual(resolve(options));
      }),
    );
  });

  it('throws nothing but MqInvalidOptionsError, and returns only what keeps its rules, whatever it gets', () => {
    const value = fc.oneof(
      fc.anything({ withBigInt: true, withDate: true, withMap: true, withNullPrototype: true, withSet: true }),
      fc.constantFrom<unknown>('none', 'latest', '${X}', '5', 'true', true, false, 1, 2, 100, 1000, Symbol('s')),
      fc.constant(() => 0),
    );
    const key = fc.oneof(
      { weight: 6, arbitrary: fc.constantFrom(...optionNames) },
      { weight: 3, arbitrary: fc.constantFrom(...optionNames.map(kebabName)) },
      { weight: 1, arbitrary: fc.oneof(fc.string(), fc.constantFrom('__proto__', 'constructor', 'toString')) },
    );
    const entries = fc.array(fc.tuple(key, value), { maxLength: 6 });
    const input = fc.oneof(
      fc.anything(),
      entries.map((pairs) => Object.fromEntries(pairs)),
      entries.map((pairs) => Object.assign(Object.create(null), Object.fromEntries(pairs))),
    );
    let resolvedCount = 0;
    fc.assert(
      fc.property(input, (options) => {
        if (problemsOf(options).length > 0) return;
        resolvedCount++;
        const resolved = resolve(options);
        expect(Object.isFrozen(resolved)).toBe(true);
        const broken = Object.entries(mqOptionRules).filter(([name, rule]) => {
          const field = resolved[name as keyof ResolvedMqOptions];
          return field !== rule.defaultValue && !rule.accepts(field);
        });
        expect(broken).toEqual([]);
      }),
      { numRuns: 500 },
    );
    expect(resolvedCount).toBeGreaterThan(0);
  });

  it('lists every problem in one error', () => {
    const problems = problemsOf({
      leaseTtlSeconds: '30s',
      workerThreads: 0,
      ackDeletePolicy: 'immediate',
      keyPrefix: 'a{b}',
      redis: undefined,
      retryBaseBackoffMs: 70_000,
      wokerThreads: 4,
    });
    expect(problems).toEqual([
      'unknown option "wokerThreads"; the nearest known one is workerThreads',
      'redis is present but undefined; remove the key for localhost: there is no silent localhost for a forgotten value',
      'keyPrefix must be a text that is not empty and has no { or }; got "a{b}"',
      'workerThreads must be an integer from 1 to 65536; got 0',
      'leaseTtlSeconds must be a number of seconds from 1 to 2147483.647 with at most three decimals; got "30s"',
      'ackDeletePolicy must be "none", because other policies take messages from groups that have not read them; got "immediate"',
      'retryMaxBackoffMs (60000) must not be less than retryBaseBackoffMs (70000)',
    ]);
    expect(() => resolve({ workerThreads: 0, failFast: 1 })).toThrow(
      expect.objectContaining({
        code: 'MQ_INVALID_OPTIONS',
        message: expect.stringMatching(/workerThreads[^]*failFast/),
      }),
    );
  });

  it.each([0, -1, 0.5, 2.9997, NaN, '30s', '30', Infinity, -Infinity, 2 ** 31 / 1000, 2 ** 31, null, 15n, {}])(
    'DEL-06 refuses a lease of %p seconds',
    (leaseTtlSeconds) => {
      const problems = problemsOf({ leaseTtlSeconds, renewIntervalSec: 0.2, consumerPollTimeoutMs: 100 });
      expect(problems).toHaveLength(1);
      expect(problems[0]).toContain('leaseTtlSeconds');
    },
  );

  it.each([
    [1, 1000],
    [2.5, 2500],
    [2.999, 2999],
    [1.001, 1001],
    [2_147_483.647, MAX_TIMER_MS],
  ])('DEL-06 takes a lease of %p seconds as %p ms', (leaseTtlSeconds, leaseTtlMs) => {
    expect(resolve({ leaseTtlSeconds, renewIntervalSec: 0.2, consumerPollTimeoutMs: 100 }).leaseTtlMs).toBe(leaseTtlMs);
  });

  it.each([3, 3.001, 15, 0, -1, 0.0005, NaN, Infinity, '1s', null])(
    'DEL-06 refuses to renew a lease of 6 seconds every %p seconds',
    (renewIntervalSec) => {
      const problems = problemsOf({ leaseTtlSeconds: 6, renewIntervalSec });
      expect(problems).toEqual([expect.stringMatching(/^renewIntervalSec /)]);
    },
  );

  it('never takes text for a number or a number for a boolean in camelCase', () => {
    for (const name of ofKind('number')) expect(problemsOf({ [name]: '5000' })).toHaveLength(1);
    for (const name of ofKind('boolean')) expect(problemsOf({ [name]: 1 })).toHaveLength(1);
    for (const name of ofKind('boolean').filter((n) => n !== 'enabled')) {
      expect(problemsOf({ [name]: 'true' })).toHaveLength(1);
    }
  });

  it('refuses what is just outside of a range, and fractions of a count', () => {
    for (const [name, rule] of Object.entries(mqOptionRules)) {
      const range = /^an integer from (\d+) to (\d+)$/.exec(rule.expected);
      if (range === null) continue;
      expect(rule.accepts(Number(range[1]))).toBe(true);
      expect(rule.accepts(Number(range[2]))).toBe(true);
      for (const value of [Number(range[1]) - 1, Number(range[2]) + 1, Number(range[1]) + 0.5, NaN, Infinity]) {
        expect(problemsOf({ [name]: value })).toEqual([`${name} must be ${rule.expected}; got ${value}`]);
      }
    }
  });

  it('resolves lease, renewal and poll exactly when both are below half of the lease', () => {
    const near = fc.integer({ min: 1000, max: 4000 });
    fc.assert(
      fc.property(near, near, near, (leaseTtlMs, renewMs, consumerPollTimeoutMs) => {
        const problems = problemsOf({
          leaseTtlSeconds: leaseTtlMs / 1000,
          renewIntervalSec: renewMs / 1000,
          consumerPollTimeoutMs,
        });
        expect(problems.some((p) => p.startsWith('renewIntervalSec'))).toBe(renewMs >= leaseTtlMs / 2);
        expect(problems.some((p) => p.startsWith('consumerPollTimeoutMs'))).toBe(
          consumerPollTimeoutMs >= leaseTtlMs / 2,
        );
      }),
    );
  });

  it('judges an option against the default of the other, and not against one that is wrong itself', () => {
    expect(problemsOf({ leaseTtlSeconds: 6 })).toEqual([expect.stringContaining('renewIntervalSec (3) must be less')]);
    for (const leaseTtlSeconds of ['x', null, '${LEASE}']) {
      expect(problemsOf({ leaseTtlSeconds, renewIntervalSec: 100 })).toHaveLength(1);
    }
    expect(problemsOf({ waitReplicasTimeoutMs: 6000 })).toEqual([]);
    expect(problemsOf({ waitReplicas: 1, waitReplicasTimeoutMs: 6000 })).toEqual([
      expect.stringContaining('redisTimeoutMs (5000)'),
    ]);
  });

  describe('redis', () => {
    it('is localhost only when the key is absent', () => {
      expect(resolve({}).redis).toBeUndefined();
      for (const redis of [undefined, null, '']) {
        expect(problemsOf({ redis })).toEqual([expect.stringMatching(/^redis is present but .*no silent localhost/)]);
      }
    });

    it('is handed on as it is, and not frozen', () => {
      const redis = { host: 'h' };
      expect(resolve({ redis }).redis).toBe(redis);
      expect(Object.isFrozen(redis)).toBe(false);
    });
  });

  describe('prefixes', () => {
    it.each(['', '{a}', 'a{', 'a}', 5, null])('may not be %p', (prefix) => {
      expect(problemsOf({ keyPrefix: prefix })).toHaveLength(1);
      expect(problemsOf({ streamKeyPrefix: prefix })).toHaveLength(1);
    });

    it('may not be equal, nor lead to a key that serves both', () => {
      expect(problemsOf({ keyPrefix: 'app', streamKeyPrefix: 'app' })).toHaveLength(1);
      for (const word of ['commit', 'delayed', 'lease', 'epoch', 'retry', 'held', 'crash', 'paused', 'dedup']) {
        expect(problemsOf({ keyPrefix: 'app', streamKeyPrefix: `app:${word}` })).toHaveLength(1);
      }
      expect(problemsOf({ keyPrefix: 'app', streamKeyPrefix: 'app:data' })).toEqual([]);
      expect(problemsOf({ keyPrefix: 'app:mq', streamKeyPrefix: 'app' })).toEqual([]);
    });
  });

  it.each(['', '.', '..', 'a b', 'a:b', 'ü', 'a'.repeat(250)])('refuses %p as the name of a group', (group) => {
    expect(problemsOf({ defaultConsumerGroup: group, defaultDlqGroup: group })).toHaveLength(2);
  });

  it('applies no group that the user has not set', () => {
    expect(resolve({ defaultConsumerGroup: undefined }).defaultConsumerGroup).toBeUndefined();
    expect(resolve({ 'default-consumer-group': 'default-group' }).defaultConsumerGroup).toBe('default-group');
  });

  it('asks for a serializer with both methods and a partitioner that can be called', () => {
    class Custom {
      serialize(): Buffer {
        return Buffer.alloc(0);
      }
      deserialize(): null {
        return null;
      }
    }
    const serializer = new Custom();
    expect(resolve({ serializer }).serializer).toBe(serializer);
    expect(problemsOf({ serializer: { serialize: () => Buffer.alloc(0) } })).toHaveLength(1);
    expect(problemsOf({ serializer: 'json', partitioner: {} })).toHaveLength(2);
  });

  it.each([
    [undefined, /undefined/],
    [null, /Null/],
    ['redis://localhost', /String/],
    [[], /Array/],
    [new Map([['workerThreads', 4]]), /Map/],
    [Promise.resolve({}), /Promise, which has to be awaited/],
    [() => ({}), /Function/],
  ])('does not take %p for options without any entry', (input, message) => {
    expect(problemsOf(input)).toEqual([expect.stringMatching(message)]);
  });

  it('reports objects that cannot be read', () => {
    const throwing = {
      get workerThreads(): number {
        throw new Error('no');
      },
    };
    const revoked = Proxy.revocable({}, {});
    revoked.revoke();
    expect(problemsOf(throwing)).toHaveLength(1);
    expect(problemsOf(revoked.proxy)).toHaveLength(1);
    expect(problemsOf({ serializer: revoked.proxy })).toHaveLength(1);
    expect(problemsOf({ workerThreads: revoked.proxy })).toHaveLength(1);
  });

  it('takes the fields of a class instance', () => {
    class Config {
      workerThreads = 3;
    }
    expect(resolve(new Config()).workerThreads).toBe(3);
  });

  it('shows no content of an object, and no long text whole', () => {
    const [problem] = problemsOf({ startFrom: { password: 'secret' } });
    expect(problem).toBe('startFrom must be "earliest" or "latest"; got an object');
    expect(problemsOf({ startFrom: 'x'.repeat(10_000) })[0]!.length).toBeLessThan(200);
  });

  it('does not let names from a parsed document reach a prototype', () => {
    const problems = problemsOf(
      JSON.parse('{"__proto__": {"workerThreads": 1}, "constructor": 1, "hasOwnProperty": 2}'),
    );
    expect(problems).toHaveLength(3);
    for (const name of ['"__proto__"', '"constructor"', '"hasOwnProperty"']) {
      expect(problems).toContainEqual(expect.stringContaining(`unknown option ${name}`));
    }
    expect(({} as Garbage)['workerThreads']).toBeUndefined();
  });
});
