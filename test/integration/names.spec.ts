import { Registry } from 'prom-client';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { Keys } from '../../libs/redis-streams-mq/src/core/keys.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import { startCluster, type TestCluster } from '../support/cluster.js';
import { TestInstance } from '../support/engine.js';
import { useMq } from '../support/mq-fixture.js';
import { describeWithServer, uniqueName } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

/** Legal, and as near to each other and to parts of our own keys as can be. */
const TOPICS = (
  'A a aa a.b a-b a_b - _ ... .a 0 p a.p.0 p.0 dlq retry items lease meta partitions delayed ' +
  '__proto__ constructor orders orders-dlq orders.retry ' +
  'x'.repeat(249)
).split(' ');
const GROUPS = ['g', 'G', 'dlq', '__proto__'];
const ILLEGAL = [
  '',
  ' ',
  'a b',
  'a:b',
  'a}b',
  '{a}',
  '{}',
  '}',
  'a\nb',
  '*',
  '[a]',
  'a?b',
  '../x',
  'a/b',
  'é😀',
  'a#b',
];
const ILLEGAL_TOO = ['.', '..', 'x'.repeat(250), '\ud83d'];

interface Seen {
  readonly topic: string;
  readonly group: string;
  readonly payload: unknown;
}

/** A message to each topic, which each group fails once, and rejects when it is called `dead`. */
async function run(instance: TestInstance, topics: readonly string[], groups: readonly string[]): Promise<Seen[]> {
  const seen: Seen[] = [];
  const handle =
    (topic: string, group: string) =>
    ({ payload, context }: ReceivedMessage): void => {
      expect(context).toMatchObject({ topic, group, key: topic });
      if (context.attempt === 1) throw new Error('once');
      seen.push({ topic, group, payload });
      if (group === 'dlq') throw new DeadLetter('look at it');
    };
  await instance.start(
    ...topics.flatMap((topic) => groups.map((group) => ({ topic, group, handle: handle(topic, group) }))),
  );
  for (const topic of topics) await instance.producer.send(topic, `to ${topic}`, { key: topic });
  const expected = topics.length * groups.length;
  await waitFor(() => seen.length === expected, { timeoutMs: 20_000, describe: `${expected} calls` });
  return seen;
}

const sorted = (seen: readonly Seen[]): string[] => seen.map((one) => JSON.stringify(one)).toSorted();
const expected = (topics: readonly string[], groups: readonly string[]): string[] =>
  sorted(topics.flatMap((topic) => groups.map((group) => ({ topic, group, payload: `to ${topic}` }))));

describe('names that are legal', () => {
  const mq = useMq();

  it('DATA-07 DATA-08 never share a key, a message, a dead letter or a series, whatever they look like', async () => {
    const registry = new Registry();
    const instance = await mq.open({ defaultPartitionCount: 1 }, { registry });
    const { deadLetters, admin } = instance.runtime;
    expect(sorted(await run(instance, TOPICS, GROUPS))).toEqual(expected(TOPICS, GROUPS));
    await waitFor(async () =>
      (await Promise.all(TOPICS.map((topic) => deadLetters.size(topic)))).every((n) => n === 1),
    );
    for (const topic of TOPICS) {
      const { items } = await deadLetters.list(topic);
      expect(items.map((item) => [item.topic, item.group, item.payload!.toString()])).toEqual([
        [topic, 'dlq', JSON.stringify(`to ${topic}`)],
      ]);
      expect((await admin.describeTopic(topic)).partitions).toEqual([expect.objectContaining({ length: 1 })]);
    }
    expect((await admin.listTopics()).items.map((item) => item.topic).toSorted()).toEqual(TOPICS.toSorted());
    const scrape = await registry.metrics();
    for (const topic of TOPICS) {
      const line = new RegExp(
        `^redis_streaming_mq_produced_total\\{[^}]*topic="${topic.replaceAll('.', '\\.')}"[^}]*\\} 1$`,
        'm',
      );
      expect([topic, line.test(scrape)]).toEqual([topic, true]);
    }
  });

  it.each([...ILLEGAL, ...ILLEGAL_TOO])(
    'DATA-07 %j is refused with the rule wherever a topic is named',
    async (name) => {
      const instance = await mq.open();
      const { admin, deadLetters } = instance.runtime;
      const calls = [
        () => admin.createTopic(name),
        () => admin.topicExists(name),
        () => admin.describeTopic(name),
        () => deadLetters.list(name),
        () => deadLetters.size(name),
        () => deadLetters.replayAll(name),
        () => instance.producer.send(name, 1),
      ];
      for (const attempt of calls) {
        await expect(attempt).rejects.toMatchObject({ code: 'MQ_INVALID_NAME' });
      }
      expect((await admin.listTopics()).items.map((item) => item.topic)).not.toContain(name);
    },
  );
});

describeWithServer('names on Redis Cluster', () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await startCluster({ masters: 3 });
  });
  afterAll(() => cluster.stop());

  it('DATA-07 keep what belongs to a partition in one slot, and work', async () => {
    const prefixes = { keyPrefix: uniqueName('mq'), streamKeyPrefix: uniqueName('data') };
    const instance = await TestInstance.open({
      redis: { cluster: { nodes: cluster.startupNodes } },
      defaultPartitionCount: 1,
      ...prefixes,
    });
    const topics = ['A', 'a', 'a.p.0', '-', '...', 'dlq', 'x'.repeat(249)];
    const groups = ['g', 'dlq', 'y'.repeat(249)];
    try {
      expect(sorted(await run(instance, topics, groups))).toEqual(expected(topics, groups));
      await waitFor(async () =>
        (await Promise.all(topics.map((topic) => instance.runtime.deadLetters.size(topic)))).every((n) => n === 1),
      );
    } finally {
      await instance.close();
    }
    const keys = new Keys(prefixes.keyPrefix, prefixes.streamKeyPrefix);
    const raw = cluster.client();
    for (const topic of topics) {
      for (const group of groups) {
        const all = Object.values(keys.groupPartition(topic, 0, group)) as string[];
        const slots = await Promise.all(all.map((key) => raw.cluster('KEYSLOT', key)));
        expect(new Set(slots).size).toBe(1);
      }
    }
  });
});
