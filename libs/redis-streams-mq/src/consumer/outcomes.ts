import type { DeadReason, GroupPartitionRef, MqEvents } from '../core/events.js';
import type { HandlerDefinition } from '../core/handler.js';
import { decideRetry } from '../core/retry-decision.js';
import { deadLetterMetadata } from './dead-letter-metadata.js';
import type { Entry } from './entry.js';
import { waitsInPlace } from './lane-rule.js';
import type { Lease } from './lease.js';
import type { LetterDesk } from './letter-desk.js';
import type { RunReport } from './message-runner.js';
import type { Settler } from './settler.js';

export interface OutcomesDeps {
  readonly handler: HandlerDefinition;
  readonly lease: Lease;
  readonly settler: Settler;
  readonly events: MqEvents;
  readonly random: () => number;
  /** Of a handler of dead letters. */
  readonly desk?: LetterDesk | undefined;
}

/**
 * What keeps an entry's lane taken after its handler has ended: it resolves when Redis has the outcome, with the
 * milliseconds after which the entry is to be handled again, or with `null` when it is out of the way. `null` by itself:
 * its lane may be freed at once.
 */
export type Pending = Promise<number | null> | null;

/** Decides what becomes of an entry after its handler has ended: settled, retried in its place or past it, or dead. */
export class Outcomes {
  private readonly ref: GroupPartitionRef;

  constructor(private readonly deps: OutcomesDeps) {
    const { topic, partition, group } = deps.lease.terms;
    this.ref = { topic, partition, group };
  }

  settle(entry: Entry, { result, message }: RunReport): Pending {
    const { lease, settler } = this.deps;
    if (lease.isEnded) return null;
    const attempts = entry.attemptsMade + 1;
    switch (result.type) {
      case 'success':
        settler.ack(entry);
        return null;
      case 'aborted':
        entry.state = 'waiting';
        return null;
      case 'dead':
        // An entry that never reached the handler costs no attempt.
        return this.bury(entry, message, result.called ? attempts : entry.attemptsMade, result.reason, result.error);
      case 'retry':
        return this.retryOrBury(entry, message, attempts, result);
    }
  }

  /** A dead letter. What waits for the entry goes on when it is stored: until then the next owner would begin it anew. */
  bury(entry: Entry, message: RunReport['message'], attempts: number, reason: DeadReason, error: unknown): Pending {
    const { settler, handler, desk } = this.deps;
    if (desk !== undefined) {
      desk.givenUp(entry, attempts, error);
      settler.ack(entry);
      return null;
    }
    const { origin: originalMessageId } = entry;
    const metadata = deadLetterMetadata({ ...this.ref, originalMessageId, message, attempts, reason, error });
    if (!waitsInPlace(handler.options, entry)) {
      settler.dead(entry, attempts, reason, error, metadata);
      return null;
    }
    return new Promise((resolve) => settler.dead(entry, attempts, reason, error, metadata, resolve));
  }

  private retryOrBury(
    entry: Entry,
    message: RunReport['message'],
    attempt: number,
    failed: { readonly delayMs?: number; readonly error?: unknown },
  ): Pending {
    const { settler, handler, random, events } = this.deps;
    const onBadCallback = (error: unknown): void =>
      events.emit('fault', { component: `retry:${handler.name}`, class: 'unexpected', error, retryInMs: 0 });
    const decision = decideRetry({ ...failed, attempt }, handler.options, { random, onBadCallback });
    if (decision.type === 'dead') return this.bury(entry, message, attempt, decision.reason, failed.error);
    const { delayMs } = decision;
    if (!waitsInPlace(handler.options, entry)) {
      settler.retry(entry, attempt, delayMs, failed.error);
      return null;
    }
    return new Promise((resolve) => settler.hold(entry, attempt, delayMs, failed.error, resolve));
  }
}
