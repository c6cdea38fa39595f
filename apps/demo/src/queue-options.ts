/**
 * The options of the queue, the same in every process of a run. The prefixes carry the run's id, so that a run never
 * meets what another one left behind; an application keeps the default prefixes.
 */
export function queueOptions(runId: string) {
  return {
    redis: process.env['REDIS_URL'] ?? '',
    keyPrefix: `streaming:mq:demo-${runId}`,
    streamKeyPrefix: `stream:topic:demo-${runId}`,
    defaultPartitionCount: 4,
    // Short, so that the demo takes seconds. The defaults are 1 s, doubled up to 60 s.
    retryBaseBackoffMs: 50,
    retryMaxBackoffMs: 200,
    // Long, so that an outage of Redis which somebody makes meanwhile fails no send. The default is 10 s.
    sendTimeoutMs: 60_000,
    // Short, so that the figures of a run of seconds are fresh. The default is 15 s.
    metricsIntervalSec: 1,
  };
}

export type QueueOptions = ReturnType<typeof queueOptions>;
