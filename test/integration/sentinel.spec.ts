import { TestInstance } from '../support/engine.js';
import { describeWithServer } from '../support/redis-server.js';
import { startSentinel, type TestSentinel } from '../support/sentinel.js';
import { waitFor } from '../support/wait-for.js';

describeWithServer('on Sentinel', () => {
  let sentinel: TestSentinel;

  beforeAll(async () => {
    sentinel = await startSentinel();
  });
  afterAll(() => sentinel.stop());

  it('CLU-03 CONN-03 goes on at the new master after a failover, without a restart', async () => {
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
