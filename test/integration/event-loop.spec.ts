import { performance } from 'node:perf_hooks';
import { uniqueName } from '../support/redis-server.js';
import { useMq } from '../support/mq-fixture.js';
import { waitFor } from '../support/wait-for.js';

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
