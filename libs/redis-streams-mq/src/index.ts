// Public API. What is not named here may change in any release.

export { RedisStreamsMqModule } from './nest/redis-streams-mq.module.js';
export type {
  MqModuleExtras,
  MqOptionsFactory,
  MqQueueOptions,
  RedisStreamsMqModuleAsyncOptions,
  RedisStreamsMqModuleOptions,
} from './nest/module-options.js';
export type { MqEndpointsOptions } from './nest/endpoints/endpoint-options.js';
export { InjectDeadLetterQueue, InjectMqAdmin, InjectMqHandlers, InjectMqProducer } from './nest/inject.decorators.js';
export type { InjectDecorator } from './nest/inject.decorators.js';
export {
  getDeadLetterQueueToken,
  getMqAdminToken,
  getMqHandlersToken,
  getMqHealthToken,
  getMqMetricsToken,
  getMqProducerToken,
} from './nest/tokens.js';

export { MqHandlers } from './nest/mq-handlers.js';
export type { HandlerFilter, HandlerStatus } from './nest/mq-handlers.js';
export type { HandlerState } from './consumer/group-consumer.js';
export { StreamHandler } from './nest/stream-handler.decorator.js';
export type {
  AnyTopic,
  Batched,
  HandlerOf,
  StreamHandlerConfig,
  StreamHandlerExtras,
  TypedMethodDecorator,
  Unbatched,
} from './nest/stream-handler.decorator.js';
export { defineTopic } from './core/topic.js';
export type { AnyTypedTopic, TopicDefinition, TopicInput, TopicOutput, TypedTopic } from './core/topic.js';
export type { StandardResult, StandardSchema } from './core/standard-schema.js';
export { DeadLetterHandler } from './nest/dead-letter-handler.decorator.js';
export type { DeadLetterHandlerExtras } from './nest/dead-letter-handler.decorator.js';
export { EventId, MessageHeaders, MessageKey, Payload, StreamCtx } from './nest/payload.decorators.js';
export type { Pipe } from './nest/payload.decorators.js';
export { isStreamContext, STREAM_CONTEXT_TYPE, StreamExecutionContext, streamContextOf } from './nest/stream-host.js';

export type { DeadLetterContext, StreamContext } from './core/handler.js';
export type {
  BatchOptions,
  Ordering,
  PayloadClass,
  RateLimit,
  RetryBackoff,
  RetryIf,
  RetryOrdering,
} from './core/handler.js';
export type { HandlerBackoff, HandlerRetry } from './core/handler-retry-options.js';
export type { StreamHandlerOptions } from './core/handler-options.js';
export { BatchFailure, isBatchFailure } from './core/batch-results.js';
export type { BatchItemFailure } from './core/batch-results.js';
export { DeadLetter, isDeadLetter, isRetryLater, MessageHandleResult, RetryLater } from './core/results.js';

export { MqProducer } from './producer/producer.js';
export type { BatchItemResult, Messages, SendBatchResult, SendResult } from './producer/producer.js';
export type { OutgoingMessage, SendOptions } from './producer/outgoing-message.js';
export { MqAdmin } from './admin/admin.js';
export type { Page, PageOptions } from './admin/paging.js';
export type {
  PartitionDescription,
  PartitionGroup,
  TopicDescribeOptions,
  TopicDescription,
  TopicListOptions,
  TopicSummary,
} from './admin/topics.js';
export type { EventSearchOptions, EventSearchResult } from './admin/event-search.js';
export type {
  GroupConsumer,
  GroupDescribeOptions,
  GroupDescription,
  GroupListOptions,
  GroupMember,
  GroupOnTopic,
  GroupPartition,
  GroupTopic,
} from './admin/groups.js';
export type { GroupState } from './admin/group-state.js';
export type { OldestPending, Undelivered } from './redis/scripts/stats.script.js';
export type { MessageRangeOptions, StreamBound } from './admin/messages.js';
export type { PendingEntry, PendingListOptions, PendingPage } from './admin/pending-entries.js';
export type { RetainedMessage } from './admin/retained-message.js';
export type { RetentionChange, TopicRetention } from './core/topic-retention.js';
export type { PartitionTrim, PurgeOptions, TrimOptions, TrimReport, TrimRule } from './admin/trimming.js';
export type { PartitionOwner } from './admin/group-partition.js';
export type { Lag } from './redis/statistics.js';
export type { PauseOptions, PauseReport } from './admin/pausing.js';
export type { PartitionReset, ResetFailure, ResetOptions, ResetReport } from './admin/positions.js';
export type { RangeEnd, ReplayRangeOptions, ReplayRangeReport } from './admin/range-replay.js';
export type { GroupDeletionReport } from './admin/group-deletion.js';
export type { TopicDeletionOptions, TopicDeletionReport } from './admin/topic-deletion.js';
export type { ResetTarget } from './admin/reset-target.js';
export { DeadLetterQueue } from './dlq/dead-letter-queue.js';
export type {
  ClearOptions,
  DeadLetterListOptions,
  DeadLetterPage,
  DeadLetterTopic,
  DeadLetterTopicPage,
} from './dlq/dead-letter-queue.js';
export type { DeadLetterCounts, DeadLetterGroupCount } from './dlq/dead-letter-counts.js';
export type { DeadLetterFilter } from './dlq/dead-letter-filter.js';
export type { ReplayOptions, ReplayRefusal, ReplayReport } from './dlq/dead-letter-replay.js';
export type { ImportReport } from './dlq/dead-letter-transfer.js';
export type { BulkOptions } from './dlq/pace.js';
export type {
  DeadLetter as DeadLetterRecord,
  DeadLetterEdit,
  DeadLetterError,
  EarlierDeath,
  FailedAttempt,
} from './core/dead-letter.js';
export { MqHealth } from './health/health.js';
export type { MqHealthResult } from './health/health.js';
export { MqMetrics } from './metrics/metrics.js';
export type { MetricsRegistry } from './metrics/shared-metrics.js';
export type { TopicMeta } from './redis/topic-registry.js';

export type { MqOptions, ResolvedMqOptions } from './core/options.js';
export type { KebabOptions } from './core/kebab-options.js';
export type { RedisClusterOption, RedisOption } from './redis/redis-option.js';
export { bytesSerializer, jsonSerializer } from './core/serializer.js';
export type { Serializer } from './core/serializer.js';
export type { Partitioner } from './core/partitioner.js';
export type { DeadReason } from './core/events.js';

export type { MqErrorOptions, ValidationIssue } from './core/errors.js';
export {
  MqAdminError,
  MqError,
  MqHandlerTimeoutError,
  MqInvalidHandlerError,
  MqInvalidMessageError,
  MqInvalidNameError,
  MqInvalidOptionsError,
  MqLeaseLostError,
  MqRedisError,
  MqSendError,
  MqValidationError,
} from './core/errors.js';
