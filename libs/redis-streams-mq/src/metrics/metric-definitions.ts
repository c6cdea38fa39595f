/** A metric as it is registered; every one has the label `mq`, the name of the module instance, in front of `labels`. */
export interface MetricDefinition {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
}

export interface GaugeDefinition extends MetricDefinition {
  /** What becomes of readings of the same labels, as those beyond a limit have. @default sum */
  readonly merge?: 'sum' | 'max';
}

/** One value of a gauge, its labels in the order of the definition. */
export interface Reading {
  readonly labels: readonly string[];
  readonly value: number;
}

export interface HistogramDefinition extends MetricDefinition {
  /** Upper bounds in milliseconds. */
  readonly buckets: readonly number[];
}

/** Counters, by the names that users of the Spring Boot starter have on their dashboards; then the ones it has not. */
export const counterDefinitions = {
  produced: {
    name: 'redis_streaming_mq_produced_total',
    help: 'Messages that Redis accepted',
    labels: ['topic', 'partition'],
  },
  consumed: {
    name: 'redis_streaming_mq_consumed_total',
    help: 'Entries read from Redis, take-overs and retries included',
    labels: ['topic', 'partition', 'group'],
  },
  acked: {
    name: 'redis_streaming_mq_acked_total',
    help: 'Entries acknowledged after their handler succeeded',
    labels: ['topic', 'partition', 'group'],
  },
  retried: {
    name: 'redis_streaming_mq_retried_total',
    help: 'Failed handler calls that will be repeated',
    labels: ['topic', 'partition', 'group'],
  },
  retriesMoved: {
    name: 'redis_streaming_mq_retries_moved_total',
    help: 'Retries that became due and were put back for their group',
    labels: ['topic', 'partition', 'group'],
  },
  delayedMoved: {
    name: 'redis_streaming_mq_delayed_moved_total',
    help: 'Delayed messages that became due and were put on their partition',
    labels: ['topic', 'partition'],
  },
  setAside: {
    name: 'redis_streaming_mq_set_aside_total',
    help: 'Damaged items that the mover put off for an hour, by what they are: retry or delayed',
    labels: ['topic', 'partition', 'kind'],
  },
  dead: {
    name: 'redis_streaming_mq_dead_total',
    help: 'Messages moved to the dead letter queue, by reason',
    labels: ['topic', 'partition', 'group', 'reason'],
  },
  payloadMissing: {
    name: 'redis_streaming_mq_payload_missing_total',
    help: 'Pending entries that were no longer in the stream: trimmed or deleted before they were handled',
    labels: ['topic', 'partition', 'group'],
  },
  sendErrors: {
    name: 'redis_streaming_mq_send_errors_total',
    help: 'Sends that were rejected, by error code',
    labels: ['code'],
  },
  leaseAcquired: {
    name: 'redis_streaming_mq_lease_acquired_total',
    help: 'Partition leases acquired',
    labels: ['topic', 'partition', 'group'],
  },
  leaseReleased: {
    name: 'redis_streaming_mq_lease_released_total',
    help: 'Partition leases given back in good order',
    labels: ['topic', 'partition', 'group'],
  },
  leaseLost: {
    name: 'redis_streaming_mq_lease_lost_total',
    help: 'Partition leases lost while they were held, by reason',
    labels: ['topic', 'partition', 'group', 'reason'],
  },
  takenOver: {
    name: 'redis_streaming_mq_taken_over_total',
    help: 'Pending entries taken over from an earlier owner of the partition',
    labels: ['topic', 'partition', 'group'],
  },
  ledgerRepairs: {
    name: 'redis_streaming_mq_ledger_repairs_total',
    help: 'Times the pending entries in Redis differed from what the owner held',
    labels: ['topic', 'partition', 'group'],
  },
  healed: {
    name: 'redis_streaming_mq_healed_total',
    help: 'Lost consumer groups and topics that were made again: Redis lost data',
    labels: ['topic', 'partition', 'group'],
  },
  rebalances: {
    name: 'redis_streaming_mq_rebalances_total',
    help: 'Rebalances in which this instance acquired or gave up partitions',
    labels: ['group'],
  },
  readerRestarts: {
    name: 'redis_streaming_mq_reader_restarts_total',
    help: 'Blocking readers destroyed and replaced',
    labels: ['group'],
  },
  faults: {
    name: 'redis_streaming_mq_faults_total',
    help: 'Errors that a background loop met and survived, by kind of loop and class of error',
    labels: ['component', 'class'],
  },
  backpressureWait: {
    name: 'redis_streaming_mq_backpressure_wait_total',
    help: 'Times that reading waited because maxInFlight was reached',
    labels: ['group'],
  },
  trimAttempts: {
    name: 'redis_streaming_mq_trim_attempts_total',
    help: 'Turns of retention on a partition (stream) or its dead letters (dlq)',
    labels: ['topic', 'partition', 'stream'],
  },
  trimDeleted: {
    name: 'redis_streaming_mq_trim_deleted_total',
    help: 'Entries that retention removed, by rule: length, age, or hard-bound, which loses messages',
    labels: ['topic', 'partition', 'reason', 'stream'],
  },
  retentionPinned: {
    name: 'redis_streaming_mq_retention_pinned_total',
    help: 'Turns of retention in which this group kept messages beyond the bounds, by not having settled them; no group: none has come yet',
    labels: ['topic', 'partition', 'group'],
  },
  retentionAbandoned: {
    name: 'redis_streaming_mq_retention_abandoned_total',
    help: 'Entries removed that this group had not settled, because it has had no owner for longer than retentionAbandonedGroupMs',
    labels: ['topic', 'partition', 'group'],
  },
  replaySuccess: {
    name: 'redis_streaming_dlq_replay_success_total',
    help: 'Dead letters put back into the retry bucket of their group',
    labels: ['topic', 'partition', 'group'],
  },
  replayFailure: {
    name: 'redis_streaming_dlq_replay_failure_total',
    help: 'Replays that failed; a dead letter that was already gone is not one',
    labels: ['topic', 'partition', 'group'],
  },
  deadLetterDeleted: {
    name: 'redis_streaming_dlq_deleted_total',
    help: 'Dead letters deleted on request, one by one',
    labels: ['topic', 'partition'],
  },
  deadLetterCleared: {
    name: 'redis_streaming_dlq_cleared_total',
    help: 'Dead letters deleted by clearing a topic or a group',
    labels: ['topic', 'partition'],
  },
} as const;

