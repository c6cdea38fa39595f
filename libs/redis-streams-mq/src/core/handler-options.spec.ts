import * as fc from 'fast-check';
import { resolveHandlerOptions, type StreamHandlerOptions } from './handler-options.js';
import { resolveOptions } from './resolve-options.js';

const moduleOptions = resolveOptions({ startFrom: 'latest', handlerTimeoutMs: 7000, consumerBatchCount: 9 });
const resolve = (options: unknown): ReturnType<typeof resolveHandlerOptions> =>
  resolveHandlerOptions(options as StreamHandlerOptions, moduleOptions, 'Orders.on');

describe('resolveHandlerOptions', () => {
  it('takes what is not given from the module', () => {
    for (const options of [undefined, {}, { batchCount: undefined }]) {
      expect(resolve(options)).toEqual({
        resolved: {
          batchCount: 9,
          pollTimeoutMs: 500,
          retryMaxAttempts: 5,
          retryBaseBackoffMs: 1000,
          retryMaxBackoffMs: 60_000,
          retryBackoff: undefined,
          retryIf: undefined,
          handlerTimeoutMs: 7000,
          ttlMs: 0,
          rateLimit: undefined,
          batch: undefined,
          startFrom: 'latest',
          share: { modulo: 1, remainder: 0 },
          concurrency: 1,
          ordering: 'key',
          retryOrdering: 'relaxed',
          maxHeldPerPartition: 1000,
        },
        problems: [],
      });
    }
  });

  it('prefers what is given, zero included, and freezes it', () => {
    const { resolved, problems } = resolve({
      batchCount: 1,
      pollTimeoutMs: 100,
      retryMaxAttempts: 1,
      retryBaseBackoffMs: 0,
      retryMaxBackoffMs: 0,
      handlerTimeoutMs: 0,
      startFrom: 'earliest',
      partitionModulo: 3,
      partitionRemainder: 0,
      concurrency: 8,
      ordering: 'none',
      maxHeldPerPartition: 1,
    });
    expect(problems).toEqual([]);
    expect(resolved).toEqual({
      batchCount: 1,
      pollTimeoutMs: 100,
      retryMaxAttempts: 1,
      retryBaseBackoffMs: 0,
      retryMaxBackoffMs: 0,
      retryBackoff: undefined,
      retryIf: undefined,
      handlerTimeoutMs: 0,
      ttlMs: 0,
      rateLimit: undefined,
      batch: undefined,
      startFrom: 'earliest',
      share: { modulo: 3, remainder: 0 },
      concurrency: 8,
      ordering: 'none',
      retryOrdering: 'relaxed',
      maxHeldPerPartition: 1,
    });
    expect(Object.isFrozen(resolved) && Object.isFrozen(resolved.share)).toBe(true);
  });

  it('refuses to handle several messages at once and one after the other', () => {
    expect(resolve({ ordering: 'partition', concurrency: 1 }).problems).toEqual([]);
    expect(resolve({ ordering: 'partition', concurrency: 8 }).problems).toEqual([
      'Orders.on: ordering "partition" handles one message after the other, so concurrency (8) must be 1; ' +
        'with ordering "key" different keys are handled at once',
    ]);
    expect(resolve({ ordering: 'none', retryOrdering: 'key' }).problems).toEqual([
      'Orders.on: ordering "none" keeps no order, so retryOrdering must be "relaxed"; got "key"',
    ]);
    expect(resolve({ retryOrdering: 'partition', concurrency: 2 }).problems).toEqual([
      'Orders.on: retryOrdering "partition" lets nothing pass a message that fails, so concurrency (2) must be 1; ' +
        'retryOrdering "key" lets other keys pass',
    ]);
    expect(resolve({ ordering: 'keys', concurrency: 0 }).problems).toEqual([
      'Orders.on: ordering must be "key" or "partition" or "none"; got "keys"',
      'Orders.on: concurrency must be an integer from 1 to 10000; got 0',
    ]);
  });

  it('refuses batches that could not keep what else is asked for, and bad bounds', () => {
    const batch = { size: 10, waitMs: 0, type: Object };
    expect(resolve({ batch })).toMatchObject({ problems: [], resolved: { batch } });
    expect(resolve({ batch, concurrency: 2, ordering: 'none' }).problems).toEqual([]);
    expect(resolve({ batch, retryOrdering: 'key' }).problems).toEqual([]);
    expect(resolve({ batch, concurrency: 2 }).problems).toEqual([
      'Orders.on: batches of one partition that run at once keep no order, so with concurrency (2) ordering must be "none"; ' +
        'got "key"',
    ]);
    expect(resolve({ batch, retryOrdering: 'partition' }).problems).toEqual([
      'Orders.on: retryOrdering "partition" handles one message after the other, so it goes with no batch; ' +
        'with retryOrdering "key" a batch has one message of each key',
    ]);
    for (const wrong of [
      5,
      {},
      { size: 0, waitMs: 1 },
      { size: 1, waitMs: -1 },
      { ...batch, type: 'Order' },
      { ...batch, x: 1 },
    ]) {
      expect(resolve({ batch: wrong }).problems).toEqual([
        expect.stringContaining('Orders.on: batch must be { size, waitMs } with integers'),
      ]);
    }
  });

  it('lists all problems, each with the handler that has it', () => {
    expect(
      resolve({ batchCount: 0, retryMaxAttemps: 3, startFrom: 'newest', handlerTimeoutMs: '5s' }).problems,
    ).toEqual([
      'Orders.on: batchCount must be an integer from 1 to 10000; got 0',
      'Orders.on: unknown option "retryMaxAttemps"; the nearest known one is retryMaxAttempts',
      'Orders.on: startFrom must be "earliest" or "latest"; got "newest"',
      'Orders.on: handlerTimeoutMs must be an integer from 0 to 2147483647; got "5s"',
    ]);
  });

  it('takes attempts, back-off and time limit under their short names', () => {
    const retryIf = (): boolean => false;
    const backoff = (): number => 5;
    const { resolved, problems } = resolve({
      timeoutMs: 9,
      ttlMs: 60_000,
      rateLimit: { count: 2, perMs: 1000 },
      retry: { maxAttempts: 3, backoff: { baseMs: 7, maxMs: 70 }, retryIf },
    });
    expect(problems).toEqual([]);
    expect(resolved).toMatchObject({
      handlerTimeoutMs: 9,
      ttlMs: 60_000,
      rateLimit: { count: 2, perMs: 1000 },
      retryMaxAttempts: 3,
      retryBaseBackoffMs: 7,
      retryMaxBackoffMs: 70,
      retryBackoff: undefined,
      retryIf,
    });
    const own = resolve({ retry: { backoff, maxAttempts: undefined } });
    expect(own).toMatchObject({ problems: [], resolved: { retryBackoff: backoff, retryMaxAttempts: 5 } });
  });

  it.each([
    [{ timeoutMs: 5, handlerTimeoutMs: 5 }, /timeoutMs and handlerTimeoutMs are the same/],
    [{ retryMaxAttempts: 5, retry: { maxAttempts: 5 } }, /maxAttempts and retryMaxAttempts are the same/],
    [{ retryBaseBackoffMs: 5, retry: { backoff: { baseMs: 5 } } }, /baseMs and retryBaseBackoffMs are the same/],
    [{ retry: { maxAttemps: 5 } }, /retry: unknown option "maxAttemps"; the nearest known one is maxAttempts/],
    [{ retry: { maxAttempts: 0 } }, /retry: maxAttempts must be an integer/],
    [{ retry: { backoff: { base: 5 } } }, /retry: backoff must be { baseMs, maxMs }/],
    [{ retry: { backoff: null } }, /retry: backoff must be/],
    [{ retry: { retryIf: true } }, /retry: retryIf must be a function/],
    [{ retry: 5 }, /retry must be an object with any of maxAttempts, backoff and retryIf/],
    [{ retry: { backoff: { baseMs: 90_000 } } }, /retryMaxBackoffMs \(60000\) must not be less/],
    [{ rateLimit: { count: 0, perMs: 1 } }, /rateLimit must be { count, perMs }/],
    [{ rateLimit: { count: 1 } }, /rateLimit must be { count, perMs }/],
    [{ rateLimit: { count: 1, perMs: 1, perSec: 1 } }, /rateLimit must be { count, perMs }/],
    [{ ttlMs: -1 }, /ttlMs must be an integer from 0/],
  ])('refuses %j', (options, problem) => {
    expect(resolve(options).problems).toEqual([expect.stringMatching(problem)]);
  });

  it('checks options against those of the module', () => {
    expect(resolve({ retryBaseBackoffMs: 70_000 }).problems).toEqual([
      'Orders.on: retryMaxBackoffMs (60000) must not be less than retryBaseBackoffMs (70000)',
    ]);
    expect(resolve({ pollTimeoutMs: 7500 }).problems).toEqual([
      expect.stringContaining('pollTimeoutMs (7500) must be less than half of the lease (15000 ms)'),
    ]);
  });

  it('accepts a share exactly when the remainder is one of the modulo, and is given', () => {
    const count = fc.option(fc.integer({ min: 0, max: 5 }), { nil: undefined });
    fc.assert(
      fc.property(count, count, (partitionModulo, partitionRemainder) => {
        const none = partitionModulo === undefined && partitionRemainder === undefined;
        const whole = partitionModulo === 1 && partitionRemainder === undefined;
        const share =
          partitionModulo !== undefined && partitionRemainder !== undefined && partitionRemainder < partitionModulo;
        const { resolved, problems } = resolve({ partitionModulo, partitionRemainder });
        expect(problems).toHaveLength(none || whole || share ? 0 : 1);
        const { modulo, remainder } = resolved.share;
        expect([modulo, remainder]).toEqual(share ? [partitionModulo, partitionRemainder] : [modulo, remainder]);
      }),
    );
  });

  it('never throws, and has options that work whatever it gets', () => {
    const names = ['batchCount', 'startFrom', 'partitionModulo', '__proto__', 'constructor', 'x', ''];
    const input = fc.oneof(
      fc.anything(),
      fc.array(fc.tuple(fc.constantFrom(...names), fc.anything())).map((pairs): unknown => Object.fromEntries(pairs)),
    );
    fc.assert(
      fc.property(input, (options) => {
        const { resolved } = resolve(options);
        expect(resolved.batchCount).toBeGreaterThan(0);
        expect(['earliest', 'latest']).toContain(resolved.startFrom);
        expect(resolved.share.remainder).toBeGreaterThanOrEqual(0);
      }),
    );
  });

  it.each([null, 'fast', [], new Map()])('does not take %p for options', (options) => {
    expect(resolve(options).problems).toEqual([expect.stringMatching(/^Orders\.on: options must be a plain object/)]);
  });
});
