import {
  applyDecorators,
  Controller,
  Get,
  Inject,
  NotFoundException,
  Res,
  VERSION_NEUTRAL,
  type Type,
} from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { HealthCheck, HealthCheckService, type HealthCheckResult } from '@nestjs/terminus';
import type { MqHealthResult } from '../../health/health.js';
import { MqInstances, type MqInstance } from '../mq-instances.js';

// A class for each call: the path is metadata of the class, and two applications in one process may have different ones.

export function readinessController(path: string, decorators: readonly ClassDecorator[]): Type {
  return healthController(path, decorators, ({ runtime }) => runtime.health.readiness());
}

export function livenessController(path: string, decorators: readonly ClassDecorator[]): Type {
  return healthController(path, decorators, ({ runtime }) => runtime.health.liveness());
}

function healthController(
  path: string,
  decorators: readonly ClassDecorator[],
  ask: (instance: MqInstance) => Promise<MqHealthResult>,
): Type {
  @Controller({ path, version: VERSION_NEUTRAL })
  @applyDecorators(...decorators)
  class MqHealthController {
    constructor(
      @Inject(HealthCheckService) private readonly health: HealthCheckService,
      @Inject(MqInstances) private readonly instances: MqInstances,
    ) {}

    @Get()
    @HealthCheck()
    check(): Promise<HealthCheckResult> {
      // An instance that is switched off has no connection, and nothing is wrong with that.
      const asked = this.instances.all().filter(({ options }) => options.enabled);
      return this.health.check(asked.map((instance) => () => ask(instance)));
    }
  }
  return MqHealthController;
}

export function metricsController(path: string, decorators: readonly ClassDecorator[], instanceName: string): Type {
  @Controller({ path, version: VERSION_NEUTRAL })
  @applyDecorators(...decorators)
  class MqMetricsController {
    constructor(
      @Inject(HttpAdapterHost) private readonly host: HttpAdapterHost,
      @Inject(MqInstances) private readonly instances: MqInstances,
    ) {}

    // Not `passthrough`: an interceptor of the app that wraps responses must not wrap the exposition.
    @Get()
    async metrics(@Res() response: unknown): Promise<void> {
      const registry = this.instances.get(instanceName)?.registry;
      const isUsed = this.instances.all().some((each) => each.registry === registry && each.runtime.metrics !== null);
      if (registry === undefined || !isUsed) throw new NotFoundException('metrics are switched off');
      const text = await registry.metrics();
      const { httpAdapter } = this.host;
      httpAdapter.setHeader(response, 'Content-Type', registry.contentType);
      httpAdapter.reply(response, text, 200);
    }
  }
  return MqMetricsController;
}