/**
 * Histograms in milliseconds, without the partition: a histogram is some fifteen series. An application that wants
 * other buckets registers a histogram of the same name and labels before the module starts.
 */
export const histogramDefinitions = {
  handleLatency: {
    name: 'redis_streaming_mq_handle_latency_ms',
    help: 'Milliseconds a handler call took, by outcome',
    labels: ['topic', 'group', 'outcome'],
    buckets: [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000],
  },
  endToEndLatency: {
    name: 'redis_streaming_mq_end_to_end_latency_ms',
    help: 'Milliseconds from publishing a message to the success of its handler, delays and retries included',
    labels: ['topic', 'group'],
    buckets: [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000],
  },
  handOverPause: {
    name: 'redis_streaming_mq_hand_over_pause_ms',
    help: 'Milliseconds for which a partition had no owner before this instance acquired it, since the former owner released it, or since its lease was seen to have expired',
    labels: ['topic', 'group', 'since'],
    buckets: [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 15_000, 60_000, 300_000],
  },
  backpressureWait: {
    name: 'redis_streaming_mq_backpressure_wait_ms',
    help: 'Milliseconds that reading waited because maxInFlight was reached',
    labels: ['group'],
    buckets: [1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000],
  },
  replayLatency: {
    name: 'redis_streaming_dlq_replay_latency_ms',
    help: 'Milliseconds a replay of one dead letter took, failed ones included',
    labels: ['topic', 'group'],
    buckets: [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000],
  },
} as const;

/** Of one instance each; see `clusterGaugeDefinitions`. */
export const gaugeDefinitions = {
  inflight: {
    name: 'redis_streaming_mq_inflight',
    help: 'Messages read and not yet settled by this instance',
    labels: [],
  },
  oldestCall: {
    name: 'redis_streaming_mq_oldest_handler_call_ms',
    help: 'Milliseconds for which the oldest handler call that has not ended has been running; 0 when none runs',
    labels: [],
  },
  moverAge: {
    name: 'redis_streaming_mq_mover_age_ms',
    help: 'Milliseconds since the mover of retries and delayed messages last went round without a fault',
    labels: [],
  },
  reporter: {
    name: 'redis_streaming_mq_reporter',
    help: '1 on the instance that exports what concerns all instances, 0 on the others',
    labels: [],
  },
  maxInflight: {
    name: 'redis_streaming_mq_max_inflight',
    help: 'The option maxInFlight; 0 is no limit',
    labels: [],
  },
  maxLeasedPartitions: {
    name: 'redis_streaming_mq_max_leased_partitions',
    help: 'The option maxLeasedPartitionsPerConsumer; 0 is no limit',
    labels: [],
  },
  leasedPartitions: {
    name: 'redis_streaming_mq_leased_partitions',
    help: 'Partitions whose lease this instance holds, over all groups',
    labels: [],
  },
  eligiblePartitions: {
    name: 'redis_streaming_mq_eligible_partitions',
    help: 'Partitions that the handlers of this instance may own, over all groups',
    labels: [],
  },
} as const;

