import {
  Inject,
  Module,
  type DynamicModule,
  type FactoryProvider,
  type OnApplicationShutdown,
  type OnModuleInit,
  type Provider,
} from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { systemClock } from '../core/clock.js';
import { MqInvalidOptionsError } from '../core/errors.js';
import { composeMq } from './compose.js';
import { ConsumptionModule } from './consumption.module.js';
import { defaultRegistry } from '../metrics/default-registry.js';
import { endpointProblems } from './endpoints/endpoint-options.js';
import { MqEndpointsModule } from './endpoints/endpoints.module.js';
import { DEFAULT_INSTANCE } from './instance-name.js';
import { LogListener } from './log-listener.js';
import {
  resolveModuleOptions,
  splitOptions,
  type MqModuleExtras,
  type MqOptionsFactory,
  type MqQueueOptions,
  type RedisStreamsMqModuleAsyncOptions,
  type RedisStreamsMqModuleOptions,
} from './module-options.js';
import { MqConsumption } from './mq-consumption.js';
import { MqHandlers } from './mq-handlers.js';
import { MqInstances, type MqInstance } from './mq-instances.js';
import { NestMqLogger } from './mq-logger.js';
import type { MqRuntime } from './runtime.js';
import {
  getDeadLetterQueueToken,
  getMqAdminToken,
  getMqHandlersToken,
  getMqHealthToken,
  getMqMetricsToken,
  getMqProducerToken,
} from './tokens.js';

/** Puts the objects of an instance together; a token, so that tests of the module need no Redis. */
export const MQ_COMPOSE: symbol = Symbol('composeMq');
const GIVEN_OPTIONS = Symbol('options of RedisStreamsMqModule');
/** Nest shows it to those who import the class without calling either. */
const THIS_INSTANCE = Symbol('RedisStreamsMqModule.forRoot() or forRootAsync()');

/**
 * The message queue as a Nest module. The part that holds the connections: first to be initialised, and closed when
 * everything else has shut down, because requests that are still served may send.
 *
 * @example
 * ```ts
 * @Module({ imports: [RedisStreamsMqModule.forRoot({ redis: 'redis://localhost:6379' })] })
 * export class AppModule {}
 * ```
 * @publicApi
 */
@Module({})
export class RedisStreamsMqModule implements OnModuleInit, OnApplicationShutdown {
  constructor(
    @Inject(ModulesContainer) modules: ModulesContainer,
    @Inject(THIS_INSTANCE) private readonly instance: MqInstance,
    @Inject(MqInstances) private readonly instances: MqInstances,
    @Inject(MqConsumption) private readonly consumption: MqConsumption,
  ) {
    // Above that of global modules: the first hook of all refuses bad handlers, and the last closes the connections.
    for (const module of modules.values()) {
      if (module.metatype === RedisStreamsMqModule) module.distance = Number.POSITIVE_INFINITY;
    }
  }

  /** Options that are known when the module is defined; `name`, `isGlobal`, `endpoints` and the like among them. */
  static forRoot(options: RedisStreamsMqModuleOptions = {}): DynamicModule {
    const { extras, queue } = splitOptions(options);
    return define(extras, [], { provide: GIVEN_OPTIONS, useValue: queue });
  }

  /**
   * Options that other providers make. What decides about the module itself (`name`, `isGlobal`, `endpoints`, ...) stands
   * beside the factory.
   */
  static forRootAsync(options: RedisStreamsMqModuleAsyncOptions): DynamicModule {
    const { imports = [], extraProviders = [], useClass } = options;
    const module = define(options, imports, givenBy(options), ...extraProviders);
    if (useClass !== undefined) module.providers?.push({ provide: useClass, useClass });
    return module;
  }

  async onModuleInit(): Promise<void> {
    try {
      const { name, options, runtime } = this.instance;
      const handlers = this.consumption.prepare().get(name) ?? [];
      if (options.enabled) await runtime.connect(handlers.length > 0 ? 'consume' : 'produce');
    } catch (error) {
      // After a failed start there may be no application to close, and open connections keep the process alive.
      await Promise.allSettled(this.instances.all().map(({ runtime }) => runtime.close()));
      throw error;
    }
  }

