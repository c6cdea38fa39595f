import type { Partitioner } from './partitioner.js';
import type { Serializer } from './serializer.js';

/** The most partitions a topic can have. A count can be raised later, never lowered, so a slip must not create millions. */
export const MAX_PARTITION_COUNT = 4096;

/** Longest time that a timer of Node can wait, in ms (about 24.8 days); a longer one would fire at once. */
export const MAX_TIMER_MS = 2_147_483_647;

/**
 * Options of one queue instance. All are optional; names, meanings and defaults are those of the Spring Boot starter
 * where it has them. An option that is `undefined` takes its default, with the exception of `redis`.
 *
 * Only own properties of the object count, as in an object spread.
 *
 * @typeParam R - what `redis` may be; the module fills it in.
 */
export interface MqOptions<R = unknown> {
  /**
   * Where Redis is: a URL, ioredis options, a cluster description or a client of yours. A client of yours is never closed
   * and never used for blocking reads. Without the key it is `localhost:6379`.
   *
   * The key present with the value `undefined`, `null` or an empty text is an error: a variable that was forgotten must
   * not lead to localhost.
   * @defaultValue localhost, when the key is absent
   */
  readonly redis?: R;

  /**
   * `false` switches the queue off: no handler starts, and `send()` rejects with the code `MQ_DISABLED`.
   * @defaultValue true
   */
  readonly enabled?: boolean;

  /**
   * `false` for processes that only produce: handlers are not started with the application.
   * @defaultValue true
   */
  readonly autoStart?: boolean;

  /**
   * Start of every control key (leases, members, retries). All instances that belong together need the same. May not
   * contain braces, which are the hash tag in Redis Cluster.
   *
   * Hazard: with another prefix the queue finds none of the topics, groups and retries of the former one.
   * @defaultValue 'streaming:mq'
   */
  readonly keyPrefix?: string;

  /**
   * Start of every key that holds messages (streams, retries that are due, dead letters). The same rules as for
   * `keyPrefix`, and the two must differ.
   * @defaultValue 'stream:topic'
   */
  readonly streamKeyPrefix?: string;

  /**
   * Start of the name that an instance has as a consumer and as a member of its groups; what follows is unique to the
   * instance. Letters, digits and `._-`, at most 100 characters.
   * @defaultValue 'consumer-'
   */
  readonly consumerNamePrefix?: string;

  /**
   * Group of the handlers that name none. There is no default, and the starter's `default-group` is not applied: two
   * services that share a group by accident take each other's messages.
   * @defaultValue undefined
   */
  readonly defaultConsumerGroup?: string;

  /**
   * Group of the dead-letter handlers that name none: those that take the letters of all groups of a topic. Change it where
   * two services handle the dead letters of one topic: each group gets all of them.
   * @defaultValue 'dlq-group'
   */
  readonly defaultDlqGroup?: string;

  /**
   * What is appended to a group's name to name the group of the handlers of its dead letters.
   *
   * Hazard: after a change the new group begins with all dead letters that are there.
   * @defaultValue '-dlq'
   */
  readonly dlqConsumerSuffix?: string;

  /**
   * Partitions of a topic that is created without a count: the most instances of one group that can work on it at once.
   * From 1 to 4096.
   *
   * Hazard: existing topics keep theirs; raising one later changes the partition of most keys.
   * @defaultValue 4
   */
  readonly defaultPartitionCount?: number;

  /**
   * How many handlers may run at once in this instance, over all its groups. JavaScript has no worker threads here; the
   * name is the starter's.
   * @defaultValue 16
   */
  readonly workerThreads?: number;

  /**
   * How many messages one read may bring per partition. It bounds what a partition buffers in memory, so lower it when
   * payloads are large.
   * @defaultValue 32
   */
  readonly consumerBatchCount?: number;

  /**
   * How long a read waits in Redis for messages, in ms; up to four times as long while a group has none, but in Redis
   * Cluster. Messages arrive at once whatever the value; it must be less than half of the lease.
   * @defaultValue 500
   */
  readonly consumerPollTimeoutMs?: number;

