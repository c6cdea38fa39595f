import { setTimeout as sleep } from 'node:timers/promises';
import { TestInstance } from '../support/engine.js';
import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';
import { startClusterServers } from '../torture/servers/cluster.js';
import type { Servers } from '../torture/servers/servers.js';

const PARTITIONS = 16;
const LEASE_MS = 3_000;

describeWithServer('a Cluster that changes under load', () => {
  let servers: Servers;
  beforeAll(async () => {
    servers = await startClusterServers();
  });
  afterAll(() => servers.stop());

  it('CLU-10 loses nothing and keeps the order when slots move, and when a master hands over to its replica', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const network = await servers.network();
    const options = {
      redis: network.redis,
      defaultPartitionCount: PARTITIONS,
      leaseTtlSeconds: LEASE_MS / 1_000,
      renewIntervalSec: 0.5,
      redisTimeoutMs: 1_000,
    };
    const [a, b] = [await TestInstance.open(options), await TestInstance.open(options)];
    const faults = [a, b].map(({ runtime }) => EventLog.of(runtime.events, 'fault'));
    let stopped = false;
    const accepted: number[] = [];
    try {
      await a.start({ topic, group: 'g', handle: record.handler('a') });
      await b.start({ topic, group: 'g', handle: record.handler('b') });
      const sending = (async () => {
        for (let n = 0; !stopped; n++) {
          await a.producer.send(topic, { n }, { partition: n % PARTITIONS, timeoutMs: 5_000 }).then(
            () => accepted.push(n),
            () => undefined,
          );
          await sleep(15);
        }
      })();
      await waitFor(() => record.handled > 50);
      await servers.faults['reshard']!(0.6);
      await servers.faults['failover']!(0.1);
      await servers.faults['reshard']!(0.3);
      stopped = true;
      await sending;
      await waitFor(() => accepted.every((n) => record.calls.some((call) => call.n === n)), { timeoutMs: 20_000 });
      expect(accepted.length).toBeGreaterThan(100);
      expect(record.disorder).toEqual([]);
      expect(record.overlaps).toEqual([]);
      const pauses = Array.from({ length: PARTITIONS }, (_, partition) => record.longestPause(partition));
      expect(Math.max(...pauses)).toBeLessThan(LEASE_MS + 5_000);
      expect(faults.flatMap((log) => log.all('fault')).filter((fault) => fault.class !== 'transient')).toEqual([]);
    } finally {
      stopped = true;
      await Promise.all([a.close(), b.close()]);
      await network.stop();
    }
  }, 90_000);
});
