import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { MqAdmin } from '../admin/admin.js';
import { MqConsumer } from '../consumer/consumer.js';
import { pause, systemClock, type Clock } from '../core/clock.js';
import { MqInvalidOptionsError, MqRedisError } from '../core/errors.js';
import { MqEvents } from '../core/events.js';
import { Keys } from '../core/keys.js';
import type { ResolvedMqOptions } from '../core/options.js';
import { DeadLetterQueue } from '../dlq/dead-letter-queue.js';
import { MqHealth, type HealthProbe, type LoopState } from '../health/health.js';
import { OwnedLag } from '../health/owned-lag.js';
import { ClusterSampler } from '../metrics/cluster-sampler.js';
import { MqMetrics } from '../metrics/metrics.js';
import { Reporter } from '../metrics/reporter.js';
import type { MetricsRegistry } from '../metrics/shared-metrics.js';
import { MqProducer } from '../producer/producer.js';
import { Announcements, type Announcement } from '../redis/announcements.js';
import { checkServer } from '../redis/boot-check.js';
import { Connections, type CreateClient } from '../redis/connections.js';
import type { Use } from '../redis/needed-commands.js';
import { checkPermissions, NOT_ALLOWED } from '../redis/permission-check.js';
import { connectionFailureText, isConnectionError, isConnectionRefusal, replyCode } from '../redis/redis-errors.js';
import { redisOptionProblems, type RedisOption } from '../redis/redis-option.js';
import { RetentionSettings } from '../redis/retention-settings.js';
import { call } from '../redis/script.js';
import { probe } from '../redis/scripts/probe.script.js';
import { Spread } from '../redis/spread.js';
import { Statistics } from '../redis/statistics.js';
import { TopicRegistry } from '../redis/topic-registry.js';
import { Trimmer } from '../retention/trimmer.js';
import { RetryMover } from '../retry/retry-mover.js';
import type { MqLogger } from './mq-logger.js';
import type { MqRuntime } from './runtime.js';

export interface ComposeDeps {
  readonly name: string;
  readonly logger: MqLogger;
  readonly registry?: MetricsRegistry;
  readonly clock?: Clock;
  readonly random?: () => number;
  /** Where it is given, the instance reports here in place of events of its own. */
  readonly events?: MqEvents;
  /** Makes the clients, in place of ioredis: the tests without Redis have their own. */
  readonly createClient?: CreateClient;
}

/** How long after its interval a loop may be quiet: it may wait out an unanswered command and its own back-off. */
const LOOP_SLACK_MS = 10_000;
const CLOSE_TIMEOUT_MS = 2_000;
const FORGET_SLACK_MS = 1_000;
/** How long a boot waits at most for the first answer of Redis; a refused connection ends the wait at once. */
const FIRST_LOOK_MS = 1_000;

