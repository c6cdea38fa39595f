import { MqInvalidOptionsError } from '../core/errors.js';
import { resolveModuleOptions, splitOptions, type MqModuleExtras, type MqQueueOptions } from './module-options.js';

function problems(queue: unknown, extras: unknown = {}): readonly string[] {
  try {
    resolveModuleOptions(queue as MqQueueOptions, extras as MqModuleExtras);
  } catch (error) {
    if (error instanceof MqInvalidOptionsError) return error.problems;
    throw error;
  }
  return [];
}

describe('module options', () => {
  it('are told from those of the queue', () => {
    const { extras, queue } = splitOptions({
      name: 'second',
      endpoints: false,
      redis: 'redis://host',
      workerThreads: 2,
    });
    expect(extras).toMatchObject({ name: 'second', endpoints: false });
    expect(queue).toEqual({ redis: 'redis://host', workerThreads: 2 });
    expect(resolveModuleOptions(queue, extras)).toMatchObject({ workerThreads: 2, redis: 'redis://host' });
  });

  it('keep a redis that is undefined, which is refused: no silent localhost', () => {
    expect(problems(splitOptions({ redis: undefined }).queue)).toEqual([expect.stringMatching(/redis/)]);
  });

  it('refuse a promise in place of options', () => {
    expect(problems(splitOptions(Promise.resolve({}) as never).queue)).toEqual([
      expect.stringMatching(/Promise, which has to be awaited/),
    ]);
  });

  it('take the block of an application.yml', () => {
    const block = { 'worker-threads': '3', 'default-consumer-group': 'g', redis: 'redis://host' };
    expect(resolveModuleOptions(splitOptions(block).queue, {})).toMatchObject({
      workerThreads: 3,
      defaultConsumerGroup: 'g',
    });
  });

  it('are refused with all problems at once', () => {
    expect(problems({ redis: 'nonsense', workerThreads: 0 })).toEqual([
      expect.stringMatching(/^workerThreads/),
      expect.stringMatching(/^redis/),
    ]);
    expect(problems({}, { name: 'a b', isGlobal: 'yes', globalEnhancers: 1, endpoints: { health: 1 } })).toHaveLength(
      4,
    );
  });

  it('are refused where a factory gives what must stand beside it', () => {
    expect(problems({ endpoints: false, name: 'x' })).toEqual([
      expect.stringMatching(/^name must stand beside useFactory/),
      expect.stringMatching(/^endpoints must stand beside useFactory/),
    ]);
  });
});
