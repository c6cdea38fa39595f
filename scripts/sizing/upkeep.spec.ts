import { resolveOptions } from '../../libs/redis-streams-mq/src/core/resolve-options.js';
import { lookEveryMs, upkeepOf, type Fleet } from './upkeep.js';

const DEFAULTS = resolveOptions({});
const upkeep = (fleet: Partial<Fleet>) =>
  upkeepOf({ instances: 2, partitions: 600, topics: 1, masters: 0, ...fleet }, DEFAULTS);

describe('upkeepOf', () => {
  it('looks three times while a membership lasts, at the latest after rebalanceIntervalSec', () => {
    expect(lookEveryMs(DEFAULTS)).toBe(4_000);
    expect(lookEveryMs(resolveOptions({ leaseTtlSeconds: 60 }))).toBe(5_000);
  });

  it('asks for many partitions in one call on a single server', () => {
    const { commandsPerSec } = upkeep({});
    expect(commandsPerSec.renewals).toBeCloseTo((2 * 2) / 3);
    expect(commandsPerSec.heartbeats).toBe(0.5);
    expect(commandsPerSec.looksAtOwners).toBe(1.5);
    expect(commandsPerSec.reads).toBe(1);
    expect(commandsPerSec.looksForDue).toBe(4);
  });

  it('asks for each partition by itself in Cluster', () => {
    const { commandsPerSec } = upkeep({ masters: 3, instances: 10 });
    expect(commandsPerSec.renewals).toBe(200);
    expect(commandsPerSec.looksAtOwners).toBe(1_500);
    expect(commandsPerSec.looksForDue).toBe(600);
    expect(commandsPerSec.reads).toBe(1_200);
  });

  it('polls what is beyond the connections that may block, in Cluster', () => {
    expect(upkeep({ masters: 3, instances: 1, partitions: 70 }).commandsPerSec.reads).toBe(64 * 2 + 6 * 20);
  });

  it('sees every partition from every instance', () => {
    const { leasesSeenPerSec, leaseRenewalsPerSec } = upkeep({ instances: 1_000, partitions: 10_000 });
    expect(leasesSeenPerSec).toBe(2_500_000);
    expect(leaseRenewalsPerSec).toBeCloseTo(3_333.3, 1);
  });

  it('reads and renews nothing for instances that own nothing', () => {
    const { commandsPerSec } = upkeep({ instances: 20, partitions: 4 });
    expect(commandsPerSec.reads).toBe(2);
    expect(commandsPerSec.heartbeats).toBe(5);
  });

  it('loads Redis more with each instance and each partition', () => {
    const loads = [upkeep({}), upkeep({ instances: 4 }), upkeep({ partitions: 1_200 }), upkeep({ masters: 3 })];
    const [least, ...more] = loads.map(({ redisLoad }) => redisLoad);
    expect(Math.min(...more)).toBeGreaterThan(least!);
  });
});
