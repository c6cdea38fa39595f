import type { HandlerState } from '../consumer/group-consumer.js';
import { MqError } from '../core/errors.js';
import type { HandlerDefinition } from '../core/handler.js';
import type { ResolvedMqOptions } from '../core/options.js';
import type { HandlerRef, MqRuntime } from './runtime.js';

/** Which handlers are meant: those to which all that is given applies; a text is the name. */
export interface HandlerFilter {
  /** `Class.method`. */
  readonly name?: string;
  readonly topic?: string;
  readonly group?: string;
}

/** A handler in this process. */
export interface HandlerStatus {
  /** `Class.method`. */
  readonly name: string;
  readonly topic: string;
  readonly group: string;
  /** `running`; `paused`: its messages wait in this process's partitions; `stopped`: it has no partitions. */
  readonly state: HandlerState;
  /** Partitions that this process owns for it. */
  readonly partitions: number;
}

/**
 * The handlers of this process, to be stopped, paused and started while it runs. Other processes are not told: to pause a
 * group everywhere is the admin's matter.
 *
 * @example
 * ```ts
 * constructor(private readonly handlers: MqHandlers) {}
 *
 * async maintenance(): Promise<void> {
 *   await this.handlers.stop('Billing.onOrder'); // other processes take its partitions
 *   await this.migrate();
 *   await this.handlers.start('Billing.onOrder');
 * }
 * ```
 * @publicApi
 */
export class MqHandlers {
  private definitions: readonly HandlerDefinition[] = [];
  private onStarted: () => void = () => undefined;
  private begun: Promise<void> | undefined;

  constructor(
    private readonly runtime: Pick<MqRuntime, 'start' | 'control'>,
    private readonly options: Pick<ResolvedMqOptions, 'enabled' | 'autoStart'>,
  ) {}

  /** Says which handlers there are; the module calls it. @internal */
  found(definitions: readonly HandlerDefinition[], onStarted: () => void): void {
    this.definitions = definitions;
    this.onStarted = onStarted;
  }

  /** Begins consumption with those that start by themselves. @internal */
  begin(): Promise<void> {
    this.begun ??= (async () => {
      const isStopped = ({ autoStart = this.options.autoStart }: HandlerDefinition): boolean => !autoStart;
      await this.runtime.start(this.definitions, isStopped);
      if (this.definitions.length > 0) this.onStarted();
    })();
    return this.begun;
  }

  /** Every handler that was found, with what it does. */
  list(filter: HandlerFilter | string = {}): readonly HandlerStatus[] {
    const { handlers } = this.runtime.control;
    return this.matching(filter).map(({ name, topic, group }) => {
      const known = handlers.find((each) => each.topic === topic && each.group === group);
      return { name, topic, group, state: known?.state ?? 'stopped', partitions: known?.partitions ?? 0 };
    });
  }

  /**
   * Starts what is stopped and goes on with what is paused. The partitions come within the next moments, as when a process
   * joins.
   * @throws MqError `MQ_HANDLER_NOT_FOUND`, or `MQ_DISABLED` with `enabled: false`
   */
  async start(filter: HandlerFilter | string): Promise<void> {
    const found = this.some(filter);
    if (!this.options.enabled) throw new MqError('MQ_DISABLED', 'the queue is disabled by `enabled: false`');
    await this.begin();
    for (const handler of found) this.runtime.control.start(handler);
  }

  /**
   * Gives up the partitions in order: the running calls end and are settled, and other processes that consume the topic in
   * this group take over. Resolves when that is done; without another process the messages wait in Redis.
   * @throws MqError `MQ_HANDLER_NOT_FOUND`
   */
  async stop(filter: HandlerFilter | string): Promise<void> {
    await Promise.all(this.some(filter).map((handler) => this.runtime.control.stop(handler)));
  }

  /**
   * Begins no further call and keeps the partitions, so that their messages wait: for a short time, as while a service that
   * the handler needs is away. `start` goes on. Resolves when the running calls have ended.
   * @throws MqError `MQ_HANDLER_NOT_FOUND`
   */
  async pause(filter: HandlerFilter | string): Promise<void> {
    await Promise.all(this.some(filter).map((handler) => this.runtime.control.pause(handler)));
  }

  private some(filter: HandlerFilter | string): readonly HandlerRef[] {
    const found = this.matching(filter);
    if (found.length > 0) return found;
    const known = this.definitions.map(({ name, topic, group }) => `${name} (${topic}, ${group})`).join(', ');
    throw new MqError(
      'MQ_HANDLER_NOT_FOUND',
      `no handler of this process is ${JSON.stringify(filter)}; there is ${known === '' ? 'none' : known}`,
    );
  }

  private matching(filter: HandlerFilter | string): readonly HandlerDefinition[] {
    const { name, topic, group } =
      typeof filter === 'string' ? { name: filter } : (Object(filter as unknown) as HandlerFilter);
    return this.definitions.filter(
      (handler) =>
        (name === undefined || handler.name === name) &&
        (topic === undefined || handler.topic === topic) &&
        (group === undefined || handler.group === group),
    );
  }
}
