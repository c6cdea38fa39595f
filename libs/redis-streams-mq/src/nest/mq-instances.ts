import { Injectable } from '@nestjs/common';
import { MqInvalidOptionsError } from '../core/errors.js';
import type { MetricsRegistry } from '../metrics/shared-metrics.js';
import type { HandlerOwner } from './handler-explorer.js';
import { DEFAULT_INSTANCE } from './instance-name.js';
import type { MqHandlers } from './mq-handlers.js';
import type { MqRuntime } from './runtime.js';

/** One use of `forRoot` or `forRootAsync`. */
export interface MqInstance extends HandlerOwner {
  readonly name: string;
  readonly runtime: MqRuntime;
  readonly registry: MetricsRegistry;
  readonly handlers: MqHandlers;
}

/** The module instances of one application. */
@Injectable()
export class MqInstances {
  private readonly named = new Map<string, MqInstance>();

  /** @throws MqInvalidOptionsError when there is one of that name. */
  refuseTwin(name: string): void {
    if (!this.named.has(name)) return;
    const which = name === DEFAULT_INSTANCE ? 'have no name' : `are named "${name}"`;
    throw new MqInvalidOptionsError([
      `two instances of RedisStreamsMqModule ${which}; import it once, or give each a name: forRoot({ name: 'other' })`,
    ]);
  }

  add(instance: MqInstance): void {
    this.refuseTwin(instance.name);
    this.named.set(instance.name, instance);
  }

  get(name: string): MqInstance | undefined {
    return this.named.get(name);
  }

  all(): readonly MqInstance[] {
    return [...this.named.values()];
  }

  byName(): ReadonlyMap<string, MqInstance> {
    return this.named;
  }
}
