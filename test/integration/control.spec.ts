import { RetryLater } from '../../libs/redis-streams-mq/src/core/results.js';
import { record, useMq } from '../support/mq-fixture.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();

describe('retry', () => {
  it('waits as its back-off says, by attempt and error, and RetryLater goes before it', async () => {
    const topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const retried = record(instance, 'retried');
    const asked: unknown[] = [];
    const attempts: number[] = [];
    const backoff = (attempt: number, error: unknown): number => {
      asked.push([attempt, (error as Error).message]);
      return attempt * 10;
    };
    await instance.start({
      topic,
      group: 'g',
      options: { retry: { backoff } },
      handle: ({ context: { attempt } }) => {
        attempts.push(attempt);
        if (attempt === 2) throw new RetryLater(7);
        if (attempt < 4) throw new Error(`call ${attempt}`);
      },
    });
    await instance.producer.send(topic, 1);
    await waitFor(() => attempts.length === 4);
    expect(retried.map(({ delayMs }) => delayMs)).toEqual([10, 7, 30]);
    expect(asked).toEqual([
      [1, 'call 1'],
      [3, 'call 3'],
    ]);
  });

  it('does not happen when retryIf says that it makes no sense; everything else is retried', async () => {
    const topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const calls: string[] = [];
    await instance.start({
      topic,
      group: 'g',
      options: { retry: { maxAttempts: 2, retryIf: (error) => (error as Error).message !== 'hopeless' } },
      handle: ({ payload }) => {
        calls.push(payload as string);
        throw new Error(payload as string);
      },
    });
    for (const text of ['hopeless', 'passing']) await instance.producer.send(topic, text);
    const letters = await waitFor(async () => {
      const { items } = await instance.runtime.deadLetters.list(topic);
      return items.length === 2 && items;
    });
    expect(letters.map(({ reason, attempts, error }) => `${error?.message} ${reason} ${attempts}`).toSorted()).toEqual([
      'hopeless rejected 1',
      'passing exhausted 2',
    ]);
    expect(calls.toSorted()).toEqual(['hopeless', 'passing', 'passing']);
  });

  it('loses nothing when its callbacks throw: the message is retried as without them, and a fault is reported', async () => {
    const topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const faults = record(instance, 'fault');
    const calls: number[] = [];
    const broken = (): never => {
      throw new Error('broken callback');
    };
    await instance.start({
      topic,
      group: 'g',
      options: { retry: { backoff: broken, retryIf: broken } },
      handle: ({ context: { attempt } }) => {
        calls.push(attempt);
        if (attempt === 1) throw new Error('once');
      },
    });
    await instance.producer.send(topic, 1);
    await waitFor(() => calls.length === 2);
    expect(calls).toEqual([1, 2]);
    expect(faults).toEqual([
      expect.objectContaining({ component: `retry:Test.${topic}.g` }),
      expect.objectContaining({ component: `retry:Test.${topic}.g` }),
    ]);
  });
});

describe('expiry', () => {
  it('makes a dead letter of what has waited longer than the handler accepts, retries included', async () => {
    const topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const { producer, deadLetters } = instance.runtime;
    const old = await producer.send(topic, 'old');
    await waitFor(() => Date.now() > Number(old.id!.split('-')[0]) + 1_200);
    const calls: string[] = [];
    await instance.start({
      topic,
      group: 'g',
      options: { ttlMs: 1_000, retry: { maxAttempts: 1_000, backoff: () => 20 } },
      handle: ({ payload }) => {
        calls.push(payload as string);
        throw new Error('not yet');
      },
    });
    await waitFor(async () => (await deadLetters.size(topic)) === 1);
    expect(calls).toEqual([]);
    await producer.send(topic, 'young');
    await waitFor(async () => (await deadLetters.size(topic)) === 2);
    expect(calls.length).toBeGreaterThan(1);
    const { items } = await deadLetters.list(topic);
    expect(items.map(({ reason }) => reason)).toEqual(['expired', 'expired']);
  });
});

