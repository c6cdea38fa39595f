import { AssertionError } from 'node:assert';
import { inspect } from 'node:util';
import type { ResolvedMqOptions } from '../core/options.js';
import type { AnyTypedTopic, TopicInput } from '../core/topic.js';
import type { DeadReason } from '../core/events.js';
import type { DeadLetter } from '../core/dead-letter.js';
import type { ComposeDeps } from '../nest/compose.js';
import { DEFAULT_INSTANCE } from '../nest/instance-name.js';
import { MQ_COMPOSE } from '../nest/redis-streams-mq.module.js';
import type { MqRuntime } from '../nest/runtime.js';
import type { SendOptions } from '../producer/outgoing-message.js';
import type { SendResult } from '../producer/producer.js';
import { InMemoryEngine } from './in-memory-engine.js';
import {
  pendingOf,
  retriesOf,
  stateOf,
  type MessageState,
  type PendingMessage,
  type RetryingMessage,
  type SentMessage,
} from './message-state.js';
import { toBytes } from './server/values.js';
import { VirtualClock } from './virtual-clock.js';

/** When the time of a test begins, and how patient it is. */
export interface MqTestingOptions {
  /**
   * Where time begins: milliseconds since the epoch, or a Date.
   * @defaultValue the present
   */
  readonly startAt?: number | Date;

  /**
   * How long handlers may take in real time before `settle()` gives up, in ms.
   * @defaultValue 5000
   */
  readonly patienceMs?: number;
}

/** Which group is meant, and which module instance. */
export interface GroupSelection {
  /** @defaultValue the only group that has a handler for the topic's messages; those of dead letters do not count */
  readonly group?: string;
  /** @defaultValue the instance without a name */
  readonly instance?: string;
}

/** What Nest's `TestingModuleBuilder` has, so that nothing of `@nestjs/testing` is needed here. */
export interface ProviderOverrides<B> {
  overrideProvider(token: unknown): { useValue(value: unknown): B };
}

/** How far `settle()` may move the time, in milliseconds: the engine itself pauses for some moments at times. */
const CREEP_MS = 50;
/** Turns of the event loop in which nothing happens, before everything counts as done. */
const CALM_TURNS = 4;
/** How long `advance()` waits in real time for handlers that run, at each point in time at which something happens. */
const STEP_PATIENCE_MS = 50;

// Kept, because a test framework may replace them by fake ones.
const { setImmediate, setTimeout, performance } = globalThis;
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
const pauseMs = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

/**
 * The queue in memory, as a test sees it: messages go through the same engine, handlers and pipeline as with Redis, and time
 * passes when the test says so.
 *
 * @example
 * ```ts
 * const mq = new MqTesting();
 * const app = await mq.override(Test.createTestingModule({ imports: [AppModule] })).compile();
 * await app.init();
 *
 * const sent = await mq.publish('orders', { id: 7 }, { key: 'ann' });
 * await mq.assertRetried(sent, { attempt: 1, inMs: 1_000 });
 * await mq.advance(1_000);
 * await mq.assertAcked(sent);
 * ```
 * @publicApi
 */
export class MqTesting {
  private readonly clock: VirtualClock;
  private readonly patienceMs: number;
  private readonly engines = new Map<string, InMemoryEngine>();

  constructor({ startAt = Date.now(), patienceMs = 5_000 }: MqTestingOptions = {}) {
    this.clock = new VirtualClock(Number(startAt));
    this.patienceMs = patienceMs;
  }

  /**
   * What the module calls in place of `composeMq`; `override` hands it over.
   * @internal
   */
  readonly compose = (options: ResolvedMqOptions, deps: ComposeDeps): MqRuntime => {
    const engine = new InMemoryEngine(options, deps, this.clock, (work) => this.whileTimePasses(work));
    this.engines.set(deps.name, engine);
    return engine.runtime;
  };

  /** Puts the queue of a module under test into memory, all instances of it. What `redis` says is not used. */
  override<B>(builder: ProviderOverrides<B>): B {
    return builder.overrideProvider(MQ_COMPOSE).useValue(this.compose);
  }

  // ---- time

  /** The time of the queue in milliseconds. `Date.now()` is not touched. */
  get now(): number {
    return this.clock.now();
  }

  /**
   * Waits until everything that can be handled now has been, also what handlers have sent meanwhile. Retries and delayed
   * messages that are due within the next 50 ms count as now.
   *
   * @throws Error when handlers still run after `patienceMs` of real time.
   */
  async settle(): Promise<void> {
    const limit = this.clock.now() + CREEP_MS;
    for (;;) {
      const running = await this.calm(this.patienceMs);
      if (running.length > 0) {
        throw new Error(
          `after ${this.patienceMs} ms these handlers still run: ${running.join(', ')}. For handlers that wait for the test, ` +
            'send with the producer and wait with deliver() in place of publish() and settle()',
        );
      }
      if (this.clock.nextAt > limit) return;
      this.clock.moveTo(this.clock.nextAt);
    }
  }