/** Puts the objects of one module instance together; the only place that knows them all. Opens nothing. */
export function composeMq(options: ResolvedMqOptions, deps: ComposeDeps): MqRuntime {
  const problems = redisOptionProblems(options.redis);
  if (problems.length > 0) throw new MqInvalidOptionsError(problems);
  const { name, logger, registry, clock = systemClock, random = Math.random } = deps;
  const events =
    deps.events ?? new MqEvents((error, event) => logger.error('a listener of the queue threw', { event, error }));
  const keys = new Keys(options.keyPrefix, options.streamKeyPrefix);
  const instance = instanceId(options.consumerNamePrefix);
  const connections = new Connections({
    redis: options.redis as RedisOption | undefined,
    createClient: deps.createClient,
    clock,
    events,
    redisTimeoutMs: options.redisTimeoutMs,
    controlTimeoutMs: Math.min(
      options.redisTimeoutMs,
      Math.max(500, (options.leaseTtlMs - options.renewIntervalMs) / 2),
    ),
    clientName: `redis-streams-mq:${name}`,
    ownProducerConnection: options.waitReplicas > 0,
  });
  const { command, control, isCluster } = connections;
  const topics = new TopicRegistry({ connection: command, keys, events });
  // People and start-up code call these at any time, also before the first connection is there.
  const patient = command.patient(options.redisTimeoutMs);
  const patientSpread = new Spread(patient, isCluster);
  const patientTopics = new TopicRegistry({ connection: patient, keys, events });
  const statistics = new Statistics(new Spread(command, isCluster), keys);
  const announcements = new Announcements({
    connections,
    channel: keys.announcements,
    events,
    clock,
    checkIntervalMs: options.rebalanceIntervalMs,
    timeoutMs: options.redisTimeoutMs,
  });
  const mover = new RetryMover({
    connection: command,
    isCluster,
    clock,
    events,
    intervalMs: options.retryMoverIntervalMs,
    batch: options.retryMoverBatch,
  });
  const bounds = {
    maxLen: options.retentionMaxLenPerPartition,
    maxAgeMs: options.retentionMs,
    hardMaxLen: options.retentionHardMaxLenPerPartition,
    dlqMaxLen: options.dlqRetentionMaxLen,
    dlqMaxAgeMs: options.dlqRetentionMs,
  };
  const retention = new RetentionSettings(command, keys, bounds);
  const trimmer = new Trimmer({
    connection: command,
    clock,
    events,
    intervalMs: options.trimIntervalMs,
    retentionOf: (topic) => retention.of(topic),
    abandonedGroupMs: options.retentionAbandonedGroupMs,
  });
  announcements.onAnnouncement((announcement) => {
    if (announcement.type === 'due') mover.dueAt(announcement.due);
  });
  const producer = new MqProducer({ connection: connections.producer, keys, topics, clock, events, options });
  const onDue = (topic: string, partition: number, group: string): void =>
    announcements.publish({ type: 'due', topic, partition, group, due: 0 });
  const deadLetters = new DeadLetterQueue({
    connection: patient,
    keys,
    topics: patientTopics,
    clock,
    events,
    serializer: options.serializer,
    maxPayloadBytes: options.maxPayloadBytes,
    onDue,
  });
  const consumer = new MqConsumer({
    instance,
    connections,
    keys,
    clock,
    random,
    events,
    options,
    topics,
    announcements,
    retries: mover,
    retention: trimmer,
    letters: {
      read: (topic, partition, id) => deadLetters.get(topic, `${partition}/${id}`),
      replay: (letter, edit) => deadLetters.replay(letter.topic, letter.id, edit),
    },
  });
  const heard = (announcement: Announcement): void => {
    if (announcement.type === 'topic') producer.topicChanged(announcement.topic);
  };
  announcements.onAnnouncement(heard);
  const admin = new MqAdmin({
    connection: patient,
    keys,
    topics: patientTopics,
    events,
    clock,
    defaultPartitionCount: options.defaultPartitionCount,
    onDue,
    announce: (announcement) => {
      heard(announcement); // Also where nobody listens to the channel.
      announcements.publish(announcement);
    },
    spread: patientSpread,
    statistics: new Statistics(patientSpread, keys),
    serializer: options.serializer,
    retention: new RetentionSettings(patient, keys, bounds),
  });
  let serverConcerns: readonly string[] = [];
  const ownedLag = new OwnedLag({
    clock,
    refs: () => consumer.ownedPartitions,
    statistics: (refs) => statistics.ofGroups(refs),
  });
  const health = new MqHealth({
    name,
    clock,
    probe: () => lookAtRedis(),
    concerns: () => serverConcerns,
    loops: () => consumer.loops.map(toLoopState),
    consumption: () => ({
      started: consumer.isStarted,
      owned: consumer.ownedCount,
      unowned: consumer.unowned,
      ...consumer.troubles,
    }),
    lag: () => ownedLag.look(),
    maxLag: options.healthMaxLag,
    maxLagAgeMs: options.healthMaxLagAgeMs,
  });
  const sampler = new ClusterSampler({
    connection: command,
    keys,
    clock,
    topics,
    statistics,
    timeoutMs: options.redisTimeoutMs,
  });
  const reporter = new Reporter({
    connection: control,
    reporterKey: keys.reporter,
    token: instance,
    clock,
    events,
    random,
    leaseTtlMs: options.leaseTtlMs,
    renewIntervalMs: options.renewIntervalMs,
    intervalMs: options.metricsIntervalMs,
    sample: (goesOn, signal) => sampler.sample(goesOn, signal),
  });
  const metrics =
    registry === undefined || !options.metricsEnabled
      ? null
      : new MqMetrics({
          events,
          registry,
          name,
          gauges: {
            inflight: () => consumer.inFlightCount,
            oldestCallMs: () => consumer.oldestCallMs,
            moverAgeMs: () => consumer.moverAgeMs,
            maxInflight: () => options.maxInFlight,
            maxLeasedPartitions: () => options.maxLeasedPartitionsPerConsumer,
            leasedPartitions: () => consumer.ownedCount,
            eligiblePartitions: () => consumer.eligibleCount,
            isReporting: () => reporter.isReporting,
            cluster: () => reporter.readings,
          },
        });

  // What the instance does with a topic ends within a rebalance of noticing; its series would begin anew before.
  events.on('topicDeleted', ({ topic }) =>
    clock.setTimer(() => metrics?.forgetTopic(topic), 2 * options.rebalanceIntervalMs + FORGET_SLACK_MS),
  );

  /** @throws MqRedisError `MQ_REDIS_UNREACHABLE` */
  async function reach(): Promise<void> {
    const { bootTimeoutMs } = options;
    const ready = await Promise.all([command.whenReady(bootTimeoutMs), control.whenReady(bootTimeoutMs)]);
    if (ready.every(Boolean)) return;
    const cause = command.failure ?? control.failure;
    throw new MqRedisError(
      'MQ_REDIS_UNREACHABLE',
      `Redis is not reachable within bootTimeoutMs ${bootTimeoutMs} and failFast is on: ${connectionFailureText(cause)}`,
      { cause },
    );
  }

  async function lookAtRedis(): Promise<HealthProbe> {
    if (!control.isReady) return { reachable: false, writable: false, topics: 0 };
    try {
      return { reachable: true, writable: true, topics: await control.run(call(probe, { topics: keys.topics }, {})) };
    } catch (error) {
      if (isConnectionError(error)) return { reachable: false, writable: false, reason: 'connection lost', topics: 0 };
      const reason = replyCode(error);
      if (reason === '') throw error;
      return { reachable: true, writable: false, reason, topics: 0 };
    }
  }

  function toLoopState(loop: (typeof consumer.loops)[number]): LoopState {
    const { name: loopName, lastTickAgoMs, failure, intervalMs = 0 } = loop;
    const interval = Math.max(
      intervalMs,
      options.rebalanceIntervalMs,
      options.renewIntervalMs,
      options.retryMoverIntervalMs,
    );
    const maxQuietMs = interval + 2 * options.redisTimeoutMs + LOOP_SLACK_MS;
    return {
      name: loopName,
      alive: true,
      lastTickAgoMs,
      maxQuietMs,
      ...(failure !== undefined && { failing: failure }),
    };
  }

  /** Whether the server could be looked at. @throws MqRedisError `MQ_REDIS_NOT_ALLOWED` */
  async function look(use: Use): Promise<boolean> {
    try {
      serverConcerns = await checkServer(control, events);
      await checkPermissions(control, keys.probe(instance), use);
      return true;
    } catch (error) {
      if (error instanceof MqRedisError && error.code === NOT_ALLOWED) throw error;
      return false; // The connection broke, which the loops will say.
    }
  }

  /** @throws MqRedisError `MQ_REDIS_NOT_ALLOWED` when the server is there and does not take us. */
  function refuseRefused(): void {
    const cause = control.failure;
    if (cause === undefined || !isConnectionRefusal(cause)) return;
    throw new MqRedisError(NOT_ALLOWED, `Redis refuses the connection: ${connectionFailureText(cause)}`, { cause });
  }

  /** A server that is away is looked at when it comes. What it refuses can stop the boot no more, and is said. */
  async function lookLater(use: Use): Promise<void> {
    try {
      while (await control.whenReady(2_147_483_647)) {
        if (await look(use)) return;
        await pause(clock, FIRST_LOOK_MS);
      }
    } catch (error) {
      events.emit('fault', { component: 'boot', class: 'configuration', error, retryInMs: 0 });
    }
  }

  return {
    name,
    options,
    events,
    statistics,
    producer,
    deadLetters,
    admin,
    health,
    metrics,
    async connect(use = 'consume'): Promise<void> {
      connections.open();
      try {
        if (options.failFast) await reach();
        const hasLooked = (await control.whenConnected(FIRST_LOOK_MS)) && (await look(use));
        if (!hasLooked) refuseRefused();
        if (!hasLooked) void lookLater(use);
        if (metrics !== null) reporter.start();
      } catch (error) {
        connections.close();
        throw error;
      }
    },
    async start(handlers, isStopped): Promise<void> {
      consumer.start(handlers, isStopped);
    },
    control: {
      get handlers() {
        return consumer.handlers;
      },
      start: (handler) => consumer.groupOf(handler)?.startTopic(handler.topic),
      stop: async (handler) => consumer.groupOf(handler)?.stopTopic(handler.topic),
      pause: async (handler) => consumer.groupOf(handler)?.pauseTopic(handler.topic),
    },
    stop: () => consumer.stop(options.drainTimeoutMs),
    async close(): Promise<void> {
      await consumer.stop(options.drainTimeoutMs);
      await producer.close(CLOSE_TIMEOUT_MS);
      await reporter.stop();
      metrics?.close();
      connections.close();
    },
  };
}

/** Unique by its random part; the rest tells a person where it runs. */
function instanceId(prefix: string): string {
  const host = hostname()
    .replaceAll(/[^A-Za-z0-9.-]/g, '')
    .slice(0, 60);
  return `${prefix}${host}-${process.pid}-${randomBytes(6).toString('hex')}`;
}
