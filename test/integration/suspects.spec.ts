import { useMq, record } from '../support/mq-fixture.js';
import { uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const LATE_MS = 400;

describe('an entry on which the owner before may have died', () => {
  const mq = useMq();

  it('is not begun by an owner that gives up its partition while it notes that', async () => {
    const topic = uniqueName('topic');
    const group = 'g';
    const { producer, runtime } = await mq.open();
    await runtime.admin.createTopic(topic, { partitionCount: 1 });
    await producer.send(topic, 1);
    const { stream, crash } = mq.keys.groupPartition(topic, 0, group);
    await mq.client.xgroup('CREATE', stream, group, '0');
    await mq.client.xreadgroup('GROUP', group, 'a dead one', 'STREAMS', stream, '>');

    const proxy = await mq.proxy();
    const owner = await mq.open({ redis: proxy.url });
    const acquired = record(owner, 'leaseAcquired');
    owner.runtime.events.on('leaseAcquired', () => proxy.delayReplies(LATE_MS));
    let calls = 0;
    await owner.start({ topic, group, handle: () => void calls++ });
    await waitFor(async () => (await mq.client.hlen(crash)) === 1);
    await owner.close();

    expect(acquired).toEqual([expect.objectContaining({ clean: false })]);
    expect(calls).toBe(0);
    expect(await mq.client.xpending(stream, group)).toEqual([
      1,
      expect.anything(),
      expect.anything(),
      expect.anything(),
    ]);
  });
});
