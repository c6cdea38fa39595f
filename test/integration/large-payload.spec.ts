import { EventLog } from '../support/event-log.js';
import { HandlingRecord } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { describeWithServer, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const MB = 1_048_576;
const numbers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describeWithServer('CONN-08 a payload that is too large', () => {
  const mq = useMq({ args: ['--proto-max-bulk-len', `${MB}`] });

  it('is refused before it is sent, at once, with its size and the limit', async () => {
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const log = EventLog.of(instance.runtime.events, 'connection', 'fault');
    for (const size of [2 * MB, 64 * MB]) {
      const big = 'x'.repeat(size);
      const since = performance.now();
      await expect(instance.producer.send('orders', big)).rejects.toMatchObject({
        code: 'MQ_PAYLOAD_TOO_LARGE',
        message: expect.stringContaining(`${MB}`) as string,
      });
      expect(performance.now() - since).toBeLessThan(6_000);
    }
    expect([log.count('fault'), log.all('connection').filter(({ state }) => state !== 'ready').length]).toEqual([0, 0]);
  });

  it('for the server rejects alone and soon, and its neighbours are stored once, with no lease lost', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const instance = await mq.open({ defaultPartitionCount: 2, maxPayloadBytes: 8 * MB, sendTimeoutMs: 5_000 });
    const log = EventLog.of(instance.runtime.events, 'leaseAcquired', 'leaseLost', 'connection');
    await instance.start({ topic, group: 'g', handle: record.handler('owner') });
    await waitFor(() => log.count('leaseAcquired') === 2);
    const small = (n: number): Promise<unknown> => instance.producer.send(topic, { n }, { key: `key-${n}` });
    const since = performance.now();
    const before = numbers(0, 49).map(small);
    const big = instance.producer.send(topic, 'x'.repeat(2 * MB), { key: 'key-0' });
    const after = numbers(50, 99).map(small);
    const outcome = await big.then(
      () => ({ code: 'none' }),
      (error: { code: string }) => error,
    );
    expect(outcome).toMatchObject({ code: expect.stringMatching(/^MQ_(SEND|PAYLOAD)_/) as string });
    expect(performance.now() - since).toBeLessThan(7_000);
    await Promise.all([...before, ...after]);
    await waitFor(() => record.handled === 100);
    expect(record.repeated).toEqual([]);
    const stored = await Promise.all([0, 1].map((partition) => mq.client.xlen(mq.keys.stream(topic, partition))));
    expect(stored[0]! + stored[1]!).toBe(100);
    expect(log.count('leaseLost')).toBe(0);
    // Each is an attempt whose refusal was lost with the connection.
    const closed = log.all('connection').filter(({ state }) => state === 'closed').length;
    expect(closed).toBeLessThan(10);
  });
});
