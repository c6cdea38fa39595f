import { useMq, record } from '../support/mq-fixture.js';
import { uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const LATE_MS = 400;

describe('an entry on which the owner before may have died', () => {
  const mq = useMq();

  it('is no cause of crashes when its owners lose their leases and live on', async () => {
    const topic = uniqueName('topic');
    const group = 'g';
    const owner = await mq.open();
    const lost = record(owner, 'leaseLost');
    await owner.runtime.admin.createTopic(topic, { partitionCount: 1 });
    const calls: (() => void)[] = [];
    await owner.start({ topic, group, handle: () => new Promise<void>((resolve) => calls.push(resolve)) });
    await owner.producer.send(topic, 1);
    const { lease, crash, stream } = mq.keys.groupPartition(topic, 0, group);
    for (let turn = 1; turn <= 6; turn++) {
      await waitFor(() => calls.length === turn);
      await mq.client.del(lease);
      await waitFor(() => lost.length === turn);
      calls.at(-1)!();
    }
    await waitFor(() => calls.length === 7);
    calls.at(-1)!();
    await waitFor(async () => (await mq.client.xpending(stream, group))[0] === 0);
    expect(await owner.runtime.deadLetters.size(topic)).toBe(0);
    expect(await mq.client.exists(crash)).toBe(0);
  });

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
