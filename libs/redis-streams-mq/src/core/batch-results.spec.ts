import { BatchFailure, batchOutcomes, isBatchFailure } from './batch-results.js';
import type { ReceivedMessage } from './handler.js';
import { DeadLetter, MessageHandleResult, RetryLater } from './results.js';

const messages = ['a', 'b', 'c'].map(
  (name) => ({ context: { id: `id ${name}`, eventId: `event ${name}` } }) as unknown as ReceivedMessage,
);
const types = (result: Parameters<typeof batchOutcomes>[0]): string[] =>
  batchOutcomes(result, messages).map(({ type }) => type);
const { SUCCESS, RETRY, FAIL } = MessageHandleResult;

describe('batchOutcomes', () => {
  it.each([
    ['nothing', undefined, ['success', 'success', 'success']],
    ['one result for all', RETRY, ['retry', 'retry', 'retry']],
    ['a result for each', [SUCCESS, RETRY, FAIL], ['success', 'retry', 'dead']],
    ['whatever for each', [null, 'RETRY', { status: 'rejected-by-bank' }], ['success', 'success', 'success']],
    ['something of another length', [1, 2], ['success', 'success', 'success']],
    ['an empty array', [], ['success', 'success', 'success']],
    ['results of another length', [SUCCESS, SUCCESS], ['retry', 'retry', 'retry']],
    ['settled results of another length', [{ status: 'rejected', reason: 1 }], ['retry', 'retry', 'retry']],
    [
      'what allSettled gives',
      [
        { status: 'fulfilled', value: undefined },
        { status: 'rejected', reason: new DeadLetter('no') },
        { status: 'fulfilled', value: RETRY },
      ],
      ['success', 'dead', 'retry'],
    ],
  ])('for a handler that returns %s', (_what, value, expected) => {
    expect(types({ value })).toEqual(expected);
  });

  it('fails those that a BatchFailure names, of their own errors', () => {
    const failure = new BatchFailure([
      { index: 0, error: new RetryLater(7) },
      { id: 'id b', error: new DeadLetter('no') },
      { eventId: 'event c' },
    ]);
    expect(batchOutcomes({ error: failure }, messages)).toEqual([
      expect.objectContaining({ type: 'retry', delayMs: 7 }),
      expect.objectContaining({ type: 'dead', reason: 'rejected' }),
      { type: 'retry', error: failure },
    ]);
    expect(types({ error: new BatchFailure([{ index: 2 }]) })).toEqual(['success', 'success', 'retry']);
  });

  it.each([
    ['names none', new BatchFailure([])],
    ['names one that is not there', new BatchFailure([{ index: 0 }, { index: 3 }])],
    ['names one by an id that is not there', new BatchFailure([{ id: 'id d' }])],
    ['names one by nothing', new BatchFailure([{} as { index: number }])],
    ['is made wrong', new BatchFailure([null] as never)],
    ['is another error', new Error('all')],
  ])('fails all for one that %s', (_what, error) => {
    expect(types({ error })).toEqual(['retry', 'retry', 'retry']);
  });

  it('knows a BatchFailure by its brand', () => {
    expect([new BatchFailure([]), new Error('x'), null, undefined].map(isBatchFailure)).toEqual([
      true,
      false,
      false,
      false,
    ]);
  });
});
