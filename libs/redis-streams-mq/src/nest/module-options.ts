import type { FactoryProvider, InjectionToken, ModuleMetadata, Provider, Type } from '@nestjs/common';
import { MqInvalidOptionsError } from '../core/errors.js';
import type { KebabOptions } from '../core/kebab-options.js';
import { nameProblem } from '../core/names.js';
import type { MqOptions, ResolvedMqOptions } from '../core/options.js';
import { resolveOptions } from '../core/resolve-options.js';
import type { MetricsRegistry } from '../metrics/shared-metrics.js';
import { redisOptionProblems, type RedisOption } from '../redis/redis-option.js';
import { endpointProblems, type MqEndpointsOptions } from './endpoints/endpoint-options.js';

/** What must be known before the options are: it decides about tokens and controllers, and so about the module itself. */
export interface MqModuleExtras {
  /**
   * Name of this instance of the module, for applications with several. Handlers say `instance: 'name'`, and
   * `@InjectMqProducer('name')` injects.
   *
   * @defaultValue the instance without a name
   */
  readonly name?: string;

  /**
   * Whether every module of the application can inject the producer and the others.
   *
   * @defaultValue true
   */
  readonly isGlobal?: boolean;

  /**
   * `GET /health` (readiness), `/health/live` (liveness) and `/metrics`; `false` for none. What the application serves
   * itself is left to it.
   *
   * @defaultValue all three for the instance without a name, none for others
   */
  readonly endpoints?: MqEndpointsOptions | false;

  /**
   * Whether the application's global guards, interceptors, pipes and filters apply to handlers.
   *
   * Hazard: a global guard that asks for an HTTP request denies every message, which then is a dead letter. It should ask
   * `isStreamContext(host)` first, or be left out here.
   *
   * @defaultValue true
   */
  readonly globalEnhancers?: boolean;

  /**
   * prom-client registry of the metrics.
   *
   * @defaultValue prom-client's global `register`, which also `@willsoto/nestjs-prometheus` serves
   */
  readonly registry?: MetricsRegistry;
}

/** The queue's options, also as the block of a Spring Boot `application.yml` with its kebab-case names. */
export type MqQueueOptions = MqOptions<RedisOption> | KebabOptions<MqOptions<RedisOption>>;

/** What `forRoot` takes: the queue's options, and those of the module. */
export type RedisStreamsMqModuleOptions = MqQueueOptions & MqModuleExtras;

/** Makes the options, for `useClass` and `useExisting`. */
export interface MqOptionsFactory {
  createMqOptions(): MqQueueOptions | Promise<MqQueueOptions>;
}

/** Exactly one of `useFactory`, `useClass` and `useExisting`. */
export interface RedisStreamsMqModuleAsyncOptions extends MqModuleExtras, Pick<ModuleMetadata, 'imports'> {
  readonly useFactory?: (...args: never[]) => MqQueueOptions | Promise<MqQueueOptions>;
  readonly inject?: FactoryProvider['inject'];
  readonly useClass?: Type<MqOptionsFactory>;
  readonly useExisting?: InjectionToken<MqOptionsFactory>;
  /** Providers that the factory or class needs and that no imported module exports. */
  readonly extraProviders?: Provider[];
}

const EXTRAS = ['name', 'isGlobal', 'endpoints', 'globalEnhancers', 'registry'] as const;

/** Takes the extras from what was given to `forRoot`. What is no plain object is passed on, to be refused as such. */
export function splitOptions(options: RedisStreamsMqModuleOptions): { extras: MqModuleExtras; queue: MqQueueOptions } {
  if (Object.prototype.toString.call(options) !== '[object Object]') return { extras: {}, queue: options };
  const { name, isGlobal, endpoints, globalEnhancers, registry, ...queue } = options;
  return { extras: { name, isGlobal, endpoints, globalEnhancers, registry }, queue: queue as MqQueueOptions };
}

/** @throws MqInvalidOptionsError with all problems at once. */
export function resolveModuleOptions(queue: MqQueueOptions, extras: MqModuleExtras): ResolvedMqOptions {
  const problems = [...extrasProblems(extras), ...misplacedExtras(queue)];
  if (problems.length > 0) throw new MqInvalidOptionsError(problems);
  let resolved: ResolvedMqOptions | undefined;
  try {
    resolved = resolveOptions(queue);
  } catch (error) {
    if (!(error instanceof MqInvalidOptionsError)) throw error;
    problems.push(...error.problems);
  }
  problems.push(...redisOptionProblems((queue as { redis?: unknown } | undefined)?.redis));
  if (resolved === undefined || problems.length > 0) throw new MqInvalidOptionsError(problems);
  return resolved;
}

function extrasProblems({ name, isGlobal, endpoints, globalEnhancers }: MqModuleExtras): string[] {
  const problems = endpointProblems(endpoints);
  const badName = name === undefined ? undefined : nameProblem('instance', name);
  if (badName !== undefined) problems.push(badName);
  if (!isOptionalBoolean(isGlobal)) problems.push('isGlobal must be true or false');
  if (!isOptionalBoolean(globalEnhancers)) problems.push('globalEnhancers must be true or false');
  return problems;
}

function isOptionalBoolean(value: unknown): boolean {
  return value === undefined || typeof value === 'boolean';
}

function misplacedExtras(queue: unknown): string[] {
  if (typeof queue !== 'object' || queue === null) return [];
  return EXTRAS.filter((extra) => Object.hasOwn(queue, extra)).map(
    (extra) =>
      `${extra} must stand beside useFactory, useClass or useExisting: it is needed before the options are made`,
  );
}
