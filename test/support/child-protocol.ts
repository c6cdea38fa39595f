import type { DeadLetterSubscription } from '../../libs/redis-streams-mq/src/core/handler.js';
import type { StreamHandlerOptions } from '../../libs/redis-streams-mq/src/core/handler-options.js';
import type { MqEventName } from '../../libs/redis-streams-mq/src/core/events.js';
import type { MqOptions } from '../../libs/redis-streams-mq/src/core/options.js';
import type { HandlerCall } from './handling-record.js';

/** What a child's handler does beside recording itself, by the number in the payload. */
export interface ChildBehaviour {
  /** Each call takes this long, in milliseconds. */
  handleMs?: number;
  /** Calls for these take this long instead, in milliseconds; they do not look at their signal. */
  slowOn?: Record<number, number>;
  /** Calls for these block the event loop this long, in milliseconds. */
  spinOn?: Record<number, number>;
  /** Calls for these kill their process. */
  dieOn?: number[];
  /** Calls for these fail. */
  failOn?: number[];
}

export interface ChildSetup {
  /** Names the child in the record. */
  name: string;
  options: MqOptions;
  handlers: {
    topic: string;
    group: string;
    behaviour?: ChildBehaviour;
    options?: StreamHandlerOptions;
    deadLetters?: DeadLetterSubscription;
  }[];
  /** By how much this process' wall clock is wrong, in milliseconds. */
  clockSkewMs?: number;
}

export type ToChild = { type: 'setup'; setup: ChildSetup } | { type: 'scrape' } | { type: 'close' };

export type FromChild =
  | { type: 'loaded' }
  | { type: 'started' }
  | { type: 'call'; at: number; call: HandlerCall }
  | { type: 'end'; at: number; endedAt: number }
  /** `at`: on the clock of `nowMs`. */
  | { type: 'event'; name: MqEventName; payload: unknown; at: number }
  | { type: 'metrics'; text: string }
  | { type: 'closed'; afterMs: number };
