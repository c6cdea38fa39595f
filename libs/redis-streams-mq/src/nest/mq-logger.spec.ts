import { Logger, type LoggerService } from '@nestjs/common';
import { NestMqLogger } from './mq-logger.js';

const written: unknown[][] = [];
// Nest passes an absent stack to `error`.
const write = (...args: unknown[]): void => void written.push(args.filter((arg) => arg !== undefined));
const service: LoggerService = { log: write, warn: write, error: write, debug: write };

beforeEach(() => {
  written.length = 0;
  Logger.overrideLogger(service);
});
afterAll(() => Logger.overrideLogger(false));

const lineOf = (fields: Record<string, unknown>): unknown => {
  new NestMqLogger('default').warn('something happened', fields);
  return written.at(-1)?.[0];
};

describe('NestMqLogger', () => {
  it('writes a sentence and its fields, under a context that names the instance', () => {
    new NestMqLogger('default').log('started');
    new NestMqLogger('billing').error('failed', { topic: 'orders', partition: 3, absent: undefined });
    expect(written).toEqual([
      ['started', 'RedisStreamsMq'],
      ['failed topic=orders partition=3', 'RedisStreamsMq:billing'],
    ]);
  });

  it('shows of an error no more than its name and message', () => {
    const error = Object.assign(new TypeError('WRONGPASS'), { command: { name: 'auth', args: ['secret'] } });
    expect(lineOf({ error })).toBe('something happened error="TypeError: WRONGPASS"');
    expect(lineOf({ error: new Error('a b') })).toBe('something happened error="a b"');
  });

  it('never shows a password of an address', () => {
    expect(lineOf({ error: new Error('connect redis://user:p@ss:w@host:6379 failed') })).toBe(
      'something happened error="connect redis://***@host:6379 failed"',
    );
  });

  it('keeps foreign text on one line and short', () => {
    expect(lineOf({ reason: 'a\nb' })).toBe('something happened reason="a\\nb"');
    expect(String(lineOf({ reason: 'x'.repeat(1_000) })).length).toBeLessThan(400);
  });

  it('shows any value', () => {
    const circular: Record<string, unknown> = {};
    circular['self'] = circular;
    expect(lineOf({ list: ['a', 1], none: null, circular, big: 1n })).toBe(
      'something happened list="a, 1" none=null circular="a object that cannot be shown" big=1',
    );
  });
});
