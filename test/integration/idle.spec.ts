import { setTimeout as sleep } from 'node:timers/promises';
import { HandlingRecord, nowMs } from '../support/handling-record.js';
import { useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const POLL_MS = 250;
const LOOK_MS = 3_000;

describe('a group without messages', () => {
  const mq = useMq();

  it('is read less and less often, and a message is handled at once all the same', async () => {
    const topic = uniqueName('topic');
    const record = new HandlingRecord();
    const instance = await mq.open({ defaultPartitionCount: 2, consumerPollTimeoutMs: POLL_MS });
    await instance.start({ topic, group: 'g', handle: record.handler('a') });
    await instance.producer.send(topic, { n: 0 });
    await waitFor(() => record.handled === 1);
    await mq.client.config('RESETSTAT');
    await sleep(LOOK_MS);
    const reads = Number(/cmdstat_xreadgroup:calls=(\d+)/.exec(await mq.client.info('commandstats'))?.[1]);
    // After 250, 500, 1000 and 1000 ms, and a little later each; some 11 if each waited for 250 ms.
    expect(reads).toBeGreaterThan(1);
    expect(reads).toBeLessThan(7);
    const sentAt = nowMs();
    await instance.producer.send(topic, { n: 1 });
    await waitFor(() => record.handled === 2);
    expect(record.calls[1]!.startedAt - sentAt).toBeLessThan(POLL_MS);
  });
});
