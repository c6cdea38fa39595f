import { parseCommand, UsageError } from './options.js';

const parse = (words: string) => parseCommand(words.split(' '));

describe('parseCommand', () => {
  it('takes a load', () => {
    expect(
      parse('--rate 5000 --handler-ms 2.5 --payload 1KB --retention-hours 24 --groups 3 --lease-ttl 30'),
    ).toMatchObject({
      do: 'plan',
      load: { ratePerSec: 5_000, handlerMs: 2.5, payloadBytes: 1_024, retentionHours: 24, groups: 3, utilization: 0.7 },
      options: { leaseTtlMs: 30_000, workerThreads: 16 },
    });
  });

  it.each([
    ['300', 300],
    ['300B', 300],
    ['2kb', 2_048],
    ['2.5MB', 2_621_440],
  ])('takes %s for a size', (payload, payloadBytes) => {
    expect(parse(`--rate 1 --payload ${payload}`)).toMatchObject({ load: { payloadBytes } });
  });

  it('takes what else there is', () => {
    expect(parse('--help')).toEqual({ do: 'help' });
    expect(parse('--measure')).toEqual({ do: 'measure' });
    expect(parse('--simulate')).toMatchObject({ do: 'simulate', members: 1_000, partitions: 10_000, masters: 0 });
  });

  it.each([
    ['--groups 3', '--rate is needed'],
    ['--rate', 'rate'],
    ['--rate 0', '--rate must be a number above 0, not "0"'],
    ['--rate 0x10', '--rate must be a number above 0, not "0x10"'],
    ['--rate 1e999', '--rate must be a number above 0'],
    ['--rate=-5', '--rate must be a number above 0, not "-5"'],
    ['--rate 1 --handler-ms 0', '--handler-ms must be a number above 0'],
    ['--rate 1 --groups 1.5', '--groups must be a whole number from 1 to 10000, not "1.5"'],
    ['--rate 1 --payload 1TB', '--payload must be a size from 1 B to 512 MB'],
    ['--rate 1 --payload 0', '--payload must be a size from 1 B to 512 MB'],
    ['--rate 1 --payload 513MB', '--payload must be a size from 1 B to 512 MB'],
    ['--rate 1 --utilization 1', '--utilization must be below 1'],
    ['--rate 1 --members 5', '--members is for --simulate'],
    ['--rate 1 --lease-ttl 5', 'renewIntervalSec'],
    ['--rate 1 --worker-threads many', 'worker-threads'],
    ['--simulate --members 5001', '--members must be a whole number from 1 to 5000'],
    ['--rat 5', '--rat'],
    ['5000', '5000'],
  ])('refuses %s', (words, message) => {
    expect(() => parse(words)).toThrow(UsageError);
    expect(() => parse(words)).toThrow(message);
  });
});