describe('a rate limit', () => {
  it('holds over partitions and topics of the handler, takes no slot while it waits, and loses nothing', async () => {
    const [limited, free] = [uniqueName('limited'), uniqueName('free')];
    // One slot: whoever kept it while waiting would stop the other handler.
    const instance = await mq.open({
      workerThreads: 1,
      defaultPartitionCount: 4,
      leaseTtlSeconds: 1,
      renewIntervalSec: 0.2,
      consumerPollTimeoutMs: 100,
    });
    const lost = record(instance, 'leaseLost');
    const starts: number[] = [];
    let others = 0;
    await instance.start(
      {
        topic: limited,
        group: 'g',
        options: { rateLimit: { count: 3, perMs: 400 } },
        handle: () => void starts.push(performance.now()),
      },
      { topic: free, group: 'g', handle: () => void others++ },
    );
    const messages = Array.from({ length: 15 }, (_, n) => ({ payload: n }));
    await instance.producer.sendBatch(limited, messages);
    await waitFor(() => starts.length >= 3);
    await instance.producer.sendBatch(free, messages);
    await waitFor(() => others === 15);
    expect(starts.length).toBeLessThan(15);
    await waitFor(() => starts.length === 15);
    for (let i = 3; i < starts.length; i++) expect(starts[i]! - starts[i - 3]!).toBeGreaterThan(350);
    expect(lost).toEqual([]);
  });

  it('does not keep an instance from stopping and handing on what waits', async () => {
    const topic = uniqueName('topic');
    const handled: unknown[] = [];
    const handler = (options = {}) => ({
      topic,
      group: 'g',
      options,
      handle: (message: { payload: unknown }) => void handled.push(message.payload),
    });
    const slow = await mq.open({ defaultPartitionCount: 1 });
    await slow.start(handler({ rateLimit: { count: 1, perMs: 3_600_000 } }));
    for (const n of [1, 2, 3]) await slow.producer.send(topic, n);
    await waitFor(() => handled.length === 1);
    await slow.close();
    const next = await mq.open();
    await next.start(handler());
    await waitFor(() => handled.length === 3);
    expect(handled).toEqual([1, 2, 3]);
  });
});

describe('headers', () => {
  it('that begin with x- pass as they are through retry, dead letter and replay', async () => {
    const topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const { producer, deadLetters } = instance.runtime;
    const headers = { 'x-request-id': 'r-1', 'X-Tenant': 'acme', 'x-': '' };
    const seen: unknown[] = [];
    await instance.start({
      topic,
      group: 'g',
      options: { retry: { maxAttempts: 2 } },
      handle: ({ context }) => {
        seen.push({ ...context.headers });
        if (seen.length < 3) throw new Error('no');
      },
    });
    await producer.send(topic, 1, { headers });
    await waitFor(async () => (await deadLetters.size(topic)) === 1);
    const { items } = await deadLetters.list(topic);
    expect({ ...items[0]!.headers }).toEqual(headers);
    await deadLetters.replayAll(topic);
    await waitFor(() => seen.length === 3);
    expect(seen).toEqual([headers, headers, headers]);
  });
});

describe('the context', () => {
  it('has all fields of the entry as bytes, foreign ones included', async () => {
    const topic = uniqueName('topic');
    const instance = await mq.open({ defaultPartitionCount: 1 });
    const seen: (readonly [string, string][])[] = [];
    await instance.start({
      topic,
      group: 'g',
      handle: ({ context: { rawFields, attempt } }) => {
        seen.push(Object.entries(rawFields).map(([name, bytes]) => [name, bytes.toString('latin1')]));
        if (attempt === 1) throw new Error('once');
      },
    });
    await waitFor(() => mq.client.exists(mq.keys.stream(topic, 0)));
    const fields = ['payload', '1', 'eventId', 'AZC19H4qfD2bHgEjRWeJqw', 'trace', 'abc'];
    await mq.client.xadd(mq.keys.stream(topic, 0), '*', ...fields);
    await waitFor(() => seen.length === 2);
    const expected = [['payload', '1'], ['eventId', 'AZC19H4qfD2bHgEjRWeJqw'], ['trace', 'abc']]; // prettier-ignore
    expect(seen).toEqual([expected, expected]);
  });
});
