import { Inject, Injectable } from '@nestjs/common';
import type { HandlerDefinition } from '../core/handler.js';
import { HandlerExplorer } from './handler-explorer.js';
import { MqInstances, type MqInstance } from './mq-instances.js';
import type { MqLogger } from './mq-logger.js';

/** Bootstrap may run before the caller can enable the hooks, so it is too early to look then. */
const SIGTERM_CHECK_AFTER_MS = 5_000;

/**
 * Begins and ends the consumption of all module instances of an application.
 *
 * idle -> started -> stopped, or idle -> stopped when the application closes without having started.
 */
@Injectable()
export class MqConsumption {
  private state: 'idle' | 'started' | 'stopped' = 'idle';
  private handlers: ReadonlyMap<string, readonly HandlerDefinition[]> | undefined;
  private sigtermCheck: NodeJS.Timeout | undefined;
  private stopping: Promise<void> | undefined;

  constructor(
    @Inject(MqInstances) private readonly instances: MqInstances,
    @Inject(HandlerExplorer) private readonly explorer: HandlerExplorer,
  ) {}

  /**
   * Finds the handlers, once for all instances.
   *
   * @throws MqInvalidHandlerError when one of them cannot work.
   */
  prepare(): ReadonlyMap<string, readonly HandlerDefinition[]> {
    this.handlers ??= this.explorer.explore(this.instances.byName());
    return this.handlers;
  }

  async start(): Promise<void> {
    if (this.state !== 'idle') return;
    this.state = 'started';
    const handlers = this.prepare();
    for (const instance of this.instances.all()) {
      if (this.isStopped()) return;
      await this.startInstance(instance, handlers.get(instance.name) ?? []);
    }
  }

  /** Idempotent, and safe without `start()`. Never rejects: on Nest 11 that would skip the hooks of the application. */
  stop(): Promise<void> {
    this.stopping ??= this.stopAll();
    return this.stopping;
  }

  private async startInstance(instance: MqInstance, handlers: readonly HandlerDefinition[]): Promise<void> {
    const { options, logger } = instance;
    const { handlers: control } = instance;
    control.found(handlers, () => this.watchSigterm(logger));
    for (const { name, topic, group } of handlers) logger.log('handler found', { handler: name, topic, group });
    const isWanted = options.autoStart || handlers.some(({ autoStart }) => autoStart);
    if (!options.enabled || !isWanted) {
      const reason = options.enabled ? 'autoStart is false' : 'enabled is false';
      logger.log('handlers are not started', { reason, handlers: handlers.length });
      return;
    }
    await control.begin();
  }

  private async stopAll(): Promise<void> {
    this.state = 'stopped';
    clearTimeout(this.sigtermCheck);
    const instances = this.instances.all();
    const results = await Promise.allSettled(instances.map(({ runtime }) => runtime.stop()));
    for (const [index, result] of results.entries()) {
      if (result.status === 'rejected') {
        instances[index]?.logger.error('consumption could not be stopped in order', { error: result.reason });
      }
    }
  }

  private watchSigterm(logger: MqLogger): void {
    if (this.sigtermCheck !== undefined || this.isStopped()) return;
    this.sigtermCheck = setTimeout(() => {
      if (process.listenerCount('SIGTERM') > 0) return;
      logger.warn(
        'nothing listens to SIGTERM: a deployment will kill running handlers, and their partitions wait until the ' +
          'leases end; call app.enableShutdownHooks()',
      );
    }, SIGTERM_CHECK_AFTER_MS).unref();
  }

  /** A method, because the state changes while something is awaited. */
  private isStopped(): boolean {
    return this.state === 'stopped';
  }
}
