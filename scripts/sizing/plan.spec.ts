import fc from 'fast-check';
import { resolveOptions } from '../../libs/redis-streams-mq/src/core/resolve-options.js';
import { costs } from './costs.js';
import { figuresOf } from './figures.js';
import { planFor, type Load } from './plan.js';
import { warningsOf } from './warnings.js';

const DEFAULTS = resolveOptions({});
const LOAD: Load = {
  ratePerSec: 1_000,
  payloadBytes: 1_000,
  handlerMs: 7,
  cpuMs: 0.1,
  groups: 1,
  retentionHours: 0,
  concurrency: 1,
  partitions: 0,
  instances: 0,
  utilization: 0.7,
  hotKeyRate: 0,
  masters: 0,
  producers: 0,
};

const plan = (load: Partial<Load>, options = DEFAULTS) => planFor({ ...LOAD, ...load }, options);
const warnings = (load: Partial<Load>, options = DEFAULTS): string[] =>
  warningsOf({ ...LOAD, ...load }, plan(load, options), options);

describe('planFor', () => {
  it('asks for as many places as handlers run at once, with room to spare', () => {
    const { busy, places, partitions } = plan({ instances: 5 });
    expect({ busy, places, partitions }).toEqual({ busy: 7, places: 10, partitions: 10 });
  });

  it('does not ask for one more because of how fractions are stored', () => {
    // 0.1 * 3 / 0.3 is a little more than 1.
    expect(plan({ ratePerSec: 300, handlerMs: 1, utilization: 0.3 }).places).toBe(1);
    expect(plan({ ratePerSec: 0.001 }).places).toBe(1);
  });

  it('has one instance to spare, by places or by processor', () => {
    expect(plan({ ratePerSec: 16_000 })).toMatchObject({ places: 160, instancesByPlaces: 10, instances: 11 });
    expect(plan({ ratePerSec: 16_000, cpuMs: 0.7 })).toMatchObject({ instancesByProcessor: 16, instances: 17 });
    expect(plan({ ratePerSec: 1 }).instances).toBe(2);
  });

  it('makes partitions a multiple of the instances, at least the default, and fewer with concurrency', () => {
    expect(plan({ ratePerSec: 16_000 }).partitions).toBe(165);
    expect(plan({ ratePerSec: 16_000, concurrency: 16 }).partitions).toBe(11);
    expect(plan({ ratePerSec: 1, instances: 3 }).partitions).toBe(6);
  });

  it('keeps what is given', () => {
    expect(plan({ partitions: 7, instances: 3 })).toMatchObject({
      partitions: 7,
      instances: 3,
      owned: 3,
      usedPlaces: 1,
    });
  });

  it('says what a key and the topic can have', () => {
    expect(plan({ handlerMs: 20, partitions: 8, concurrency: 4 }).mostPerSec).toEqual({
      ofKey: 50,
      ofPartitions: 1_600,
    });
  });

  it('counts connections: three a process and one for a group, one more with waitReplicas', () => {
    expect(plan({ groups: 2, instances: 3, producers: 5 }).connections).toEqual({ all: 39, atServer: 39 });
    const waiting = resolveOptions({ waitReplicas: 1 });
    expect(plan({ groups: 2, instances: 3, producers: 5 }, waiting).connections.all).toBe(50);
  });

  it('counts connections in Cluster: to each master, and a bounded number of readers', () => {
    const load = { instances: 2, partitions: 20, masters: 3, producers: 1 };
    expect(plan(load).connections).toEqual({ all: 47, atServer: 16 });
    expect(plan(load, resolveOptions({ maxBlockingConnections: 4 })).connections.all).toBe(35);
  });

  it('keeps messages by time or by length', () => {
    expect(plan({ retentionHours: 2 }).messagesKept).toBe(7_200_000);
    expect(plan({ partitions: 3 }).messagesKept).toBe(300_000);
  });

  it('reckons memory from messages, pending entries and partitions, for each master', () => {
    const load = { groups: 2, partitions: 10, instances: 2, retentionHours: 1 };
    const { dataBytes, memoryBytes, bytesPerMessage } = plan(load);
    expect(bytesPerMessage).toBe(1_000 * costs.bytesPerPayloadByte + costs.bytesPerMessage);
    expect(dataBytes).toBe(
      (3_600_000 + 60_000) * bytesPerMessage +
        2 * 10 * 96 * costs.bytesPerPending +
        10 * (costs.bytesPerPartition + 2 * costs.bytesPerOwnedPartition),
    );
    expect(memoryBytes).toBe(1.5 * dataBytes);
    expect(plan({ ...load, masters: 3 }).memoryBytes).toBe(memoryBytes / 3);
  });

  it('says what waits after a crash and when it is caught up', () => {
    const { afterCrash } = plan({ partitions: 14, instances: 5 });
    expect(afterCrash).toEqual({ missedSec: 15, waiting: 3_000, caughtUpSec: 15 });
    expect(plan({ partitions: 7 }).afterCrash.caughtUpSec).toBe(Infinity);
  });

  it('gives every load enough places, with one instance away', () => {
    const loads = fc.record({
      ratePerSec: fc.double({ min: 0.01, max: 100_000, noNaN: true }),
      handlerMs: fc.double({ min: 0.01, max: 10_000, noNaN: true }),
      concurrency: fc.integer({ min: 1, max: 64 }),
      utilization: fc.double({ min: 0.05, max: 0.95, noNaN: true }),
    });
    fc.assert(
      fc.property(loads, (load) => {
        const { busy, partitions, instances, owned } = plan(load);
        expect(partitions * load.concurrency * load.utilization).toBeGreaterThanOrEqual(busy * 0.999_999);
        expect((instances - 1) * DEFAULTS.workerThreads * load.utilization).toBeGreaterThanOrEqual(busy * 0.999_999);
        expect(owned * instances).toBe(partitions);
      }),
    );
  });
});

