import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { holdNext } from '../support/hold-next.js';
import { onEachKind } from '../support/on-each-kind.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

onEachKind('the replay of a range', (redis) => {
  const group = 'g';
  let topic: string;
  beforeEach(() => (topic = uniqueName('topic')));
  afterEach(() => jest.restoreAllMocks());

  it('hands nothing to a group that is deleted meanwhile', async () => {
    const [instance, other] = [await redis.open({ defaultPartitionCount: 1 }), await redis.open()];
    let handled = 0;
    await instance.start({ topic, group, handle: () => void handled++ });
    for (let n = 0; n < 3; n++) await instance.producer.send(topic, { n });
    await waitFor(() => handled === 3);
    await instance.close();
    const { admin } = other.runtime;
    const isReplay = ([call]: readonly unknown[]): boolean =>
      (call as { script: { name: string } }).script.name === 'replay-range';
    const { reached, go } = holdNext(Connection, 'run', isReplay);
    const outcome = admin.replayRange(topic, group).catch((error: unknown) => error);
    await reached;
    await admin.deleteGroup(group, { topic });
    go();
    expect(await outcome).toMatchObject({
      code: 'MQ_GROUP_NOT_FOUND',
      context: { topic, group, report: { replayed: 0, complete: false } },
    });
    const { retry, retryItems } = redis.keys.groupPartition(topic, 0, group);
    expect([await redis.client.exists(retry), await redis.client.exists(retryItems)]).toEqual([0, 0]);
  });

  it('brings a message that waits for a retry at once, with its attempts reset and what it has been through', async () => {
    const options = { defaultPartitionCount: 1, retryBaseBackoffMs: 600_000, retryMaxBackoffMs: 600_000 };
    const instance = await redis.open({ ...options, retryMaxAttempts: 2 });
    const attempts: number[] = [];
    await instance.start({
      topic,
      group,
      handle: ({ context }) => {
        attempts.push(context.attempt);
        throw new Error(`failure ${attempts.length}`);
      },
    });
    await instance.producer.send(topic, 'message');
    const { retry } = redis.keys.groupPartition(topic, 0, group);
    const { admin, deadLetters } = instance.runtime;
    for (const failures of [1, 2]) {
      await waitFor(async () => attempts.length === failures && (await redis.client.zcard(retry)) === 1);
      expect(await admin.replayRange(topic, group)).toMatchObject({ replayed: 1 });
    }
    await waitFor(async () => attempts.length === 3 && (await redis.client.zcard(retry)) === 1);
    expect(attempts).toEqual([1, 1, 1]);
    await redis.client.zadd(retry, 'XX', 1, (await redis.client.zrange(retry, '0', '0'))[0]!);
    await waitFor(async () => (await deadLetters.size(topic)) === 1, { timeoutMs: 15_000 });
    const [letter] = (await deadLetters.list(topic)).items;
    expect(letter!.failures.map(({ attempt, error }) => [attempt, error])).toEqual(
      [1, 1, 1, 2].map((attempt, i) => [attempt, expect.stringContaining(`failure ${i + 1}`)]),
    );
  });
});
