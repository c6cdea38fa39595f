import { batchOutcomes } from '../../libs/redis-streams-mq/src/core/batch-results.js';
import type {
  HandlerDefinition,
  HandlerOutcome,
  ReceivedMessage,
} from '../../libs/redis-streams-mq/src/core/handler.js';
import {
  resolveHandlerOptions,
  type StreamHandlerOptions,
} from '../../libs/redis-streams-mq/src/core/handler-options.js';
import { outcomeOf } from '../../libs/redis-streams-mq/src/core/results.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import { resolveOptions } from '../../libs/redis-streams-mq/src/core/resolve-options.js';
import { composeMq, type ComposeDeps } from '../../libs/redis-streams-mq/src/nest/compose.js';
import type { Use } from '../../libs/redis-streams-mq/src/redis/needed-commands.js';
import type { MqRuntime } from '../../libs/redis-streams-mq/src/nest/runtime.js';

type Handle = (message: ReceivedMessage) => unknown;
type HandleBatch = (messages: readonly ReceivedMessage[]) => unknown;

export interface TestHandler {
  topic: string;
  group: string;
  handle?: Handle;
  /** With the option `batch`, in place of `handle`. */
  handleBatch?: HandleBatch;
  options?: StreamHandlerOptions;
  /** It handles the dead letters of the topic. */
  deadLetters?: HandlerDefinition['deadLetters'];
}

const silent = { log: () => undefined, warn: () => undefined, error: () => undefined, debug: () => undefined };

/** The engine as the module puts it together, without Nest: one instance, connected, with short intervals. */
export class TestInstance {
  private constructor(readonly runtime: MqRuntime) {}

  static async open(options: MqOptions, deps: Partial<ComposeDeps> = {}, use?: Use): Promise<TestInstance> {
    const resolved = resolveOptions({
      retryBaseBackoffMs: 20,
      retryMaxBackoffMs: 100,
      drainTimeoutMs: 5_000,
      ...options,
    });
    const runtime = composeMq(resolved, { name: 'default', logger: silent, ...deps });
    await runtime.connect(use);
    return new TestInstance(runtime);
  }

  get producer(): MqRuntime['producer'] {
    return this.runtime.producer;
  }

  async start(...handlers: TestHandler[]): Promise<this> {
    await this.runtime.start(handlers.map((handler) => this.define(handler)));
    return this;
  }

  async close(): Promise<void> {
    await this.runtime.close();
  }

  private define({
    topic,
    group,
    handle = () => undefined,
    handleBatch,
    options,
    deadLetters,
  }: TestHandler): HandlerDefinition {
    const { resolved, problems } = resolveHandlerOptions(options, this.runtime.options, `${topic}/${group}`);
    if (problems.length > 0) throw new Error(problems.join('\n'));
    return {
      topic,
      group,
      name: `Test.${topic}.${group}`,
      options: resolved,
      invoke: (message) => run(handle, message),
      ...(handleBatch && { invokeBatch: (messages) => runBatch(handleBatch, messages) }),
      ...(deadLetters && { deadLetters }),
    };
  }
}

async function run(handle: Handle, message: ReceivedMessage): Promise<HandlerOutcome> {
  try {
    return outcomeOf({ value: await handle(message) });
  } catch (error) {
    return outcomeOf({ error });
  }
}

async function runBatch(handle: HandleBatch, messages: readonly ReceivedMessage[]): Promise<readonly HandlerOutcome[]> {
  try {
    return batchOutcomes({ value: await handle(messages) }, messages);
  } catch (error) {
    return batchOutcomes({ error }, messages);
  }
}
