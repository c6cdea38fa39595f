import { performance } from 'node:perf_hooks';
import { uniqueName } from '../support/redis-server.js';
import { useMq } from '../support/mq-fixture.js';
import { deferred, waitFor } from '../support/wait-for.js';

const PARTITIONS = 8;
const PER_PARTITION = 60;
const HANDLER_MS = 4;

/** As a handler that computes does: nothing else of this process runs meanwhile. */
function compute(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

describe('handlers that compute and wait for nothing', () => {
  const mq = useMq();

  it('go one partition after the other, and not a message of each in turn', async () => {
    const topic = uniqueName('topic');
    const { producer, runtime } = await mq.open();
    await runtime.admin.createTopic(topic, { partitionCount: PARTITIONS });
    const messages = Array.from({ length: PARTITIONS * 400 }, (_, n) => ({ payload: n, partition: n % PARTITIONS }));
    await producer.sendBatch(topic, messages);
    const order: number[] = [];
    const consumer = await mq.open();
    await consumer.start({ topic, group: 'g', handle: async ({ context }) => order.push(context.partition) });
    await waitFor(() => order.length === messages.length, { timeoutMs: 30_000 });
    const changes = order.filter((partition, i) => i > 0 && partition !== order[i - 1]).length;
    expect(changes).toBeLessThan(messages.length / 4);
  });

  it('hold up no handler that waits, nor does one that waits hold up another', async () => {
    const topic = uniqueName('topic');
    const { producer, runtime } = await mq.open();
    await runtime.admin.createTopic(topic, { partitionCount: PARTITIONS });
    let waiting = 0;
    const gate = deferred<void>();
    const consumer = await mq.open();
    await consumer.start({
      topic,
      group: 'g',
      handle: async ({ payload }) => {
        if (payload !== 'waits') return;
        waiting++;
        await gate.promise;
      },
    });
    const toEach = (payload: string) =>
      producer.sendBatch(
        topic,
        Array.from({ length: PARTITIONS }, (_, partition) => ({ payload, partition })),
      );
    for (let i = 0; i < 20; i++) await toEach('waits for nothing');
    await toEach('waits');
    await waitFor(() => waiting === PARTITIONS);
    gate.resolve();
  });

  it('let timers and sockets have their turn between messages', async () => {
    const topic = uniqueName('topic');
    const { producer, runtime } = await mq.open();
    await runtime.admin.createTopic(topic, { partitionCount: PARTITIONS });
    const messages = Array.from({ length: PARTITIONS * PER_PARTITION }, (_, n) => ({
      payload: n,
      partition: n % PARTITIONS,
    }));
    await producer.sendBatch(topic, messages);
    let handled = 0;
    let inThisTurn = 0;
    let mostInOneTurn = 0;
    const consumer = await mq.open();
    await consumer.start({
      topic,
      group: 'g',
      handle: async () => {
        compute(HANDLER_MS);
        handled++;
        mostInOneTurn = Math.max(mostInOneTurn, ++inThisTurn);
      },
    });
    const ticks = setInterval(() => (inThisTurn = 0), 1);
    await waitFor(() => handled === messages.length, { timeoutMs: 30_000 });
    clearInterval(ticks);
    expect(mostInOneTurn).toBeLessThan(20);
  });
});
