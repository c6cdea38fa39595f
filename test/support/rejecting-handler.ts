import type { ReceivedMessage } from '../../libs/redis-streams-mq/src/core/handler.js';
import type { DeadLetter as Letter } from '../../libs/redis-streams-mq/src/core/dead-letter.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { DeadLetter } from '../../libs/redis-streams-mq/src/core/results.js';
import type { DeadLetterQueue } from '../../libs/redis-streams-mq/src/dlq/dead-letter-queue.js';
import type { TestInstance } from './engine.js';
import type { RedisKind } from './on-each-kind.js';
import { waitFor } from './wait-for.js';

export interface Rejected {
  readonly instance: TestInstance;
  readonly deadLetters: DeadLetterQueue;
  /** Every call since the start, in order. */
  readonly calls: { group: string; payload: unknown; attempt: number; message: ReceivedMessage }[];
  /** From now on the handlers take everything. */
  repair(): void;
}

/** Handlers of these groups that reject what they get, with the error that `throws` makes of it. */
export async function startRejecting(
  kind: RedisKind,
  topic: string,
  groups: readonly string[],
  options: MqOptions = {},
  throws: (message: ReceivedMessage) => Error = () => new DeadLetter('cannot'),
): Promise<Rejected> {
  const instance = await kind.open({ defaultPartitionCount: 3, retryMaxAttempts: 2, ...options });
  const calls: Rejected['calls'] = [];
  let isRepaired = false;
  await instance.start(
    ...groups.map((group) => ({
      topic,
      group,
      handle: (message: ReceivedMessage) => {
        calls.push({ group, payload: message.payload, attempt: message.context.attempt, message });
        if (!isRepaired) throw throws(message);
      },
    })),
  );
  return { instance, deadLetters: instance.runtime.deadLetters, calls, repair: () => void (isRepaired = true) };
}

/** All letters of a topic, once there are so many. */
export async function lettersOf({ deadLetters }: Rejected, topic: string, count: number): Promise<readonly Letter[]> {
  await waitFor(async () => (await deadLetters.size(topic)) === count, {
    timeoutMs: 30_000,
    describe: `${count} dead letters`,
  });
  return allPages(deadLetters, topic);
}

export async function allPages(
  deadLetters: DeadLetterQueue,
  topic: string,
  options: Parameters<DeadLetterQueue['list']>[1] = {},
): Promise<Letter[]> {
  const seen: Letter[] = [];
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page = await deadLetters.list(topic, { limit: 1_000, ...options, ...(cursor && { cursor }) });
    seen.push(...page.items);
    cursor = page.cursor;
  }
  return seen;
}
