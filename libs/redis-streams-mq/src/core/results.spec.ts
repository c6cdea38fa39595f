import * as fc from 'fast-check';
import { DeadLetter, isDeadLetter, isRetryLater, MessageHandleResult, outcomeOf, RetryLater } from './results.js';

describe('MessageHandleResult', () => {
  it('decides by its exact values', () => {
    expect(outcomeOf({ value: MessageHandleResult.SUCCESS })).toEqual({ type: 'success' });
    expect(outcomeOf({ value: MessageHandleResult.RETRY })).toEqual({ type: 'retry' });
    expect(outcomeOf({ value: MessageHandleResult.FAIL })).toEqual({ type: 'dead', reason: 'rejected' });
    expect(outcomeOf({ value: MessageHandleResult.DEAD_LETTER })).toEqual({ type: 'dead', reason: 'rejected' });
  });

  it('is four different values that nobody can replace', () => {
    expect(new Set(Object.values(MessageHandleResult)).size).toBe(4);
    expect(Object.keys(MessageHandleResult)).toEqual(['SUCCESS', 'RETRY', 'FAIL', 'DEAD_LETTER']);
    expect(Object.isFrozen(MessageHandleResult)).toBe(true);
  });

  it('is the same in a second copy of the library', () => {
    jest.isolateModules(() => {
      const copy = jest.requireActual<typeof import('./results.js')>('./results.js');
      expect(copy.RetryLater).not.toBe(RetryLater);
      expect(copy.MessageHandleResult.RETRY).toBe(MessageHandleResult.RETRY);
      expect(isRetryLater(new copy.RetryLater(5))).toBe(true);
      expect(isDeadLetter(new copy.DeadLetter('no'))).toBe(true);
    });
  });

  it('takes anything else that a handler returns for a success', () => {
    const chance = fc.constantFrom<unknown>(
      'RETRY',
      'FAIL',
      'DEAD_LETTER',
      Symbol('RETRY'),
      { name: 'RETRY' },
      false,
      null,
    );
    fc.assert(
      fc.property(fc.oneof(chance, fc.anything()), (value) => {
        expect(outcomeOf({ value })).toEqual({ type: 'success' });
      }),
    );
    expect(outcomeOf({})).toEqual({ type: 'success' });
    expect(outcomeOf({ value: new RetryLater(1) })).toEqual({ type: 'success' });
  });
});

describe('a throw', () => {
  it('is a retry with what was thrown, whatever it is', () => {
    fc.assert(
      fc.property(fc.anything(), (error) => {
        const outcome = outcomeOf({ error });
        expect(outcome).toStrictEqual({ type: 'retry', error });
        expect(Object.is((outcome as { error: unknown }).error, error)).toBe(true);
      }),
    );
    expect(outcomeOf({ error: undefined })).toStrictEqual({ type: 'retry', error: undefined });
    expect(outcomeOf({ error: MessageHandleResult.FAIL })).toMatchObject({ type: 'retry' });
  });

  it('is a retry even when the thing thrown throws when looked at', () => {
    const revoked = Proxy.revocable({}, {});
    revoked.revoke();
    expect(outcomeOf({ error: revoked.proxy }).type).toBe('retry');
  });

  it('of RetryLater has its delay, in whole milliseconds and never less', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e11, noNaN: true }), (delayMs) => {
        const error = new RetryLater(delayMs);
        const outcome = outcomeOf({ error });
        expect(outcome).toEqual({ type: 'retry', delayMs: Math.ceil(delayMs), error });
      }),
    );
    expect(outcomeOf({ error: new RetryLater(0) })).toHaveProperty('delayMs', 0);
    expect(outcomeOf({ error: new RetryLater(-0) })).toHaveProperty('delayMs', 0);
  });

  it.each([undefined, NaN, -1, Infinity, -Infinity, 1e300, '5', null, 5n, {}])(
    'of RetryLater with the delay %p leaves the delay to the back-off',
    (delayMs) => {
      const error = new RetryLater(delayMs as number);
      expect(outcomeOf({ error })).toStrictEqual({ type: 'retry', error });
    },
  );

  it('of RetryLater whose delay cannot be read leaves the delay to the back-off', () => {
    const error = new RetryLater();
    Object.defineProperty(error, 'delayMs', {
      get() {
        throw new Error('no');
      },
    });
    const outcome = outcomeOf({ error });
    expect(outcome.type).toBe('retry');
    expect(outcome).not.toHaveProperty('delayMs');
  });

  it('of DeadLetter is dead at once, with the reason and the cause at hand', () => {
    const cause = new Error('down');
    const error = new DeadLetter('no such customer', { cause });
    expect(outcomeOf({ error })).toStrictEqual({ type: 'dead', reason: 'rejected', error });
    expect(error).toMatchObject({ name: 'DeadLetter', message: 'no such customer', reason: 'no such customer', cause });
  });

  it('of a subclass decides as its parent does', () => {
    class TooMany extends RetryLater {}
    class Malformed extends DeadLetter {}
    expect(outcomeOf({ error: new TooMany(7) })).toMatchObject({ type: 'retry', delayMs: 7 });
    expect(outcomeOf({ error: new Malformed('x') })).toMatchObject({ type: 'dead', reason: 'rejected' });
  });
});

describe('RetryLater and DeadLetter', () => {
  it('are errors with a stack, recognised as themselves alone', () => {
    const later = new RetryLater(5, 'busy', { cause: 1 });
    const dead = new DeadLetter('x');
    expect(later).toBeInstanceOf(Error);
    expect(later).toMatchObject({ name: 'RetryLater', message: 'busy', delayMs: 5, cause: 1 });
    expect(new RetryLater().message).toBe('retry later');
    expect(later.stack).toContain('results.spec');
    expect([isRetryLater(later), isDeadLetter(later)]).toEqual([true, false]);
    expect([isRetryLater(dead), isDeadLetter(dead)]).toEqual([false, true]);
  });

  it('are not mistaken for errors of the same name', () => {
    const named = Object.assign(new Error('x'), { name: 'RetryLater', delayMs: 5 });
    expect(isRetryLater(named)).toBe(false);
    for (const thrown of [null, undefined, 1, 'RetryLater', Symbol('x'), () => 0]) {
      expect(isRetryLater(thrown) || isDeadLetter(thrown)).toBe(false);
    }
  });

  it('keep the brand out of logs that list own string keys', () => {
    expect(Object.keys(new DeadLetter('x')).toSorted()).toEqual(['name', 'reason']);
  });
});
