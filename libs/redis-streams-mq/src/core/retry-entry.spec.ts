import { parseRetryEntry } from './retry-entry.js';

const entry = (...fields: string[]): Buffer[] => fields.map((field) => Buffer.from(field));

describe('an entry of a retry stream', () => {
  it.each([
    ['without a history', entry('origin', '1-2', 'attempt', '3')],
    ['with one', entry('origin', '1-2', 'history', '\u0092packed', 'attempt', '3')],
  ])('is its message with the attempts made, %s', (_, head) => {
    const fields = entry('p', 'payload', 'attempt', '9');
    expect(parseRetryEntry([...head, ...fields])).toEqual({ origin: '1-2', attemptsMade: 3, fields });
  });

  it.each([
    ['no fields', entry()],
    ['a message of its own', entry('p', 'payload')],
    ['no attempt', entry('origin', '1-2')],
    ['a history and no attempt', entry('origin', '1-2', 'history', 'x')],
    ['a number that is none', entry('origin', '1-2', 'attempt', 'x', 'p', 'payload')],
    ['a number below zero', entry('origin', '1-2', 'attempt', '-1', 'p', 'payload')],
  ])('is nothing of ours with %s', (_, fields) => {
    expect(parseRetryEntry(fields)).toBeNull();
  });
});
