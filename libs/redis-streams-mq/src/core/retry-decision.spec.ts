import fc from 'fast-check';
import { decideRetry, type RetryDecision } from './retry-decision.js';
import { RetryLater } from './results.js';

const options = {
  retryMaxAttempts: 3,
  retryBaseBackoffMs: 100,
  retryMaxBackoffMs: 1000,
  retryBackoff: undefined,
  retryIf: undefined,
};
const bad: unknown[] = [];
beforeEach(() => void bad.splice(0));
const deps = { random: () => 1, onBadCallback: (error: unknown) => void bad.push(error) };
const error = new Error('no');
const decide = (
  call: Partial<Parameters<typeof decideRetry>[0]>,
  more: Partial<Parameters<typeof decideRetry>[1]> = {},
): RetryDecision => decideRetry({ attempt: 1, error, ...call }, { ...options, ...more }, deps);

const throwing = (): never => {
  throw error;
};

describe('decideRetry', () => {
  it('backs off exponentially until the attempts are used up', () => {
    expect(decide({})).toEqual({ type: 'retry', delayMs: 100 });
    expect(decide({ attempt: 2 })).toEqual({ type: 'retry', delayMs: 200 });
    expect(decide({ attempt: 3 })).toEqual({ type: 'dead', reason: 'exhausted' });
  });

  it('prefers what the handler asks for to the back-off of the options, and that to the exponential one', () => {
    const retryBackoff = (attempt: number, thrown: unknown): number => (thrown === error ? attempt * 1.5 : NaN);
    expect(decide({ attempt: 2 }, { retryBackoff })).toEqual({ type: 'retry', delayMs: 3 });
    expect(decide({ attempt: 2, delayMs: 7 }, { retryBackoff })).toEqual({ type: 'retry', delayMs: 7 });
    expect(decide({}, { retryBackoff: () => 0 })).toEqual({ type: 'retry', delayMs: 0 });
  });

  it('ends with what retryIf does not want, at the first attempt, and asks it about errors alone', () => {
    const retryIf = jest.fn(() => false);
    expect(decide({}, { retryIf })).toEqual({ type: 'dead', reason: 'rejected' });
    expect(retryIf).toHaveBeenCalledWith(error, 1);
    expect(decide({ error: undefined }, { retryIf })).toMatchObject({ type: 'retry' });
    expect(decide({ error: new RetryLater(5), delayMs: 5 }, { retryIf })).toEqual({ type: 'retry', delayMs: 5 });
    expect(retryIf).toHaveBeenCalledTimes(1);
  });

  it('retries as without a callback that throws, and says so', () => {
    expect(decide({}, { retryIf: throwing, retryBackoff: throwing })).toEqual({ type: 'retry', delayMs: 100 });
    expect(bad).toEqual([error, error]);
  });

  it.each([undefined, null, NaN, -1, Infinity, 1e300, '5', 5n, {}, Promise.resolve(1)])(
    'takes no %p for a delay',
    (answer) => {
      expect(decide({}, { retryBackoff: () => answer as number })).toEqual({ type: 'retry', delayMs: 100 });
      expect(bad).toEqual([expect.objectContaining({ message: expect.stringMatching(/^retry\.backoff must return/) })]);
    },
  );

  it('takes an async retryIf for a mistake: it retries, and its rejection harms nobody', async () => {
    const retryIf = (async () => throwing()) as unknown as () => boolean;
    expect(decide({}, { retryIf })).toMatchObject({ type: 'retry' });
    await new Promise((resolve) => setImmediate(resolve));
    expect(bad).toEqual([expect.objectContaining({ message: expect.stringContaining('got a promise') })]);
  });

  it('never loses a message, whatever the callbacks give', () => {
    fc.assert(
      fc.property(fc.anything(), fc.anything(), fc.nat(5), (worth, delay, attempt) => {
        const decision = decide({ attempt }, { retryIf: () => worth as boolean, retryBackoff: () => delay as number });
        const dead = worth === false ? 'rejected' : attempt >= 3 ? 'exhausted' : undefined;
        const { type, ...rest } = decision;
        expect([type, dead === undefined ? 'delayMs' in rest : rest]).toEqual(
          dead === undefined ? ['retry', true] : ['dead', { reason: dead }],
        );
      }),
    );
  });
});
