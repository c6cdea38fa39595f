import type { Clock } from '../core/clock.js';
import type { GroupPartitionRef, MqEventMap } from '../core/events.js';
import type { GroupPartitionKeys } from '../core/keys.js';

export type LeaseLoss = MqEventMap['leaseLost']['reason'];

export interface LeaseTerms extends GroupPartitionRef {
  readonly keys: GroupPartitionKeys;
  readonly token: string;
  readonly epoch: number;
  /** The owner before released the partition in order; otherwise it may have died on a message. */
  readonly clean: boolean;
  readonly ttlMs: number;
}

/**
 * One ownership of one partition by one group's member.
 *
 *     held --(renewed)--> held
 *     held --(release)--> ended          settled and given up in order
 *     held --(lose)-----> ended          expired, taken by another, or missing
 *
 * Redis is the authority. Local time may only shorten trust: it is counted from when the request that proved the lease
 * was *sent*, and ends a margin before the server's key does.
 */
export class Lease {
  readonly controller: AbortController = new AbortController();
  private trustedUntil: number;
  private ended = false;

  constructor(
    readonly terms: LeaseTerms,
    sentAt: number,
    private readonly clock: Clock,
    private readonly onLost: (lease: Lease, reason: LeaseLoss) => void,
  ) {
    this.trustedUntil = sentAt + this.trustMs;
  }

  /** Nothing may be started for this partition when this is false. */
  get isTrusted(): boolean {
    return this.isTrustedAt(this.clock.monotonic());
  }

  /** The same for who has just read the monotonic clock. */
  isTrustedAt(now: number): boolean {
    return !this.ended && now < this.trustedUntil;
  }

  get isEnded(): boolean {
    return this.ended;
  }

  /** Milliseconds of trust that are left; 0 when none is. */
  get trustLeftMs(): number {
    return this.ended ? 0 : Math.max(0, this.trustedUntil - this.clock.monotonic());
  }

  /** For how long it has not been trusted, in milliseconds: much, when this process stood still meanwhile. */
  get overdueMs(): number {
    return Math.max(0, this.clock.monotonic() - this.trustedUntil);
  }

  renewed(sentAt: number): void {
    this.trustedUntil = Math.max(this.trustedUntil, sentAt + this.trustMs);
  }

  lose(reason: LeaseLoss): void {
    if (this.ended) return;
    this.ended = true;
    this.controller.abort(new Error(`lease ${reason}`));
    this.onLost(this, reason);
  }

  /** Given up in order, or about to be: not a loss. */
  end(): void {
    this.ended = true;
  }

  private get trustMs(): number {
    return this.terms.ttlMs - Math.min(1_000, this.terms.ttlMs / 10);
  }
}
