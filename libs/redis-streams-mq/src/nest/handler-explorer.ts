import { Inject, Injectable } from '@nestjs/common';
import { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { MqInvalidHandlerError } from '../core/errors.js';
import type { HandlerDefinition } from '../core/handler.js';
import { resolveHandlerOptions } from '../core/handler-options.js';
import { nameProblem } from '../core/names.js';
import type { ResolvedMqOptions } from '../core/options.js';
import { isStandardSchema, type StandardSchema } from '../core/standard-schema.js';
import { makeInvoker } from './handler-invoker.js';
import type { InstanceWrapper } from './message-scope.js';
import type { MqLogger } from './mq-logger.js';
import { StreamContextCreator, type StreamContextOptions } from './stream-context-creator.js';
import { StreamHandlerAccessor } from './stream-handler.accessor.js';
import type { StreamSubscription, SubscribedTopic } from './stream-handler.decorator.js';

/** A module instance as far as its handlers are concerned. */
export interface HandlerOwner {
  readonly options: ResolvedMqOptions;
  readonly globalEnhancers: boolean;
  readonly logger: MqLogger;
}

/** A method with subscriptions. */
interface FoundHandler {
  readonly wrapper: InstanceWrapper;
  /** What Nest has made; for a class whose instances are made per message, an object of its kind. */
  readonly instance: object;
  readonly method: string;
  /** `Class.method`. */
  readonly name: string;
  readonly subscriptions: readonly StreamSubscription[];
}

/**
 * Finds the handlers among the providers and controllers of the application, and refuses those that cannot work. Starts
 * nothing.
 */
@Injectable()
export class HandlerExplorer {
  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(MetadataScanner) private readonly scanner: MetadataScanner,
    @Inject(StreamHandlerAccessor) private readonly accessor: StreamHandlerAccessor,
    @Inject(StreamContextCreator) private readonly contexts: StreamContextCreator,
  ) {}

  /**
   * The handlers of each module instance, by its name.
   *
   * @throws MqInvalidHandlerError with all that is wrong with any of them.
   */
  explore(owners: ReadonlyMap<string, HandlerOwner>): ReadonlyMap<string, readonly HandlerDefinition[]> {
    const exploration = new Exploration(owners, this.contexts);
    for (const found of this.find()) exploration.add(found);
    return exploration.finish();
  }

  private *find(): Generator<FoundHandler> {
    // One instance may stand under several tokens and in several modules.
    const seen = new Set<object>();
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      if (wrapper.isAlias) continue;
      const instance = sampleOf(wrapper);
      if (instance === null || seen.has(instance)) continue;
      seen.add(instance);
      const prototype = Object.getPrototypeOf(instance) as object | null;
      for (const method of this.scanner.getAllMethodNames(prototype)) {
        const subscriptions = this.accessor.subscriptions(prototype as object, method);
        if (subscriptions.length === 0) continue;
        yield { wrapper, instance, method, name: `${instance.constructor.name}.${method}`, subscriptions };
      }
    }
  }
}

/** One pass: collects definitions and problems, so that all problems are told at once. */
class Exploration {
  private readonly problems: string[] = [];
  private readonly definitions = new Map<string, HandlerDefinition[]>();
  private readonly takenBy = new Map<string, FoundHandler>();

  constructor(
    private readonly owners: ReadonlyMap<string, HandlerOwner>,
    private readonly contexts: StreamContextCreator,
  ) {
    for (const name of owners.keys()) this.definitions.set(name, []);
  }

  add(found: FoundHandler): void {
    const scope = scopeProblem(found.wrapper);
    if (scope !== null) {
      this.problems.push(`${found.name} (${placeOf(found)}) ${scope}`);
      return;
    }
    for (const subscription of found.subscriptions) this.subscribe(found, subscription);
  }

  finish(): ReadonlyMap<string, readonly HandlerDefinition[]> {
    if (this.problems.length > 0) throw new MqInvalidHandlerError([...new Set(this.problems)]);
    return this.definitions;
  }

