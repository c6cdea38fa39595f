import { pathToFileURL } from 'node:url';
import type { Payload } from '../payloads.js';
import type { HandlerDefinition } from '../../../libs/redis-streams-mq/src/core/handler.js';
import type * as HandlerOptions from '../../../libs/redis-streams-mq/src/core/handler-options.js';
import type * as Options from '../../../libs/redis-streams-mq/src/core/resolve-options.js';
import type * as Compose from '../../../libs/redis-streams-mq/src/nest/compose.js';
import type { Contender, ContenderContext, Handle, Topic } from './contender.js';
import { groupNames } from './group-names.js';
import { libraryFile } from '../library.js';

const silent = { log: () => undefined, warn: () => undefined, error: () => undefined, debug: () => undefined };

/** The engine without Nest around a handler: an extra, to see what the pipeline costs. It looks inside the package. */
export const makeEngine = (context: ContenderContext): Contender => ({
  create: async () => undefined,
  producer: () => Promise.reject(new Error('the engine alone only consumes here')),
  async consume(topic, handle) {
    const { composeMq } = await load<typeof Compose>('nest/compose.js');
    const { resolveOptions } = await load<typeof Options>('core/resolve-options.js');
    const resolved = resolveOptions({
      redis: context.urls.redis,
      defaultPartitionCount: topic.partitions,
      ...context.settings,
    });
    const runtime = composeMq(resolved, { name: 'default', logger: silent });
    await runtime.connect();
    await runtime.start(await definitions(topic, handle, resolved));
    return { close: () => runtime.close() };
  },
  remove: async () => undefined,
});

async function definitions(
  topic: Topic,
  handle: Handle,
  module: Parameters<typeof HandlerOptions.resolveHandlerOptions>[1],
): Promise<HandlerDefinition[]> {
  const { resolveHandlerOptions } = await load<typeof HandlerOptions>('core/handler-options.js');
  const options = resolveHandlerOptions({}, module, topic.name).resolved;
  return groupNames(topic).map((group) => ({
    topic: topic.name,
    group,
    name: 'bench',
    options,
    invoke: async ({ payload, context }) => {
      handle(payload as Payload, context.attempt);
      return { type: 'success' };
    },
  }));
}

async function load<T>(file: string): Promise<T> {
  return (await import(pathToFileURL(libraryFile(file)).href)) as T;
}