/**
 * What all instances share, exported by the reporter alone, from its last sample: a sum over the instances is the value.
 * Over the partitions of a topic they are summed up, ages are the highest.
 */
export const clusterGaugeDefinitions = {
  topics: {
    name: 'redis_streaming_mq_topics_total',
    help: 'Topics',
    labels: [],
    merge: 'sum',
  },
  partitions: {
    name: 'redis_streaming_mq_partitions',
    help: 'Partitions of the topic',
    labels: ['topic'],
    merge: 'sum',
  },
  messages: {
    name: 'redis_streaming_mq_messages_total',
    help: 'Messages that the topic holds, handled ones that are retained included',
    labels: ['topic'],
    merge: 'sum',
  },
  frontierAge: {
    name: 'redis_streaming_mq_frontier_age_ms',
    help: 'Age in milliseconds of the oldest message on the partitions that some group has not settled: where retention must stop',
    labels: ['topic'],
    merge: 'max',
  },
  delayed: {
    name: 'redis_streaming_mq_delayed',
    help: 'Delayed messages that wait for their time',
    labels: ['topic'],
    merge: 'sum',
  },
  delayedOverdue: {
    name: 'redis_streaming_mq_delayed_overdue_ms',
    help: 'Milliseconds since the earliest delayed message became due; 0 when none is',
    labels: ['topic'],
    merge: 'max',
  },
  deadLetters: {
    name: 'redis_streaming_mq_dlq_total',
    help: 'Dead letters, by the group they died for and the reason; (uncounted) while those of a large queue are being counted',
    labels: ['topic', 'group', 'reason'],
    merge: 'sum',
  },
  lag: {
    name: 'redis_streaming_mq_lag',
    help: 'Messages that the group has not settled: undelivered, pending and waiting for a retry',
    labels: ['topic', 'group'],
    merge: 'sum',
  },
  lagAge: {
    name: 'redis_streaming_mq_lag_age_ms',
    help: 'Age in milliseconds of the oldest message that the group has not settled; 0 when all are',
    labels: ['topic', 'group'],
    merge: 'max',
  },
  pending: {
    name: 'redis_streaming_mq_pending',
    help: 'Messages delivered to the group and not yet settled',
    labels: ['topic', 'group'],
    merge: 'sum',
  },
  oldestPendingIdle: {
    name: 'redis_streaming_mq_oldest_pending_idle_ms',
    help: 'Milliseconds since the pending message with the lowest id was delivered',
    labels: ['topic', 'group'],
    merge: 'max',
  },
  retryBucket: {
    name: 'redis_streaming_mq_retry_bucket',
    help: 'Messages that wait for their next attempt',
    labels: ['topic', 'group'],
    merge: 'sum',
  },
  retryOverdue: {
    name: 'redis_streaming_mq_retry_overdue_ms',
    help: 'Milliseconds since the earliest retry became due; 0 when none is',
    labels: ['topic', 'group'],
    merge: 'max',
  },
  unowned: {
    name: 'redis_streaming_mq_unowned_partitions',
    help: 'Partitions that no instance owns for the group, paused ones left out',
    labels: ['topic', 'group'],
    merge: 'sum',
  },
  paused: {
    name: 'redis_streaming_mq_paused_partitions',
    help: 'Partitions on which the group is paused',
    labels: ['topic', 'group'],
    merge: 'sum',
  },
  memoryUsed: {
    name: 'redis_streaming_mq_redis_memory_used_bytes',
    help: 'Memory that Redis uses, over all masters',
    labels: [],
    merge: 'sum',
  },
  memoryRatio: {
    name: 'redis_streaming_mq_redis_memory_ratio',
    help: 'Used memory by maxmemory of the fullest master; 0 without a limit',
    labels: [],
    merge: 'max',
  },
  evictedKeys: {
    name: 'redis_streaming_mq_redis_evicted_keys',
    help: 'Keys that Redis threw away for want of memory since its start, over all masters; messages may be among them',
    labels: [],
    merge: 'sum',
  },
  mayEvict: {
    name: 'redis_streaming_mq_redis_may_evict',
    help: '1 when the maxmemory-policy of a master is not noeviction',
    labels: [],
    merge: 'max',
  },
  sampleAge: {
    name: 'redis_streaming_mq_sample_age_ms',
    help: 'Milliseconds since the values for all instances were read',
    labels: [],
    merge: 'max',
  },
  sampleDuration: {
    name: 'redis_streaming_mq_sample_duration_ms',
    help: 'Milliseconds that reading them took',
    labels: [],
    merge: 'max',
  },
  sampleLeftOut: {
    name: 'redis_streaming_mq_sample_left_out_topics',
    help: 'Topics that could not be read whole and have no values for all instances',
    labels: [],
    merge: 'max',
  },
} as const;

export type ClusterGaugeName = keyof typeof clusterGaugeDefinitions;