  private subscribe(found: FoundHandler, subscription: StreamSubscription): void {
    const owner = this.owners.get(subscription.instance);
    const definitions = this.definitions.get(subscription.instance);
    if (owner === undefined || definitions === undefined) {
      this.problems.push(`${found.name}: ${this.unknownInstance(subscription.instance)}`);
      return;
    }

    const group = this.groupOf(found, subscription, owner);
    const topics = this.topicsOf(found, subscription);
    const { options, problems } = optionsOf(found, subscription, owner);
    this.problems.push(...problems);
    const schemas = new Set(topics.map((topic) => subscription.schema ?? topic.schema));
    if (subscription.autoStart !== undefined && typeof subscription.autoStart !== 'boolean') {
      this.problems.push(`${found.name}: autoStart must be true or false`);
    }
    if (subscription.schema !== undefined && !isStandardSchema(subscription.schema)) {
      this.problems.push(`${found.name}: schema must be a Standard Schema: an object or function with "~standard"`);
    }
    // One pipeline for all topics of one schema; without topics it is still looked at for problems.
    const invokers = new Map(
      [...(schemas.size === 0 ? [undefined] : schemas)].map((schema) => [
        schema,
        this.invokerOf(found, owner, schema, options.batch),
      ]),
    );
    if (group === undefined) return;
    const { deadLetters } = subscription;
    for (const { name: topic, schema, partitions: partitionCount } of topics) {
      const invoke = invokers.get(subscription.schema ?? schema);
      if (invoke === undefined || !this.claim(found, subscription, topic, group)) continue;
      const { autoStart } = subscription;
      const definition = { topic, group, name: found.name, autoStart, partitionCount, options, ...invoke };
      const ofLetters = deadLetters && { ...deadLetters, ofGroup: subscription.group ?? null };
      definitions.push(ofLetters === undefined ? definition : { ...definition, deadLetters: ofLetters });
    }
  }

  private invokerOf(
    found: FoundHandler,
    owner: HandlerOwner,
    schema: StandardSchema | undefined,
    batch: StreamContextOptions['batch'],
  ): Pick<HandlerDefinition, 'invoke' | 'invokeBatch'> {
    const { instance, method, name } = found;
    let filterFailed = false;
    const { pipeline, invokeBatch, problems } = this.contexts.create(
      { instance, method, name, wrapper: found.wrapper, moduleKey: found.wrapper.host?.token ?? '' },
      {
        globalEnhancers: owner.globalEnhancers,
        schema,
        batch,
        onFilterError: (error) => {
          if (filterFailed) return;
          filterFailed = true;
          owner.logger.warn(
            'an exception filter threw while it was shown the error of a message; it should ask host.getType() first ' +
              '(further ones of this handler are not logged)',
            { handler: name, error },
          );
        },
      },
    );
    this.problems.push(...problems.map((problem) => `${name}: ${problem}`));
    return { invoke: makeInvoker(pipeline), invokeBatch };
  }

  private topicsOf(found: FoundHandler, { topics }: StreamSubscription): readonly SubscribedTopic[] {
    if (topics.length === 0) this.problems.push(`${found.name}: the list of topics is empty`);
    return topics.filter(({ name }) => this.accepts(found, nameProblem('topic', name)));
  }

  private groupOf(found: FoundHandler, subscription: StreamSubscription, owner: HandlerOwner): string | undefined {
    const { group, deadLetters } = subscription;
    if (deadLetters !== undefined) return this.letterGroupOf(found, group, deadLetters, owner);
    const used = group ?? owner.options.defaultConsumerGroup;
    if (used !== undefined) return this.accepts(found, nameProblem('group', used)) ? used : undefined;
    this.problems.push(`${found.name}: no group; name one in @StreamHandler, or set the module's defaultConsumerGroup`);
    return undefined;
  }

