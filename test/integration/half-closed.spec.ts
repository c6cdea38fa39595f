import type { Redis } from 'ioredis';
import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { deferred, waitFor } from '../support/wait-for.js';

const BREAKS_MS = 500;

describe('a connection that breaks while a partition is given up', () => {
  const mq = useMq();

  it('is waited for: what was handled is settled before the next owner comes', async () => {
    const topic = uniqueName('topic');
    const group = 'g';
    const runs = jest.spyOn(Connection.prototype, 'runAll');
    const owner = await mq.open({ defaultPartitionCount: 1, ackFlushMs: 1_000, consumerPollTimeoutMs: 50 });
    const go = deferred();
    let calls = 0;
    const handle = async (): Promise<void> => {
      if (++calls === 2) await go.promise;
    };
    await owner.start({ topic, group, handle });
    await owner.producer.send(topic, 1);
    await waitFor(() => calls === 1);
    await owner.producer.send(topic, 2);
    await waitFor(() => calls === 2);
    await waitFor(() => runs.mock.contexts.some((connection) => (connection as Connection).name === 'command'));
    const command = runs.mock.contexts.find(
      (connection) => (connection as Connection).name === 'command',
    ) as Connection;
    runs.mockRestore();

    const { stream } = command.client as Redis;
    go.resolve();
    // As while a connection breaks: nothing can be written any more, and ioredis has not noticed yet.
    Object.defineProperty(stream, 'writable', { value: false });
    const broken = setTimeout(() => stream.destroy(), BREAKS_MS);
    const closing = owner.close();
    expect(command.isReady).toBe(true);
    await closing;
    clearTimeout(broken);
    expect((await mq.client.xpending(mq.keys.stream(topic, 0), group))[0]).toBe(0);
  });
});