  /** Waits until everything that can be handled now has at least been begun: handlers may still run. */
  async deliver(): Promise<void> {
    await this.calm(0);
  }

  /**
   * Lets time pass, and with it all that becomes due: retries, delayed messages, time limits of handlers. Handlers that
   * take real time are waited for 50 ms at each point at which something happens; `settle()` afterwards waits longer.
   */
  async advance(ms: number): Promise<void> {
    if (!(ms >= 0)) throw new TypeError(`advance() takes milliseconds, at least 0, and not ${ms}`);
    const target = this.clock.now() + ms;
    await this.calm(STEP_PATIENCE_MS);
    while (this.clock.nextAt <= target) {
      this.clock.moveTo(this.clock.nextAt);
      await this.calm(STEP_PATIENCE_MS);
    }
    this.clock.moveTo(target);
  }

  // ---- messages

  /** Sends as `MqProducer.send` does, and waits until all that follows from it has been handled. */
  publish<Topic extends AnyTypedTopic>(
    topic: Topic,
    payload: TopicInput<Topic>,
    options?: SendOptions,
    selection?: Pick<GroupSelection, 'instance'>,
  ): Promise<SendResult>;
  publish(
    topic: string,
    payload: unknown,
    options?: SendOptions,
    selection?: Pick<GroupSelection, 'instance'>,
  ): Promise<SendResult>;
  async publish(
    topic: string | AnyTypedTopic,
    payload: unknown,
    options: SendOptions = {},
    { instance = DEFAULT_INSTANCE }: Pick<GroupSelection, 'instance'> = {},
  ): Promise<SendResult> {
    const sent = await this.engine(instance).runtime.producer.send(topic as string, payload, options);
    await this.settle();
    return sent;
  }

  /**
   * Puts an entry of another program on a partition's stream: names and values in turn, as `XADD` takes them. What the queue
   * cannot read becomes a dead letter (`malformed`).
   */
  async publishRaw(
    topic: string,
    partition: number,
    fields: readonly string[],
    { instance = DEFAULT_INSTANCE }: Pick<GroupSelection, 'instance'> = {},
  ): Promise<void> {
    const { server, keys } = this.engine(instance);
    await server.execute(this, 'XADD', [keys.stream(topic, partition), '*', ...fields].map(toBytes));
    await this.settle();
  }

  /** Where a message is for a group, now. */
  async stateOf(sent: SentMessage, selection: GroupSelection = {}): Promise<MessageState> {
    const { topic, partition, eventId } = sent;
    const engine = this.engine(selection.instance);
    const group = this.groupOf(engine, topic, selection);
    const letters = await this.deadLetters(topic, { ...selection, group });
    return stateOf({ engine, topic, partition, group }, eventId, letters);
  }

  /** What the group has taken and not settled, by partition and in order; without what failed and waits for its retry. */
  pending(topic: string, selection: GroupSelection = {}): PendingMessage[] {
    return this.places(topic, selection).flatMap(pendingOf);
  }

  /** What waits for its retry, by partition, earliest first. */
  retries(topic: string, selection: GroupSelection = {}): RetryingMessage[] {
    return this.places(topic, selection).flatMap(retriesOf);
  }

  /** The dead letters of a group, oldest first. `DeadLetterQueue`, which the application has, replays them. */
  async deadLetters(topic: string, selection: GroupSelection = {}): Promise<readonly DeadLetter[]> {
    const engine = this.engine(selection.instance);
    if (engine.partitionsOf(topic).length === 0) return [];
    const group = this.groupOf(engine, topic, selection);
    const found: DeadLetter[] = [];
    let cursor: string | null = null;
    do {
      const page = await engine.runtime.deadLetters.list(topic, { group, limit: 1_000, ...(cursor && { cursor }) });
      found.push(...page.items);
      ({ cursor } = page);
    } while (cursor !== null);
    return found;
  }

  // ---- faults

  /**
   * The process dies now and another one starts: what was not settled is handled again, retries and dead letters are
   * where they were. Handlers that run have no way to settle any more; their code goes on, as nobody can stop it.
   */
  async crash(instance: string = DEFAULT_INSTANCE): Promise<void> {
    await this.engine(instance).crash();
    await this.deliver();
  }

  // ---- assertions

  /** That it was handled and acknowledged. @throws AssertionError that says where the message is instead. */
  async assertAcked(sent: SentMessage, selection: GroupSelection = {}): Promise<void> {
    const state = await this.stateOf(sent, selection);
    if (state.status !== 'acked') this.fail(sent, 'acknowledged', state);
  }