  /** The group that consumes dead letters: of one group its name and a suffix, of all the module's `defaultDlqGroup`. */
  private letterGroupOf(
    found: FoundHandler,
    group: string | undefined,
    { deleteOnSuccess, maxReplays }: NonNullable<StreamSubscription['deadLetters']>,
    { options }: HandlerOwner,
  ): string | undefined {
    if (typeof deleteOnSuccess !== 'boolean')
      this.problems.push(`${found.name}: deleteOnSuccess must be true or false`);
    if (!Number.isSafeInteger(maxReplays) || maxReplays < 0)
      this.problems.push(`${found.name}: maxReplays must be an integer of at least 0`);
    if (group === undefined) return options.defaultDlqGroup;
    const named = this.accepts(found, nameProblem('group', group)) ? `${group}${options.dlqConsumerSuffix}` : undefined;
    return named !== undefined && this.accepts(found, nameProblem('group', named)) ? named : undefined;
  }

  private accepts(found: FoundHandler, problem: string | undefined): boolean {
    if (problem !== undefined) this.problems.push(`${found.name}: ${problem}`);
    return problem === undefined;
  }

  private unknownInstance(name: unknown): string {
    const known = [...this.owners.keys()].map((each) => JSON.stringify(each)).join(', ');
    return `no instance of the module is named ${JSON.stringify(name)}; there is ${known === '' ? 'none' : known}`;
  }

  /** A group is one reader: with two handlers of one topic each would get part of its messages. */
  private claim(found: FoundHandler, { instance }: StreamSubscription, topic: string, group: string): boolean {
    // Also where one of them handles dead letters: handlers are started, stopped and shown by topic and group.
    const key = JSON.stringify([instance, topic, group]);
    const other = this.takenBy.get(key);
    if (other === undefined) {
      this.takenBy.set(key, found);
      return true;
    }
    const what = `topic "${topic}" in group "${group}"`;
    if (other.instance === found.instance && other.method === found.method) {
      this.problems.push(`${found.name} names ${what} twice`);
    } else {
      this.problems.push(
        `${what} has two handlers: ${other.name} (${placeOf(other)}) and ${found.name} (${placeOf(found)}); ` +
          'give them different groups, or provide the class once',
      );
    }
    return false;
  }
}

/** What holds for a handler; one of dead letters begins with those that are there unless it says otherwise itself. */
function optionsOf(
  { name }: FoundHandler,
  { options: given, deadLetters }: StreamSubscription,
  { options: ofModule }: HandlerOwner,
): { readonly options: HandlerDefinition['options']; readonly problems: readonly string[] } {
  if (deadLetters === undefined) {
    const { resolved, problems } = resolveHandlerOptions(given, ofModule, name);
    return { options: resolved, problems };
  }
  const { resolved, problems } = resolveHandlerOptions(given, { ...ofModule, startFrom: 'earliest' }, name);
  const further: string[] = [];
  if (resolved.batch !== undefined)
    further.push(`${name}: @DeadLetterHandler handles one letter after the other; it goes with no batch`);
  if (resolved.ttlMs > 0)
    further.push(`${name}: @DeadLetterHandler is shown every letter, however old; it goes with no ttlMs`);
  return { options: resolved, problems: [...problems, ...further] };
}

function placeOf({ wrapper }: FoundHandler): string {
  const module = wrapper.host?.metatype.name ?? 'no module';
  const token: unknown = wrapper.token;
  const isOwnClass = token === wrapper.metatype;
  return `provided in ${module}${isOwnClass ? '' : ` as ${typeof token === 'function' ? token.name : String(token)}`}`;
}

/** The object, or one that shows the methods which the objects made per message will have. */
function sampleOf(wrapper: InstanceWrapper): object | null {
  const instance: unknown = wrapper.instance;
  if (typeof instance === 'object' && instance !== null) return instance;
  // A request-scoped factory: its class is known only by the token.
  const { token } = wrapper;
  const isScopedFactory = typeof token === 'function' && wrapper.isFactory && !wrapper.isDependencyTreeStatic();
  return isScopedFactory ? (Object.create(token.prototype as object) as object) : null;
}

/** Such a class has no instance of its own; what Nest shows of it is an object whose constructor never ran. */
function scopeProblem(wrapper: InstanceWrapper): string | null {
  if (!wrapper.isTransient) return null;
  return 'is transient and has no instance of its own; make it a singleton, or request-scoped for an instance per message';
}
