import { Queue, Worker } from 'bullmq';
import type { Payload } from '../payloads.js';
import type { Contender, ContenderContext } from './contender.js';
import { redisAddress } from './contender.js';

/** The best of those that the scenario `bullmq-concurrency` compares. */
const BEST_CONCURRENCY = 100;

/** BullMQ by its own API. Finished jobs are removed at once, which is its fastest. It has no partitions and no groups. */
export const makeBullmq = (context: ContenderContext): Contender => {
  const connection = redisAddress(context);
  const concurrency = (context.settings.concurrency as number | undefined) ?? BEST_CONCURRENCY;
  return {
    create: async () => undefined,
    async producer({ name }) {
      const queue = new Queue<Payload>(name, {
        connection,
        defaultJobOptions: { removeOnComplete: true, removeOnFail: false },
      });
      await queue.waitUntilReady();
      const options = {
        attempts: 2,
        backoff: { type: 'fixed', delay: (context.settings.retryDelayMs as number | undefined) ?? 0 },
      };
      const jobOptions = context.settings.retries === true ? options : {};
      return {
        send: ({ payload }) => queue.add('job', payload, jobOptions),
        sendBatch: (messages) =>
          queue.addBulk(messages.map(({ payload }) => ({ name: 'job', data: payload, opts: jobOptions }))),
        sendLater: ({ payload }, delay) => queue.add('job', payload, { ...jobOptions, delay }),
        close: () => queue.close(),
      };
    },
    async consume({ name }, handle) {
      const worker = new Worker<Payload>(name, async (job) => handle(job.data, job.attemptsMade + 1), {
        connection,
        concurrency,
      });
      worker.on('error', () => undefined);
      await worker.waitUntilReady();
      return { close: () => worker.close() };
    },
    remove: async () => undefined,
  };
};