describe('warningsOf', () => {
  it('says nothing about a load that fits', () => {
    expect(warnings({})).toEqual([]);
  });

  it.each<[string, Partial<Load>, RegExp]>([
    ['more partitions than a topic has', { ratePerSec: 1_000_000 }, /more than a topic can have \(4096\)/],
    ['partitions that could be shared', { handlerMs: 70 }, /with --concurrency 16, 7 partitions/],
    ['partitions that are too few', { partitions: 7 }, /too few: the lag grows for ever \(100 % used\)/],
    ['partitions that are crowded', { partitions: 8 }, /88 % used, more than 70 %/],
    ['a hot key', { hotKeyRate: 150 }, /hottest key alone needs 105 % of one handler/],
    ['idle instances', { partitions: 10, instances: 12 }, /2 instances of each group own no partition/],
    ['no instance to spare', { instances: 1 }, /0 are left, and the load needs 1/],
    ['concurrency beyond workerThreads', { concurrency: 20 }, /workerThreads \(16\).* raise it to 20/],
    ['more members than are listed', { instances: 5_001, partitions: 5_001 }, /5000 instances at most/],
    ['polled partitions', { masters: 3, partitions: 200, instances: 2 }, /owns 100 partitions, of which 64/],
    ['retention by time', { retentionHours: 24 }, /retentionMs: 86400000 and retentionMaxLenPerPartition: 0/],
    [
      'a partition that outgrows its trimmer',
      { ratePerSec: 4_000, handlerMs: 0.5, partitions: 4 },
      /833\/s are trimmed at most: set trimIntervalSec to 50/,
    ],
    ['leases that load Redis', { partitions: 4_000, instances: 1_000 }, /Leases and looks alone take/],
    [
      'looks that load the instances',
      { partitions: 8_000, instances: 1_000, masters: 30 },
      /on looking at the partitions/,
    ],
    ['a Redis at its end', { ratePerSec: 80_000, partitions: 800 }, /on one core, and would be at 7\d %/],
    ['a large server', { retentionHours: 24, payloadBytes: 10_000 }, /more than 64 GB/],
    ['too many connections', { groups: 100, instances: 30, partitions: 30 }, /12000 connections to one server/],
  ])('names %s', (_, load, message) => {
    expect(warnings(load)).toContainEqual(expect.stringMatching(message));
  });
});

describe('figuresOf', () => {
  it('says of each figure where it comes from', () => {
    const load = { ...LOAD, retentionHours: 24, payloadBytes: 1_024 };
    const figures = figuresOf(load, planFor(load, DEFAULTS), DEFAULTS);
    expect(figures.filter(({ value, why }) => value === '' || why === '' || /NaN|undefined/.test(value + why))).toEqual(
      [],
    );
    const valueOf = (name: string) => figures.find((figure) => figure.name === name)?.value;
    expect(valueOf('messages kept')).toBe('86,400,000');
    expect(valueOf('a message in Redis')).toBe('1.3 KB');
    expect(valueOf('until a dead instance is replaced')).toBe('15 s');
  });
});
