import { call } from '../../libs/redis-streams-mq/src/redis/script.js';
import { topicCreate } from '../../libs/redis-streams-mq/src/redis/scripts/topic-create.script.js';
import { holdNext } from '../support/hold-next.js';
import { TopicRegistry } from '../../libs/redis-streams-mq/src/redis/topic-registry.js';
import { connect } from './scripts/place.js';
import type { TestInstance } from '../support/engine.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
let topic: string;
beforeEach(() => {
  topic = uniqueName('topic');
});
afterEach(() => jest.restoreAllMocks());

/** What a process leaves that dies right after it has written a topic's meta. */
async function dieWhileCreating(): Promise<void> {
  const streams = [0, 1].map((partition) => mq.keys.stream(topic, partition));
  const connection = await connect(mq.redis.url);
  await connection.run(call(topicCreate, mq.keys.topic(topic), { count: 2, incarnation: 'inc', anew: 0 }, streams));
  connection.destroy();
}

const isListed = async (): Promise<boolean> => (await mq.client.sismember(mq.keys.topics, topic)) === 1;

describe('a topic whose creation broke off before it was registered', () => {
  it.each<[string, (instance: TestInstance) => Promise<unknown>]>([
    ['a handler of it starts', (instance) => instance.start({ topic, group: 'g', handle: () => undefined })],
    ['something is sent to it', (instance) => instance.producer.send(topic, { n: 1 })],
    ['it is created again', (instance) => instance.runtime.admin.createTopic(topic, { partitionCount: 2 })],
  ])('is listed once %s', async (_, use) => {
    await dieWhileCreating();
    const instance = await mq.open();
    expect(await isListed()).toBe(false);
    await use(instance);
    await waitFor(isListed);
  });

  it('works though the registry cannot be written, says so, and is listed when it can', async () => {
    await dieWhileCreating();
    await mq.client.del(mq.keys.topics);
    await mq.client.set(mq.keys.topics, 'a string');
    const instance = await mq.open({ rebalanceIntervalSec: 0.2 });
    const faults = record(instance, 'fault');
    let handled = 0;
    await instance.start({ topic, group: 'g', handle: () => void handled++ });
    await instance.producer.send(topic, { n: 1 });
    await waitFor(() => handled === 1);
    await waitFor(() => faults.some(({ component }) => component === 'topic-registry'));
    await mq.client.del(mq.keys.topics);
    await waitFor(isListed);
  });
});

it('a topic that another instance deleted is made anew, also by one that still knows it', async () => {
  const [knowing, deleting] = [await mq.open({ rebalanceIntervalSec: 60 }), await mq.open()];
  const before = await knowing.runtime.admin.createTopic(topic, { partitionCount: 2 });
  await deleting.runtime.admin.deleteTopic(topic);
  const anew = await knowing.runtime.admin.createTopic(topic, { partitionCount: 3 });
  expect([anew.partitionCount, anew.incarnation === before.incarnation]).toEqual([3, false]);
  expect(await deleting.runtime.admin.topicExists(topic)).toBe(true);
});

it('streams that are made again while the topic is deleted go with it, and take no message', async () => {
  const [sending, deleting] = [await mq.open({ defaultPartitionCount: 2 }), await mq.open()];
  await sending.producer.send(topic, { n: 0 }, { partition: 0 });
  const places = [0, 1].map((partition) => mq.keys.partition(topic, partition));
  await mq.client.del(places[0]!.stream);
  const { reached, go } = holdNext(TopicRegistry, 'ensureStreams');
  const sent = sending.producer.send(topic, { n: 1 }, { partition: 0 }).catch((error: unknown) => error);
  await reached;
  await deleting.runtime.admin.deleteTopic(topic);
  go();
  expect(await sent).toMatchObject({ code: 'MQ_TOPIC_DELETED' });
  expect(await mq.client.exists(...places.flatMap(({ stream, incarnation }) => [stream, incarnation]))).toBe(0);
});
