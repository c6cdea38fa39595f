import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { holdNext } from '../support/hold-next.js';
import { onEachKind } from '../support/on-each-kind.js';
import { lettersOf, startRejecting } from '../support/rejecting-handler.js';
import { uniqueName } from '../support/unique-name.js';

onEachKind('an import of dead letters', (redis) => {
  afterEach(() => jest.restoreAllMocks());

  it('makes no dead letters for a topic that is deleted meanwhile', async () => {
    const topic = uniqueName('topic');
    const rejected = await startRejecting(redis, topic, ['g'], { defaultPartitionCount: 1 });
    await rejected.instance.producer.send(topic, 'message');
    await lettersOf(rejected, topic, 1);
    const lines: string[] = [];
    for await (const line of rejected.deadLetters.export(topic)) lines.push(line);
    const { deadLetters } = (await redis.open()).runtime;
    const isImport = ([call]: readonly unknown[]): boolean =>
      (call as { script: { name: string } }).script.name === 'dlq-import';
    const { reached, go } = holdNext(Connection, 'run', isImport);
    const outcome = deadLetters.import(topic, lines).catch((error: unknown) => error);
    await reached;
    await rejected.instance.runtime.admin.deleteTopic(topic);
    go();
    expect(await outcome).toMatchObject({
      code: 'MQ_PARTITION_MISSING',
      context: { topic, partition: 0, imported: 0, present: 0 },
    });
    const { dlq, imports, stream } = redis.keys.partition(topic, 0);
    expect(await Promise.all([dlq, imports, stream].map((key) => redis.client.exists(key)))).toEqual([0, 0, 0]);
  });
});
