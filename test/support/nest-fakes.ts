import { MqEvents } from '../../libs/redis-streams-mq/src/core/events.js';
import type { HandlerDefinition, StreamContext } from '../../libs/redis-streams-mq/src/core/handler.js';
import type { ResolvedMqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { LogFields, MqLogger } from '../../libs/redis-streams-mq/src/nest/mq-logger.js';
import type { MqRuntime } from '../../libs/redis-streams-mq/src/nest/runtime.js';

/** A context as the engine would make it, for specs. */
export function streamContext(fields: Partial<StreamContext> = {}): StreamContext {
  return {
    topic: 'orders',
    partition: 0,
    group: 'billing',
    id: '1-0',
    key: 'customer-1',
    headers: { tenant: 'acme' },
    eventId: '018f3c5e-7b1a-7000-8000-000000000001',
    attempt: 1,
    epoch: 7,
    timestamp: 1,
    publishedAt: 1,
    rawFields: {},
    signal: new AbortController().signal,
    heartbeat: async () => {},
    ...fields,
  };
}

export interface LoggedLine {
  readonly level: keyof MqLogger;
  readonly message: string;
  readonly fields: LogFields;
}

/** A logger that keeps what it is told. */
export function recordingLogger(): { logger: MqLogger; lines: LoggedLine[] } {
  const lines: LoggedLine[] = [];
  const at =
    (level: keyof MqLogger) =>
    (message: string, fields: LogFields = {}): void =>
      void lines.push({ level, message, fields });
  return { logger: { log: at('log'), warn: at('warn'), error: at('error'), debug: at('debug') }, lines };
}

export interface FakeRuntime {
  readonly runtime: MqRuntime;
  /** Names of the calls, such as `connect` and `start`, in order. */
  readonly calls: string[];
  readonly started: HandlerDefinition[];
}

/** A module instance without Redis; `override` replaces parts of it. */
export function fakeRuntime(
  name: string,
  options: ResolvedMqOptions,
  override: Partial<MqRuntime> = {},
  calls: string[] = [],
): FakeRuntime {
  const started: HandlerDefinition[] = [];
  const record = (call: string) => async (): Promise<void> => void calls.push(`${name}.${call}`);
  const health = {
    readiness: async () => ({ [name]: { status: 'up' } }),
    liveness: async () => ({ [name]: { status: 'up', alive: true } }),
  };
  // Parts are only passed on, so that their identity is what matters.
  const runtime = {
    name,
    options,
    events: new MqEvents(),
    producer: { part: `producer of ${name}` },
    admin: { part: `admin of ${name}` },
    deadLetters: { part: `dead letters of ${name}` },
    metrics: { part: `metrics of ${name}` },
    health,
    control: { handlers: [], start: () => undefined, stop: async () => undefined, pause: async () => undefined },
    connect: record('connect'),
    stop: record('stop'),
    close: record('close'),
    start: async (handlers: readonly HandlerDefinition[]) => {
      calls.push(`${name}.start`);
      started.push(...handlers);
    },
    ...override,
  } as unknown as MqRuntime;
  return { runtime, calls, started };
}
