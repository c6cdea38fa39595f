import { Inject, Module, type DynamicModule, type Type } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { TerminusModule } from '@nestjs/terminus';
import { MqInvalidOptionsError } from '../../core/errors.js';
import { ConsumptionModule } from '../consumption.module.js';
import { NestMqLogger } from '../mq-logger.js';
import { livenessController, metricsController, readinessController } from './endpoint-controllers.js';
import { endpointPaths, type EndpointPath, type MqEndpointsOptions } from './endpoint-options.js';
import { getRoutes } from './taken-routes.js';

/** Marks our controllers: a default path of one instance gives way to a path that was given to another. */
const DEFAULT_ENDPOINT = Symbol('default-endpoint');
const ENDPOINTS = Symbol('endpoints');

interface Endpoint extends EndpointPath {
  readonly controller: Type;
}

interface Endpoints {
  readonly instanceName: string;
  readonly all: readonly Endpoint[];
}

/** Serves health and metrics of one module instance, where the application does not do it itself. */
@Module({})
export class MqEndpointsModule {
  /** Runs when all modules are known and no route is registered yet. */
  constructor(
    @Inject(ModulesContainer) modules: ModulesContainer,
    @Inject(ENDPOINTS) { instanceName, all }: Endpoints,
  ) {
    const everyModule = [...modules.values()];
    const own = everyModule.find(({ controllers }) => all.some(({ controller }) => controllers.has(controller)));
    const routes = getRoutes(everyModule.filter((module) => module !== own));
    const hasPrometheus = everyModule.some(isPrometheusModule);

    const problems: string[] = [];
    for (const { path, isExplicit, option, controller } of all) {
      const route = routes.get(path);
      const isOursByDefault = route !== undefined && Reflect.hasMetadata(DEFAULT_ENDPOINT, route.controller);
      const byRoute = route === undefined || (isOursByDefault && isExplicit) ? undefined : route.name;
      const servedBy = byRoute ?? (hasPrometheus && path === '/metrics' ? 'PrometheusModule' : undefined);
      if (servedBy === undefined) continue;
      if (isExplicit) {
        problems.push(`${option}: GET ${path} is served by ${servedBy} already; give another path, or leave it out`);
        continue;
      }
      own?.controllers.delete(controller);
      new NestMqLogger(instanceName).log("the path is the application's own, the queue's endpoint there is off", {
        path,
        servedBy,
      });
    }
    if (problems.length > 0) throw new MqInvalidOptionsError(problems);
  }

  static register(options: MqEndpointsOptions, instanceName: string): DynamicModule {
    const { decorators = [] } = options;
    const { ready, live, metrics } = endpointPaths(options);
    const all = [
      endpoint(ready, (path) => readinessController(path, decorators)),
      endpoint(live, (path) => livenessController(path, decorators)),
      endpoint(metrics, (path) => metricsController(path, decorators, instanceName)),
    ].filter((each) => each !== null);
    return {
      module: MqEndpointsModule,
      // Its logger would write an error for each probe that fails.
      imports: [ConsumptionModule, TerminusModule.forRoot({ logger: false })],
      controllers: all.map(({ controller }) => controller),
      providers: [{ provide: ENDPOINTS, useValue: { instanceName, all } satisfies Endpoints }],
    };
  }
}

function endpoint(at: EndpointPath | null, make: (path: string) => Type): Endpoint | null {
  if (at === null) return null;
  const controller = make(at.path);
  if (!at.isExplicit) Reflect.defineMetadata(DEFAULT_ENDPOINT, true, controller);
  return { ...at, controller };
}

/**
 * That of `@willsoto/nestjs-prometheus`, known by the token of its options: an application without it need not have it, and one
 * that has another copy than ours has it all the same.
 */
function isPrometheusModule({ providers }: { readonly providers: ReadonlyMap<unknown, unknown> }): boolean {
  return [...providers.keys()].some((token) => typeof token === 'symbol' && token.description === 'PROMETHEUS_OPTIONS');
}
