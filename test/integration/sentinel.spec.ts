import { TestInstance } from '../support/engine.js';
import { HandlingRecord } from '../support/handling-record.js';
import { describeWithServer } from '../support/redis-server.js';
import { startSentinel, type TestSentinel } from '../support/sentinel.js';
import { waitFor } from '../support/wait-for.js';

describeWithServer('on Sentinel', () => {
  let sentinel: TestSentinel;

  beforeAll(async () => {
    sentinel = await startSentinel();
  });
  afterAll(() => sentinel.stop());

  it('CLU-03 goes on at the new master after a failover, without a restart', async () => {
    const { addresses: sentinels, name, master } = sentinel;
    const instance = await TestInstance.open({ redis: { sentinels, name }, failFast: true });
    const handled: number[] = [];
    try {
      await instance.start({
        topic: 'orders',
        group: 'g',
        handle: ({ payload }) => void handled.push((payload as { n: number }).n),
      });
      for (let n = 0; n < 20; n++) await instance.producer.send('orders', { n }, { key: 'k' });
      await waitFor(() => handled.length === 20);
      await master.kill('SIGKILL');
      await waitFor(async () => (await sentinel.masterPort()) !== master.port, { timeoutMs: 20_000 });
      for (let n = 20; n < 40; n++) await instance.producer.send('orders', { n }, { key: 'k', timeoutMs: 20_000 });
      await waitFor(() => handled.includes(39), { timeoutMs: 20_000 });
      const fresh = handled.filter((n) => n >= 20);
      expect(fresh).toEqual(Array.from({ length: 20 }, (_, i) => 20 + i));
    } finally {
      await instance.close();
    }
  }, 60_000);
});

describeWithServer('on Sentinel that nobody answers for', () => {
  let sentinel: TestSentinel;

  beforeAll(async () => {
    // Of a replica that has been without its master for ten times as long the sentinels would not make a master.
    sentinel = await startSentinel({ downAfterMs: 1_000 });
  });
  afterAll(() => sentinel.stop());

  it('CONN-03 no connection is dead for good: consumption resumes when the sentinels are back, without a restart', async () => {
    const { addresses: sentinels, name, master } = sentinel;
    const options = { redisTimeoutMs: 1_000, consumerPollTimeoutMs: 200, leaseTtlSeconds: 2, renewIntervalSec: 0.5 };
    const instance = await TestInstance.open({ redis: { sentinels, name }, failFast: true, ...options });
    const record = new HandlingRecord();
    const health = async (): Promise<string> =>
      (await instance.runtime.health.readiness()).redisStreamsMq!.status as string;
    const accepted: number[] = [];
    const send = async (n: number): Promise<void> => {
      await instance.producer.send('orders', { n }, { timeoutMs: 500 }).then(
        () => accepted.push(n),
        () => undefined,
      );
    };
    try {
      await instance.start({ topic: 'orders', group: 'g', handle: record.handler('a') });
      for (let n = 0; n < 20; n++) await send(n);
      await waitFor(() => record.handled === 20);
      // What is acknowledged is on the replica, too: nothing comes again.
      const raw = sentinel.client();
      await raw.wait(1, 5_000);
      for (const one of sentinel.sentinels) one.pause();
      await master.kill();
      // Longer than any of the engine's own deadlines and the sentinels' time-out.
      const until = performance.now() + 6_000;
      for (let n = 20; performance.now() < until; n++) await send(n);
      expect(await health()).toBe('down');
      expect(accepted).toHaveLength(20);
      for (const one of sentinel.sentinels) one.resume();
      await waitFor(async () => (await sentinel.masterPort()) !== master.port, { timeoutMs: 20_000 });
      await waitFor(() => send(1_000).then(() => accepted.includes(1_000)), { timeoutMs: 20_000 });
      for (let n = 1_001; n < 1_020; n++) await send(n);
      await waitFor(() => accepted.every((n) => record.calls.some((call) => call.n === n)), { timeoutMs: 20_000 });
      expect(accepted.length).toBeGreaterThanOrEqual(40);
      await waitFor(async () => (await health()) === 'up');
      expect(record.overlaps).toEqual([]);
    } finally {
      await instance.close();
    }
  }, 90_000);
});
