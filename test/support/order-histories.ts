import type { StreamHandlerOptions } from '../../libs/redis-streams-mq/src/core/handler-options.js';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import { between, pick, randomOf } from '../torture/random.js';
import type { TestHandler, TestInstance } from './engine.js';
import type { MqFixture } from './mq-fixture.js';
import { uniqueName } from './unique-name.js';
import { waitFor } from './wait-for.js';

const MAX_ATTEMPTS = 4;
const MESSAGES = 24;
const group = 'g';

/** What was found in some histories; empty is right. `tried` says that what is to be survived has happened. */
export interface Findings {
  readonly disorder: string[];
  readonly lost: string[];
  readonly tried: { failures: number; deaths: number; handOvers: number };
}

/**
 * One topic of one partition, whose handler fails as its seed says. What was sent before in a key must have been handled
 * with success, or for the last time, when a message of that key is started; repeats after a death may follow.
 */
class History {
  readonly topic: string = uniqueName('topic');
  readonly done = new Set<number>();
  private readonly keyOf: readonly string[];

  constructor(
    readonly seed: number,
    private readonly findings: Findings,
  ) {
    const random = randomOf(`keys ${seed}`);
    this.keyOf = Array.from({ length: MESSAGES }, () => pick(random, ['a', 'b', 'c']));
  }

  async send({ producer }: TestInstance): Promise<void> {
    await producer.sendBatch(
      this.topic,
      this.keyOf.map((key, n) => ({ payload: { n }, key })),
    );
  }

  handler(options: StreamHandlerOptions): TestHandler {
    return { topic: this.topic, group, options, handle: (message) => this.handle(message) };
  }

  get isOver(): boolean {
    return this.done.size === MESSAGES;
  }

  private async handle({ payload, context }: ReceivedMessage): Promise<void> {
    const { n } = payload as { n: number };
    const { attempt } = context;
    const open = this.keyOf.flatMap((key, m) => (m < n && key === this.keyOf[n] && !this.done.has(m) ? [m] : []));
    if (open.length > 0)
      this.findings.disorder.push(`seed ${this.seed}: ${n} (attempt ${attempt}) before ${open.join()}`);
    const random = randomOf(`handle ${this.seed} ${n} ${attempt}`);
    await sleep(between(random, 0, 4));
    if (random() < 0.25) {
      this.findings.tried.failures++;
      if (attempt >= MAX_ATTEMPTS) this.done.add(n);
      throw new Error('as the seed says');
    }
    this.done.add(n);
  }
}

/** Runs the histories of these seeds at once, with owners that die without a word and hand-overs, until all are over. */
export async function runHistories(
  mq: MqFixture,
  seeds: readonly number[],
  handlerOptions: StreamHandlerOptions,
): Promise<Findings> {
  const findings: Findings = { disorder: [], lost: [], tried: { failures: 0, deaths: 0, handOvers: 0 } };
  const histories = seeds.map((seed) => new History(seed, findings));
  const options = { ...handlerOptions, retryMaxAttempts: MAX_ATTEMPTS };
  const instances: TestInstance[] = [];
  const join = async (): Promise<TestInstance> => {
    const instance = await mq.open({
      defaultPartitionCount: 1,
      leaseTtlSeconds: 3,
      renewIntervalSec: 0.2,
      rebalanceIntervalSec: 0.3,
      consumerPollTimeoutMs: 200,
      retryBaseBackoffMs: 30,
      retryMaxBackoffMs: 120,
      workerThreads: 64,
    });
    instance.runtime.events.on('leaseReleased', () => findings.tried.handOvers++);
    instance.runtime.events.on('leaseLost', ({ topic }) => {
      findings.tried.deaths++;
      void mq.client.del(mq.keys.groupPartition(topic, 0, group).lease);
    });
    await instance.start(...histories.map((history) => history.handler(options)));
    instances.push(instance);
    return instance;
  };

  const first = await join();
  await join();
  await Promise.all(histories.map((history) => history.send(first)));
  const random = randomOf(`faults ${seeds.join()}`);
  for (let round = 0; round < 6; round++) {
    await sleep(between(random, 50, 250));
    // In the time of its last owner nothing is settled any more, and all that it had in memory is lost.
    for (const { topic } of histories.filter(() => random() < 0.3)) {
      await mq.client.set(mq.keys.groupPartition(topic, 0, group).lease, 'someone#1', 'PX', 1_000, 'XX');
    }
    if (round === 2) await join();
    if (round === 4) await instances.pop()!.close();
  }
  await waitFor(() => histories.every((history) => history.isOver), { timeoutMs: 60_000 }).catch(() => undefined);
  for (const history of histories) {
    if (!history.isOver) findings.lost.push(`seed ${history.seed}: ${MESSAGES - history.done.size} messages`);
  }
  await waitFor(async () => (await leftovers(mq, histories)).length === 0, { timeoutMs: 30_000 }).catch(
    () => undefined,
  );
  findings.lost.push(...(await leftovers(mq, histories)));
  await Promise.all(instances.map((instance) => instance.close()));
  return findings;
}

/** What is still pending, noted, or in a bucket when everything has been handled. */
async function leftovers(mq: MqFixture, histories: readonly History[]): Promise<string[]> {
  const found = await Promise.all(
    histories.map(async ({ topic, seed }) => {
      const keys = mq.keys.groupPartition(topic, 0, group);
      const [[pending], held, bucket] = await Promise.all([
        mq.client.xpending(keys.stream, group) as Promise<[number]>,
        mq.client.hlen(keys.held),
        mq.client.zcard(keys.retry),
      ]);
      return pending + held + bucket > 0
        ? [`seed ${seed}: ${pending} pending, ${held} noted, ${bucket} to be retried`]
        : [];
    }),
  );
  return found.flat();
}