  /**
   * How long a partition stays with an instance that gives no sign of life, in seconds (fractions down to a ms, at least
   * 1 s): the wait until another takes over after a crash. Shorter means a faster take-over, and more take-overs without
   * need when a process or the network stalls.
   * @defaultValue 15
   */
  readonly leaseTtlSeconds?: number;

  /**
   * How often an instance compares what it owns with what it should, in seconds, and says that it lives; at most a third
   * of `leaseTtlSeconds - renewIntervalSec`. Joins and departures are announced and do not wait for it.
   * @defaultValue 5
   */
  readonly rebalanceIntervalSec?: number;

  /**
   * How often leases are renewed, in seconds; less than half of `leaseTtlSeconds`, so that one failed renewal costs
   * nothing.
   * @defaultValue 3
   */
  readonly renewIntervalSec?: number;

  /**
   * How often a quiet partition's pending entries are compared with what its owner holds, in seconds. A net only: each
   * read checks the same.
   * @defaultValue 30
   */
  readonly pendingScanIntervalSec?: number;

  /**
   * Accepted for the starter's sake, and has nothing to do: the lease decides whose messages are orphaned, so no idle
   * time needs to pass.
   * @defaultValue 300000
   */
  readonly claimIdleMs?: number;

  /**
   * How many unfinished messages of the former owner one step of a take-over claims.
   * @defaultValue 100
   */
  readonly claimBatchSize?: number;

  /**
   * How many times a handler is called for a message, the first included, before the message becomes a dead letter. 1
   * means no retry.
   * @defaultValue 5
   */
  readonly retryMaxAttempts?: number;

  /**
   * Wait before the first retry, in ms; it doubles with each further one.
   * @defaultValue 1000
   */
  readonly retryBaseBackoffMs?: number;

  /**
   * Longest wait between retries, in ms; not below `retryBaseBackoffMs`.
   * @defaultValue 60000
   */
  readonly retryMaxBackoffMs?: number;

  /**
   * How many due retries, or delayed messages, one step moves back per partition.
   * @defaultValue 100
   */
  readonly retryMoverBatch?: number;

  /**
   * How often due retries are looked for, in seconds. A net only: the owner of a partition knows when the next is due.
   * @defaultValue 1
   */
  readonly retryMoverIntervalSec?: number;

  /**
   * How many messages the instance may hold at once, being handled and buffered, over all partitions. 0 means no bound
   * other than `consumerBatchCount` per partition; 1 is refused, since one read asks for retries and new messages alike.
   * @defaultValue 0
   */
  readonly maxInFlight?: number;

  /**
   * How many partitions an instance may own per group, over all its topics. 0 means no cap (in the starter: the number of
   * worker threads; here a lease costs no thread). A partition that no other member can take is taken over the cap, with
   * a warning.
   * @defaultValue 0
   */
  readonly maxLeasedPartitionsPerConsumer?: number;

  /**
   * How many messages a partition keeps. What some group has not settled yet is kept beyond it. 0 means no bound.
   * @defaultValue 100000
   */
  readonly retentionMaxLenPerPartition?: number;

  /**
   * How many messages a partition keeps at most, whatever has been handled. 0 means no bound.
   *
   * Hazard: beyond it, messages are deleted that some group has not handled. That is counted
   * (`redis_streaming_mq_trim_deleted_total{reason="hard-bound"}`) and logged as an error.
   * @defaultValue 0
   */
  readonly retentionHardMaxLenPerPartition?: number;

  /**
   * How long a partition keeps a message, in ms, by the server's clock. What some group has not settled yet is kept beyond it. 0 means no bound.
   * @defaultValue 0
   */
  readonly retentionMs?: number;

