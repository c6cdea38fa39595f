import { EventEmitter } from 'node:events';

/** Every reason there is. */
export const DEAD_REASONS = ['exhausted', 'rejected', 'validation', 'malformed', 'crash-loop', 'expired'] as const;

/** Why a message was dead-lettered. */
export type DeadReason = (typeof DEAD_REASONS)[number];

/** How Redis' errors are classified; see redis/redis-errors.ts. */
export type FaultClass = 'transient' | 'key' | 'configuration' | 'unexpected';

export interface PartitionRef {
  readonly topic: string;
  readonly partition: number;
}

export interface GroupPartitionRef extends PartitionRef {
  readonly group: string;
}

/**
 * Everything the engine says about itself. Metrics and logs listen; nothing in the engine depends on a listener, and
 * a listener that throws is caught (see `MqEvents.emit`).
 */
export interface MqEventMap {
  produced: PartitionRef & { readonly count: number };
  /** A promise of `send()` was rejected, or a message of a batch, whatever the reason. */
  sendFailed: { readonly topic: string; readonly code: string };
  /** Entries read from Redis and accepted into the buffer. */
  consumed: GroupPartitionRef & { readonly count: number };
  /** One handler call ended. `endToEndMs` runs from publishing to the end of the handler. */
  handled: GroupPartitionRef & {
    readonly outcome: 'success' | 'retry' | 'dead' | 'aborted';
    readonly durationMs: number;
    readonly endToEndMs: number;
  };
  acked: GroupPartitionRef & { readonly count: number };
  retried: GroupPartitionRef & {
    readonly id: string;
    readonly attempt: number;
    readonly delayMs: number;
    readonly error: unknown;
  };
  dead: GroupPartitionRef & {
    readonly id: string;
    readonly attempt: number;
    readonly reason: DeadReason;
    readonly error: unknown;
  };
  /** Entries that were pending but no longer in the stream (trimmed or deleted by hand); they are acknowledged and counted. */
  payloadMissing: GroupPartitionRef & { readonly ids: readonly string[] };
  backpressure: { readonly group: string; readonly waitedMs: number };
  leaseAcquired: GroupPartitionRef & {
    readonly epoch: number;
    readonly clean: boolean;
    /**
     * For how long nobody owned the partition: since its release, by the server's clock, or since this instance first saw
     * that the lease of an owner without a word had ended. `undefined` at a partition's first ownership.
     */
    readonly withoutOwner: { readonly since: 'released' | 'expired'; readonly ms: number } | undefined;
  };
  leaseReleased: GroupPartitionRef & { readonly epoch: number };
  leaseLost: GroupPartitionRef & { readonly epoch: number; readonly reason: 'expired' | 'taken' | 'missing' };
  takenOver: GroupPartitionRef & { readonly count: number };
  /** The server's pending total differed from what this owner held; `brought` entries were fetched back. */
  ledgerRepaired: GroupPartitionRef & { readonly brought: number; readonly dropped: number };
  rebalanced: {
    readonly group: string;
    readonly members: number;
    readonly owned: number;
    readonly acquired: number;
    readonly givenUp: number;
  };
  readerReplaced: { readonly group: string; readonly reason: string };
  /** A group reads a partition for the first time, from `position` on. */
  groupCreated: GroupPartitionRef & { readonly position: string };
  /** A lost consumer group was made again; `position` is where reading goes on. */
  healed: GroupPartitionRef & { readonly position: string; readonly reason: string };
  topicCreated: { readonly topic: string; readonly partitionCount: number };
  /** This process has noticed that a topic which it knew was deleted on purpose. */
  topicDeleted: { readonly topic: string };
  moved: PartitionRef & { readonly group: string | null; readonly moved: number; readonly bad: readonly string[] };
  /** One turn of retention on a partition's stream or on its dead letters: entries removed, by the rule that wanted it. */
  trimmed: PartitionRef & {
    readonly stream: 'stream' | 'dlq';
    readonly byLength: number;
    readonly byAge: number;
    /** Removed although some group had not settled them. */
    readonly byHardBound: number;
  };
  /** Removed although this group had not settled them: it has had no owner for longer than `retentionAbandonedGroupMs`. */
  retentionAbandoned: GroupPartitionRef & { readonly count: number; readonly idleMs: number };
  /** A partition is beyond its bounds because this group has not settled its oldest messages; empty: no group has come yet. */
  retentionPinned: GroupPartitionRef & { readonly length: number };
  replayed: GroupPartitionRef & { readonly result: 'replayed' | 'gone' | 'failed'; readonly durationMs: number };
  /** Deleted one by one, or by the clearing of a topic or group. */
  deadLetterDeleted: PartitionRef & { readonly count: number; readonly by: 'delete' | 'clear' };
  /** A loop met an error of Redis or of its own and goes on after `retryInMs`. Logs must limit its rate. */
  fault: {
    readonly component: string;
    readonly class: FaultClass;
    readonly error: unknown;
    readonly retryInMs: number;
  };
  /** The same component works again. */
  recovered: { readonly component: string; readonly afterMs: number };
  connection: { readonly name: string; readonly state: 'ready' | 'closed' | 'error'; readonly error?: unknown };
  /** Something a person should look at; a constant sentence with fields. */
  warning: { readonly message: string; readonly fields: Readonly<Record<string, unknown>> };
}

export type MqEventName = keyof MqEventMap;

/** Typed emitter whose listeners cannot harm the engine: what they throw is handed to `onListenerError`. */
export class MqEvents {
  private readonly emitter = new EventEmitter();

  constructor(private readonly onListenerError: (error: unknown, event: MqEventName) => void = () => undefined) {
    this.emitter.setMaxListeners(0);
  }

  on<E extends MqEventName>(event: E, listener: (payload: MqEventMap[E]) => void): () => void {
    const guarded = (payload: MqEventMap[E]): void => {
      try {
        listener(payload);
      } catch (error) {
        this.report(error, event);
      }
    };
    this.emitter.on(event, guarded);
    return () => void this.emitter.off(event, guarded);
  }

  emit<E extends MqEventName>(event: E, payload: MqEventMap[E]): void {
    this.emitter.emit(event, payload);
  }

  /** The same, for a part whose events of that name mean nothing. */
  without(silent: MqEventName): MqEvents {
    const quiet = Object.create(this) as MqEvents;
    quiet.emit = (event, payload) => {
      if (event !== silent) this.emit(event, payload);
    };
    return quiet;
  }

  has(event: MqEventName): boolean {
    return this.emitter.listenerCount(event) > 0;
  }

  private report(error: unknown, event: MqEventName): void {
    try {
      this.onListenerError(error, event);
    } catch {
      // The application's logger throws as well: there is nobody left to tell, and the engine must go on.
    }
  }
}
