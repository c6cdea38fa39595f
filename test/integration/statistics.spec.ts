import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import type { PartitionRef } from '../../libs/redis-streams-mq/src/core/events.js';
import type { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { replyCode } from '../../libs/redis-streams-mq/src/redis/redis-errors.js';
import { Spread } from '../../libs/redis-streams-mq/src/redis/spread.js';
import { Statistics } from '../../libs/redis-streams-mq/src/redis/statistics.js';
import { describeWithServer, startRedis, type TestRedis } from '../support/redis-server.js';
import { connect } from './scripts/place.js';

const keys = new Keys('streaming:mq', 'stream:topic');

describeWithServer('statistics of many places in one call', () => {
  let server: TestRedis;
  const connections: Connection[] = [];

  beforeAll(async () => {
    server = await startRedis();
  });
  afterEach(() => connections.splice(0).forEach((connection) => connection.destroy()));
  afterAll(() => server?.stop());

  async function connected(url: string): Promise<Connection> {
    const connection = await connect(url);
    connections.push(connection);
    return connection;
  }
  const partitions = (topic: string, count: number): PartitionRef[] =>
    Array.from({ length: count }, (_, partition) => ({ topic, partition }));

  it('are the same as one by one, in the order of the places, whatever their number', async () => {
    const connection = await connected(server.url);
    const refs = partitions('orders', 120);
    for (const { topic, partition } of refs) {
      for (let i = 0; i <= partition; i++) await connection.send('XADD', keys.stream(topic, partition), '*', 'n', '1');
    }
    const together = await new Statistics(new Spread(connection, false), keys).ofPartitions(refs);
    const apart = await new Statistics(new Spread(connection, true), keys).ofPartitions(refs);
    expect(together.map((outcome) => outcome.ok && outcome.value.length)).toEqual(refs.map((_, i) => i + 1));
    const now = expect.any(Number) as number;
    expect(together).toEqual(
      apart.map((outcome) => (outcome.ok ? { ok: true, value: { ...outcome.value, now } } : outcome)),
    );
  });

  it('of a place that the user may not touch are an error, and of the others what they are', async () => {
    const admin = await connected(server.url);
    await admin.send('ACL', 'SETUSER', 'few', 'on', '>secret', '+@all', '~*{orders:*');
    const connection = await connected(server.url.replace('redis://', 'redis://few:secret@'));
    const refs = [...partitions('orders', 3), ...partitions('users', 2), ...partitions('orders', 1)];
    const statistics = new Statistics(new Spread(connection, false), keys);
    const codes = (outcomes: Awaited<ReturnType<typeof statistics.ofPartitions>>): string[] =>
      outcomes.map((outcome) => (outcome.ok ? 'ok' : replyCode(outcome.error)));
    const expected = ['ok', 'ok', 'ok', 'NOPERM', 'NOPERM', 'ok'];
    expect(codes(await statistics.ofPartitions(refs))).toEqual(expected);
  });

  it('of a place where a command is refused are an error, and of the others what they are', async () => {
    const admin = await connected(server.url);
    await admin.send('XADD', keys.stream('orders', 1), '*', 'n', '1');
    await admin.send('XGROUP', 'CREATE', keys.stream('orders', 1), 'g', '0', 'MKSTREAM');
    await admin.send('ACL', 'SETUSER', 'less', 'on', '>secret', '+@all', '~*', '-xinfo');
    const connection = await connected(server.url.replace('redis://', 'redis://less:secret@'));
    const outcomes = await new Statistics(new Spread(connection, false), keys).ofPartitions([
      { topic: 'nothing', partition: 0 },
      { topic: 'orders', partition: 1 },
      { topic: 'nothing', partition: 1 },
    ]);
    expect(outcomes.map((outcome) => (outcome.ok ? 'ok' : replyCode(outcome.error)))).toEqual(['ok', 'NOPERM', 'ok']);
  });
});