  /**
   * After how long without any owner a group no longer keeps messages from being trimmed, in ms, by the server's clock. 0
   * means never.
   *
   * Change it where groups come and go and nobody deletes those that are gone (`MqAdmin.deleteGroup`).
   *
   * Hazard: a group whose instances are all stopped for longer than this loses what it has not handled, as soon as another
   * group's owner trims. Each time that is logged as an error and counted (`redis_streaming_mq_retention_abandoned_total`). A
   * paused group is not abandoned.
   * @defaultValue 0
   */
  readonly retentionAbandonedGroupMs?: number;

  /**
   * How often partitions are trimmed, in seconds.
   * @defaultValue 60
   */
  readonly trimIntervalSec?: number;

  /**
   * How many dead letters a partition keeps. 0 means no bound.
   *
   * Hazard: a bound deletes dead letters that nobody has looked at.
   * @defaultValue 0
   */
  readonly dlqRetentionMaxLen?: number;

  /**
   * How long dead letters are kept, in ms. 0 means no bound.
   *
   * Hazard: a bound deletes dead letters that nobody has looked at.
   * @defaultValue 0
   */
  readonly dlqRetentionMs?: number;

  /**
   * Only `none`: an acknowledged message stays until retention removes it. The starter's `immediate` and
   * `all-groups-ack` are refused, because they take messages from groups that have not read them.
   * @defaultValue 'none'
   */
  readonly ackDeletePolicy?: 'none';

  /**
   * Where a new group begins: with everything that the topic still holds, or with what is sent from now on. An existing
   * group goes on where it was. Groups of dead-letter handlers ask only their own `startFrom`.
   *
   * Hazard: with `latest`, what was sent before the group's first start is never handled by it.
   * @defaultValue 'earliest'
   */
  readonly startFrom?: 'earliest' | 'latest';

  /**
   * Whether a topic that a handler or a `send()` names, and that does not exist, is created. `false`: handlers wait for
   * it, and `send()` rejects with `MQ_TOPIC_NOT_FOUND`.
   * @defaultValue true
   */
  readonly autoCreateTopics?: boolean;

  /**
   * How long `send()` may take, in ms. After it, it rejects with `MQ_SEND_TIMEOUT` (never sent) or
   * `MQ_SEND_OUTCOME_UNKNOWN` (sent, no answer).
   * @defaultValue 10000
   */
  readonly sendTimeoutMs?: number;

  /**
   * How many messages may wait in this process to be sent; beyond that `send()` refuses at once, so that an outage of
   * Redis does not fill the memory.
   * @defaultValue 100000
   */
  readonly sendBufferLimit?: number;

  /**
   * Largest serialized payload, in bytes; larger ones are refused with `MQ_PAYLOAD_TOO_LARGE` before anything is sent. At
   * most 536870912, what Redis takes by default.
   * @defaultValue 1048576
   */
  readonly maxPayloadBytes?: number;

  /**
   * How long one handler call may take, in ms, as Kafka's `max.poll.interval.ms`; `heartbeat()` starts it anew. Then its
   * signal fires and the attempt counts as failed. 0 means no limit.
   *
   * Hazard: a handler cannot be stopped by force; its partition waits until it settles or the lease goes.
   * @defaultValue 300000
   */
  readonly handlerTimeoutMs?: number;

  /**
   * How long a stopping instance waits for running handlers before it aborts them, in ms.
   *
   * Hazard: keep it below the time that the platform grants (Kubernetes: `terminationGracePeriodSeconds`, 30 s), and leave
   * some seconds for what follows; a killed process repeats the running messages and blocks its partitions until the
   * lease ends.
   * @defaultValue 20000
   */
  readonly drainTimeoutMs?: number;

  /**
   * How old a finished message may be before the acknowledgements, and what failed, are sent, in ms. After a crash these
   * are handled again. 0 sends after every message.
   * @defaultValue 5
   */
  readonly ackFlushMs?: number;

  /**
   * How many connections the instance may open for blocking reads in Redis Cluster, where each partition needs one of its
   * own; partitions beyond that are polled. Of no effect elsewhere.
   * @defaultValue 64
   */
  readonly maxBlockingConnections?: number;

