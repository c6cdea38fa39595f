import { DEFAULT_INSTANCE } from './instance-name.js';
import { subscribe, toTopic, type AnyTopic, type StreamHandlerExtras } from './stream-handler.decorator.js';

/** Handler options, and what becomes of a letter that was handled. */
export interface DeadLetterHandlerExtras extends Omit<StreamHandlerExtras, 'batch' | 'ttlMs'> {
  /**
   * Where the group begins when it is new: with all dead letters that are there, whatever the module's `startFrom`.
   * @defaultValue 'earliest'
   */
  readonly startFrom?: 'earliest' | 'latest';

  /**
   * Whether a letter that was handled is deleted for good. Otherwise it stays in the DLQ for people, and this handler does
   * not get it again.
   *
   * Hazard: what is deleted cannot be replayed.
   * @defaultValue false
   */
  readonly deleteOnSuccess?: boolean;

  /**
   * How often `ctx.replay()` may have put a message back before it is left to people. Each replay that fails again makes a
   * dead letter, which comes here again.
   * @defaultValue 3
   */
  readonly maxReplays?: number;
}

const MAX_REPLAYS = 3;

/**
 * Makes a method the handler of the dead letters of a topic, of all its groups or of one. It is called with the payload as
 * it was sent (`null` when it cannot be decoded) and a `DeadLetterContext`.
 *
 * A letter that was handled stays in the DLQ, unless the handler replays it or `deleteOnSuccess` is set. One for which the
 * handler fails is retried as messages are, and then left where it is: there are no dead letters of dead letters.
 *
 * @example
 * ```ts
 * @DeadLetterHandler('orders', 'billing')
 * async onDeadOrder(order: unknown, ctx: DeadLetterContext): Promise<void> {
 *   if (ctx.deadLetter.reason === 'exhausted') await ctx.replay();
 *   else await this.alerts.raise(ctx.deadLetter);
 * }
 * ```
 * @publicApi
 */
export function DeadLetterHandler(
  topic: AnyTopic | readonly AnyTopic[],
  group?: string,
  extras: DeadLetterHandlerExtras = {},
): MethodDecorator {
  const { instance = DEFAULT_INSTANCE, schema, autoStart, deleteOnSuccess = false, ...rest } = extras;
  const { maxReplays = MAX_REPLAYS, ...options } = rest;
  // A topic's schema is not asked: what died of it would die again.
  const topics = ([topic].flat() as readonly AnyTopic[]).map((each) => ({ ...toTopic(each), schema: undefined }));
  const deadLetters = { deleteOnSuccess, maxReplays };
  return subscribe({ topics, group, instance, schema, autoStart, options, deadLetters }, '@DeadLetterHandler');
}
