import * as fc from 'fast-check';
import { kebabName, type KebabOptions, normalizeOptions } from './kebab-options.js';
import type { OptionKind } from './option-rules.js';
import type { MqOptions } from './options.js';
import { mqOptionRules, resolveOptions } from './resolve-options.js';

const kinds = new Map<string, OptionKind>([
  ['redis', 'opaque'],
  ['enabled', 'boolean'],
  ['failFast', 'boolean'],
  ['leaseTtlSeconds', 'number'],
  ['workerThreads', 'number'],
  ['keyPrefix', 'other'],
]);

const normalize = (input: unknown): { values: Record<string, unknown>; problems: readonly string[] } => {
  const { options, problems } = normalizeOptions(input, kinds);
  return { values: Object.fromEntries([...options].map(([name, { value }]) => [name, value])), problems };
};

describe('normalizeOptions', () => {
  it('takes the block of an application.yml as it stands', () => {
    const block: KebabOptions<MqOptions> = {
      enabled: true,
      'key-prefix': 'streaming:mq',
      'default-consumer-group': 'billing',
      'lease-ttl-seconds': '20',
      'retention-max-len-per-partition': 5000,
      'dlq-retention-max-len': '0',
      'max-leased-partitions-per-consumer': 8,
      'ack-delete-policy': 'none',
      'auto-create-topics': 'false',
    };
    expect(resolveOptions(block)).toMatchObject({
      defaultConsumerGroup: 'billing',
      leaseTtlMs: 20_000,
      retentionMaxLenPerPartition: 5000,
      dlqRetentionMaxLen: 0,
      maxLeasedPartitionsPerConsumer: 8,
      autoCreateTopics: false,
    });
  });

  it('has a type that knows the names', () => {
    // @ts-expect-error the option is called worker-threads
    const misspelt: KebabOptions<MqOptions> = { 'worker-thread': 3 };
    // @ts-expect-error only text stands for a number
    const wrongType: KebabOptions<MqOptions> = { 'worker-threads': true };
    const mixed: Parameters<typeof resolveOptions>[0] = { redis: 'redis://h', 'worker-threads': '3', failFast: true };
    expect(resolveOptions(mixed)).toMatchObject({ redis: 'redis://h', workerThreads: 3, failFast: true });
    expect([misspelt, wrongType]).toHaveLength(2);
  });

  it('has a kebab name of its own for every option', () => {
    const names = Object.keys(mqOptionRules);
    expect(kebabName('retentionMaxLenPerPartition')).toBe('retention-max-len-per-partition');
    expect(new Set(names.map(kebabName)).size).toBe(names.length);
    expect(names.map(kebabName).filter((name) => name !== name.toLowerCase())).toEqual([]);
  });

  it('turns numeric text into a number under a kebab name, and no other text', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e15, max: 1e15 }), (number) => {
        const text = number.toFixed(3);
        expect(normalize({ 'worker-threads': text }).values['workerThreads']).toBe(Number(text));
      }),
    );
    for (const text of ['', ' ', '15s', '1e3', '0x10', '1_000', 'NaN', 'Infinity', '.5', '5.', '--5', '1 000']) {
      expect(normalize({ 'worker-threads': text }).values['workerThreads']).toBe(text);
    }
    expect(normalize({ workerThreads: '3' }).values['workerThreads']).toBe('3');
  });

  it('turns true and false into booleans under a kebab name, a name of one word being one', () => {
    expect(normalize({ 'fail-fast': 'TRUE', enabled: ' false ' }).values).toEqual({ failFast: true, enabled: false });
    expect(normalize({ 'fail-fast': 'yes', enabled: '1' }).values).toEqual({ failFast: 'yes', enabled: '1' });
    expect(normalize({ failFast: 'true' }).values).toEqual({ failFast: 'true' });
  });

  it('leaves text options alone, numeric ones included', () => {
    expect(normalize({ 'key-prefix': '12' }).values).toEqual({ keyPrefix: '12' });
  });

  it.each([
    { 'key-prefix': '${PREFIX:x}' },
    { 'worker-threads': '${N}' },
    { keyPrefix: 'app-${ENV}' },
    { enabled: '${E}' },
  ])('refuses the unresolved placeholder in %p', (block) => {
    const { values, problems } = normalize(block);
    expect(values).toEqual({});
    expect(problems).toEqual([expect.stringContaining('placeholder')]);
  });

  it('refuses one option in both spellings, whatever the values are', () => {
    expect(normalize({ leaseTtlSeconds: 5, 'lease-ttl-seconds': '5' }).problems).toEqual([
      'leaseTtlSeconds and lease-ttl-seconds are the same option; keep one',
    ]);
    expect(normalize({ 'lease-ttl-seconds': '${X}', leaseTtlSeconds: 5 }).problems).toHaveLength(2);
    expect(normalize({ leaseTtlSeconds: undefined, 'lease-ttl-seconds': 5 })).toEqual({
      values: { leaseTtlSeconds: 5 },
      problems: [],
    });
  });

  it('refuses a key without a value, as YAML reads one', () => {
    expect(normalize({ 'lease-ttl-seconds': null }).problems).toEqual([
      'lease-ttl-seconds has no value (null); give one, or remove it for the default',
    ]);
  });

  it.each([
    ['lease-ttl', 'lease-ttl-seconds'],
    ['lease-ttl-second', 'lease-ttl-seconds'],
    ['worker--threads', 'worker-threads'],
    ['leaseTtl', 'leaseTtlSeconds'],
    ['lease_ttl_seconds', 'leaseTtlSeconds'],
    ['Worker-Threads', 'worker-threads'],
    ['mq.keyPrefix', 'keyPrefix'],
  ])('names for the unknown %s the nearest in its own spelling', (name, nearest) => {
    expect(normalize({ [name]: 1 }).problems).toEqual([
      `unknown option "${name}"; the nearest known one is ${nearest}`,
    ]);
  });

  it('refuses an unknown name even when its value is undefined', () => {
    expect(normalize({ workerThread: undefined }).problems).toHaveLength(1);
  });

  it('hands opaque options on as they are', () => {
    const { options } = normalizeOptions({ redis: undefined }, kinds);
    expect(options.get('redis')).toEqual({ given: 'redis', value: undefined });
    expect(normalize({ redis: 'redis://:${x}@h' }).values).toEqual({ redis: 'redis://:${x}@h' });
  });

  it('keeps the spelling that the user will look for', () => {
    expect(() => resolveOptions({ 'worker-threads': 'many' })).toThrow(/worker-threads must be an integer/);
    expect(() => resolveOptions({ workerThreads: 0 })).toThrow(/workerThreads must be an integer/);
  });
});