  /**
   * How many replicas must have a message before `send()` resolves (`WAIT`). 0 does not wait: a failover may lose the last
   * messages that the master had accepted.
   *
   * Hazard: it narrows that window and does not close it.
   *
   * @see https://redis.io/docs/latest/commands/wait/
   * @defaultValue 0
   */
  readonly waitReplicas?: number;

  /**
   * How long to wait for the replicas, in ms; below `redisTimeoutMs`.
   * @defaultValue 1000
   */
  readonly waitReplicasTimeoutMs?: number;

  /**
   * `true`: the application does not start when Redis cannot be reached within `bootTimeoutMs`. `false`: it starts,
   * reports itself as not ready, and works as soon as Redis does.
   * @defaultValue false
   */
  readonly failFast?: boolean;

  /**
   * How long the start waits for Redis when `failFast` is on, in ms.
   * @defaultValue 10000
   */
  readonly bootTimeoutMs?: number;

  /**
   * How long an answer of Redis may take, in ms, before the connection is considered dead and replaced. At least 100.
   * @defaultValue 5000
   */
  readonly redisTimeoutMs?: number;

  /**
   * How many messages of a partition that this instance owns may be unsettled (undelivered, pending, waiting for a retry)
   * while it is ready. 0 means that readiness does not ask.
   *
   * Hazard: a platform that takes instances which are not ready out of service, or replaces them, does so when there is
   * most to do. Rather raise an alert on `redis_streaming_mq_lag`, unless readiness only informs.
   * @defaultValue 0
   */
  readonly healthMaxLag?: number;

  /**
   * How old the oldest unsettled message of a partition that this instance owns may be while it is ready, in ms. 0 means
   * that readiness does not ask. A message that waits for a retry counts with its first age.
   *
   * Hazard: as with `healthMaxLag`.
   * @defaultValue 0
   */
  readonly healthMaxLagAgeMs?: number;

  /**
   * Whether Prometheus metrics are kept.
   * @defaultValue true
   */
  readonly metricsEnabled?: boolean;

  /**
   * How often one of the instances reads what concerns all of them (lag, pending, dead letters, ...) for its metrics, in
   * seconds; at least 0.1. A scrape shows the last values and costs Redis nothing.
   *
   * Reading goes in small steps and takes longer than this where there are thousands of partitions; `sample_age_ms` says
   * how old the values are.
   * @defaultValue 15
   */
  readonly metricsIntervalSec?: number;

  /**
   * Turns payloads into bytes and back. Everyone who shares a topic needs the same.
   * @defaultValue jsonSerializer
   */
  readonly serializer?: Serializer;

  /**
   * Chooses the partition instead of murmur2 of the key. Every producer of a topic needs the same, or the order per key
   * is lost.
   * @defaultValue undefined
   */
  readonly partitioner?: Partitioner;
}

type WithoutDefault = 'redis' | 'defaultConsumerGroup' | 'partitioner';

/** Options with every field set and every rule checked; made by `resolveOptions`, frozen. */
export interface ResolvedMqOptions extends Readonly<Required<Omit<MqOptions, WithoutDefault>>> {
  /** As it was given; `undefined` only when the key was absent, which means localhost. */
  readonly redis: unknown;
  readonly defaultConsumerGroup: string | undefined;
  readonly partitioner: Partitioner | undefined;
  /** `leaseTtlSeconds` in whole ms. */
  readonly leaseTtlMs: number;
  /** `rebalanceIntervalSec` in whole ms. */
  readonly rebalanceIntervalMs: number;
  /** `renewIntervalSec` in whole ms. */
  readonly renewIntervalMs: number;
  /** `pendingScanIntervalSec` in whole ms. */
  readonly pendingScanIntervalMs: number;
  /** `retryMoverIntervalSec` in whole ms. */
  readonly retryMoverIntervalMs: number;
  /** `trimIntervalSec` in whole ms. */
  readonly trimIntervalMs: number;
  /** `metricsIntervalSec` in whole ms. */
  readonly metricsIntervalMs: number;
}
