import type { DeadLetter, DeadLetterEdit } from '../core/dead-letter.js';
import type { Clock } from '../core/clock.js';
import { MqAdminError, thrownText } from '../core/errors.js';
import type { MqEvents } from '../core/events.js';
import type { DeadLetterContext, DeadLetterSubscription, StreamContext } from '../core/handler.js';
import { Backoff } from '../core/retry-policy.js';
import type { Connection } from '../redis/connection.js';
import { classifyRedisError } from '../redis/redis-errors.js';
import { call } from '../redis/script.js';
import { dlqTakeOut } from '../redis/scripts/dlq-take-out.script.js';
import type { Entry } from './entry.js';
import type { Lease } from './lease.js';

/** The dead letters themselves, which another part keeps. */
export interface LetterAccess {
  /** `null` when it is not there any more. */
  read(topic: string, partition: number, id: string): Promise<DeadLetter | null>;
  replay(letter: DeadLetter, edit: DeadLetterEdit | undefined): Promise<boolean>;
}

export interface LetterDeskDeps {
  readonly letters: LetterAccess;
  readonly subscription: DeadLetterSubscription;
  readonly lease: Lease;
  readonly connection: Connection;
  readonly clock: Clock;
  readonly events: MqEvents;
}

/**
 * What is particular to an entry that is a dead letter. It stays in the DLQ whatever its handler does, unless that replays
 * it or is to delete it: a handler that fails leaves no dead letter of a dead letter. What people have replayed or deleted
 * meanwhile is not handled.
 */
export class LetterDesk {
  constructor(private readonly deps: LetterDeskDeps) {}

  /** The letter of an entry; `skip`: it is gone or of another group; `null`: this ownership ends first. */
  async open(entry: Entry, signal: AbortSignal): Promise<DeadLetter | 'skip' | null> {
    const { letters, lease, subscription } = this.deps;
    const { topic, partition } = lease.terms;
    const letter = await this.untilDone(signal, () => letters.read(topic, partition, entry.origin));
    if (letter === undefined) return null;
    if (letter.value === null) return 'skip';
    const { ofGroup } = subscription;
    return ofGroup === null || letter.value.group === ofGroup ? letter.value : 'skip';
  }

  /** The handler is done with it. False when this ownership ends first: it is handled again. */
  async handled(entry: Entry, signal: AbortSignal): Promise<boolean> {
    const { lease, connection, subscription, events } = this.deps;
    if (!subscription.deleteOnSuccess) return true;
    const { topic, partition, token, keys } = lease.terms;
    const reply = await this.untilDone(signal, () =>
      connection.run(call(dlqTakeOut, keys, { token, id: entry.origin })),
    );
    if (reply === undefined) return false;
    const { status } = reply.value;
    if (status === 'fenced') lease.lose('taken');
    if (status === 'deleted') events.emit('deadLetterDeleted', { topic, partition, count: 1, by: 'delete' });
    return status !== 'fenced';
  }

  /** It failed for good. The letter is where it was. */
  givenUp(entry: Entry, attempts: number, error: unknown): void {
    const { topic, partition, group } = this.deps.lease.terms;
    const letter = `${partition}/${entry.origin}`;
    const text = error === undefined ? '' : thrownText(error);
    this.deps.events.emit('warning', {
      message: 'a dead-letter handler gave up on a letter, which stays among the dead letters',
      fields: { topic, group, letter, attempts, error: text },
    });
  }

  /** The same context, with what a dead letter adds to it. */
  extend(context: StreamContext, letter: DeadLetter): DeadLetterContext {
    const { letters, subscription } = this.deps;
    return Object.defineProperties(context as DeadLetterContext, {
      deadLetter: { value: letter, enumerable: true },
      replay: {
        enumerable: true,
        value: async (edit?: DeadLetterEdit): Promise<boolean> => {
          const { topic, id, group, deathCount } = letter;
          if (deathCount < subscription.maxReplays) return letters.replay(letter, edit);
          throw new MqAdminError(
            'MQ_REPLAY_LIMIT',
            `the message of dead letter ${id} of ${topic} was replayed ${deathCount} times; maxReplays is ${subscription.maxReplays}`,
            { context: { topic, id, group, deathCount } },
          );
        },
      },
    });
  }

  private async untilDone<T>(signal: AbortSignal, work: () => Promise<T>): Promise<{ readonly value: T } | undefined> {
    const { lease, connection, events } = this.deps;
    const { topic, partition, group } = lease.terms;
    const backoff = new Backoff({ minMs: 50, maxMs: 2_000 });
    while (!signal.aborted && !lease.isEnded && !connection.isDestroyed) {
      try {
        return { value: await work() };
      } catch (error) {
        const retryInMs = backoff.next();
        const component = `dead-letters:${topic}:${partition}:${group}`;
        events.emit('fault', { component, class: classifyRedisError(error), error, retryInMs });
        await connection.backOff(retryInMs, signal);
      }
    }
    return undefined;
  }
}