  async onApplicationShutdown(): Promise<void> {
    try {
      await this.instance.runtime.close();
    } catch (error) {
      this.instance.logger.error('connections could not be closed in order', { error });
    }
  }
}

function define(
  extras: MqModuleExtras,
  imports: NonNullable<DynamicModule['imports']>,
  ...providers: Provider[]
): DynamicModule {
  const { name = DEFAULT_INSTANCE, isGlobal = true } = extras;
  const parts: FactoryProvider[] = [
    part(getMqProducerToken(name), ({ producer }) => producer),
    part(getMqAdminToken(name), ({ admin }) => admin),
    part(getDeadLetterQueueToken(name), ({ deadLetters }) => deadLetters),
    {
      provide: getMqHandlersToken(name),
      useFactory: ({ handlers }: MqInstance) => handlers,
      inject: [THIS_INSTANCE],
    },
    part(getMqHealthToken(name), ({ health }) => health),
    part(getMqMetricsToken(name), ({ metrics }) => metrics),
  ];
  return {
    module: RedisStreamsMqModule,
    global: isGlobal,
    imports: [...imports, ConsumptionModule, ...endpointModules(name, extras.endpoints)],
    providers: [
      ...providers,
      { provide: MQ_COMPOSE, useValue: composeMq },
      {
        provide: THIS_INSTANCE,
        useFactory: (given: MqQueueOptions, instances: MqInstances, compose: typeof composeMq) =>
          makeInstance(name, given, extras, instances, compose),
        inject: [GIVEN_OPTIONS, MqInstances, MQ_COMPOSE],
      },
      ...parts,
    ],
    exports: parts.map(({ provide }) => provide),
  };
}

function makeInstance(
  name: string,
  given: MqQueueOptions,
  extras: MqModuleExtras,
  instances: MqInstances,
  compose: typeof composeMq,
): MqInstance {
  const options = resolveModuleOptions(given, extras);
  instances.refuseTwin(name);
  const logger = new NestMqLogger(name);
  const { registry = defaultRegistry, globalEnhancers = true } = extras;
  const runtime: MqRuntime = compose(options, { name, logger, registry });
  const handlers = new MqHandlers(runtime, options);
  const instance: MqInstance = { name, runtime, options, logger, registry, globalEnhancers, handlers };
  instances.add(instance);
  new LogListener(runtime.events, logger, systemClock).start();
  return instance;
}

function part(provide: FactoryProvider['provide'], of: (runtime: MqRuntime) => unknown): FactoryProvider {
  return { provide, useFactory: ({ runtime }: MqInstance) => of(runtime), inject: [THIS_INSTANCE] };
}

/** Bad values are refused at the boot, together with all others; here they must only do no harm. */
function endpointModules(name: string, endpoints: MqModuleExtras['endpoints']): DynamicModule[] {
  const options = endpoints ?? (name === DEFAULT_INSTANCE ? {} : false);
  if (options === false || endpointProblems(options).length > 0) return [];
  return [MqEndpointsModule.register(options, name)];
}

function givenBy(options: RedisStreamsMqModuleAsyncOptions): Provider {
  const { useFactory, useClass, useExisting, inject = [] } = options;
  const makers = [useFactory, useClass, useExisting].filter((maker) => maker !== undefined);
  if (makers.length !== 1) {
    const problem = 'forRootAsync needs exactly one of useFactory, useClass and useExisting';
    return {
      provide: GIVEN_OPTIONS,
      useFactory: () => {
        throw new MqInvalidOptionsError([problem]);
      },
    };
  }
  if (useFactory !== undefined) {
    return { provide: GIVEN_OPTIONS, useFactory: useFactory as FactoryProvider['useFactory'], inject };
  }
  return {
    provide: GIVEN_OPTIONS,
    useFactory: (factory: MqOptionsFactory) => factory.createMqOptions(),
    inject: [(useClass ?? useExisting) as NonNullable<typeof useExisting>],
  };
}