  /** That it failed and waits for its retry. @throws AssertionError that says where the message is instead. */
  async assertRetried(
    sent: SentMessage,
    expected: GroupSelection & {
      /** Calls that were made. */
      readonly attempt?: number;
      /** From now, in milliseconds; a difference of 50 ms is none. */
      readonly inMs?: number;
    } = {},
  ): Promise<void> {
    const state = await this.stateOf(sent, expected);
    const { attempt, inMs } = expected;
    const isIt =
      state.status === 'retry' &&
      (attempt === undefined || state.attemptsMade === attempt) &&
      (inMs === undefined || Math.abs(state.retryAt - this.now - inMs) <= CREEP_MS);
    const wanted = [
      'waiting for its retry',
      ...(attempt === undefined ? [] : [`after attempt ${attempt}`]),
      ...(inMs === undefined ? [] : [`in ${inMs} ms`]),
    ];
    if (!isIt) this.fail(sent, wanted.join(' '), state);
  }

  /** That it is a dead letter. @throws AssertionError that says where the message is instead. */
  async assertDead(
    sent: SentMessage,
    expected: GroupSelection & { readonly reason?: DeadReason; readonly attempts?: number } = {},
  ): Promise<void> {
    const state = await this.stateOf(sent, expected);
    const { reason, attempts } = expected;
    const isIt =
      state.status === 'dead' &&
      (reason === undefined || state.reason === reason) &&
      (attempts === undefined || state.attemptsMade === attempts);
    const wanted = [
      'dead',
      ...(reason ? [`as ${reason}`] : []),
      ...(attempts === undefined ? [] : [`after ${attempts} attempts`]),
    ];
    if (!isIt) this.fail(sent, wanted.join(' '), state);
  }

  private fail({ topic, eventId }: SentMessage, wanted: string, actual: MessageState): never {
    throw new AssertionError({
      message: `message ${eventId} of topic ${topic} should be ${wanted}, and is ${inspect(actual, { breakLength: 120 })}`,
      actual,
      expected: wanted,
    });
  }

  private engine(name: string = DEFAULT_INSTANCE): InMemoryEngine {
    const engine = this.engines.get(name);
    if (engine !== undefined) return engine;
    throw new Error(
      name === DEFAULT_INSTANCE
        ? 'the application has no RedisStreamsMqModule, or was not made with MqTesting.override() or MqTestingModule'
        : `there is no instance "${name}" of RedisStreamsMqModule`,
    );
  }

  private places(
    topic: string,
    selection: GroupSelection,
  ): { engine: InMemoryEngine; topic: string; partition: number; group: string }[] {
    const engine = this.engine(selection.instance);
    const group = this.groupOf(engine, topic, selection);
    return engine.partitionsOf(topic).map((partition) => ({ engine, topic, partition, group }));
  }

  private groupOf(engine: InMemoryEngine, topic: string, { group }: GroupSelection): string {
    if (group !== undefined) return group;
    // Who handles its dead letters has no message of the topic.
    const ofTopic = engine.handlers.filter((each) => each.topic === topic && each.deadLetters === undefined);
    const groups = [...new Set(ofTopic.map((each) => each.group))];
    if (groups.length === 1) return groups[0]!;
    throw new Error(
      groups.length === 0
        ? `no handler for topic ${topic} has been started: say which group is meant`
        : `topic ${topic} has the groups ${groups.join(', ')}: say which one is meant`,
    );
  }

  // ---- waiting

  private async whileTimePasses<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    const end = (): void => void (isOver = true);
    work.then(end, end);
    for (;;) {
      await this.calm(STEP_PATIENCE_MS);
      if (isOver) return work;
      if (this.clock.nextAt === Infinity) await pauseMs(1);
      else this.clock.moveTo(this.clock.nextAt);
    }
  }

  /** Waits until nothing happens any more. Returns the handlers that run after `patienceMs` of real time. */
  private async calm(patienceMs: number): Promise<readonly string[]> {
    const until = performance.now() + patienceMs;
    for (;;) {
      await this.calmTurns();
      const running = [...this.engines.values()].flatMap((engine) => engine.running);
      if (running.length === 0 || performance.now() >= until) return running;
      await pauseMs(1);
    }
  }

  private async calmTurns(): Promise<void> {
    const activity = (): number => [...this.engines.values()].reduce((sum, engine) => sum + engine.activity, 0);
    let seen = activity();
    for (let calm = 0; calm < CALM_TURNS;) {
      await turn();
      const now = activity();
      calm = now === seen ? calm + 1 : 0;
      seen = now;
    }
  }
}
