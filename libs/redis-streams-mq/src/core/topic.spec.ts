import { MqInvalidOptionsError } from './errors.js';
import { defineTopic } from './topic.js';

describe('defineTopic', () => {
  it('keeps what is said, with the version as text, frozen', () => {
    const topic = defineTopic<number>('orders', { version: 2, partitions: 8 });
    expect(topic).toMatchObject({ name: 'orders', version: '2', partitions: 8 });
    expect(Object.isFrozen(topic)).toBe(true);
    expect(defineTopic('orders').version).toBeUndefined();
  });

  it.each([
    ['bad topic', {}, /topic name "bad topic" contains " "/],
    ['t', { partitions: 0 }, /partitions must be an integer from 1/],
    ['t', { version: {} }, /version must be a text or a number/],
    ['t', { schema: { parse: () => 1 } }, /schema must be a Standard Schema/],
  ])('refuses %s with %j', (name, definition, problem) => {
    const define = (): unknown => defineTopic(name, definition as object);
    expect(define).toThrow(MqInvalidOptionsError);
    expect(define).toThrow(problem);
  });
});
