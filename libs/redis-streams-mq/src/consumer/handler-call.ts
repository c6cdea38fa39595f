import type { Clock } from '../core/clock.js';
import { MqLeaseLostError } from '../core/errors.js';
import type { HandlerOutcome } from '../core/handler.js';
import type { Lease } from './lease.js';

export const doNothing = (): void => undefined;

/** One call of a handler, for one message or a batch, while it runs: its signal, and until when it may run. */
export class HandlerCall {
  /** Why it was told to stop, if it was. */
  abortReason: Error | undefined;
  /** Its time is over. */
  timeoutError: Error | undefined;
  onTimeout: (outcome: null) => void = doNothing;
  /** On the monotonic clock; `Infinity` means no limit. */
  deadline: number;
  private controller: AbortController | undefined;

  constructor(
    readonly startedAt: number,
    private readonly limitMs: number,
    private readonly lease: Lease,
    private readonly clock: Clock,
  ) {
    this.deadline = limitMs === 0 ? Infinity : startedAt + limitMs;
  }

  /** Made when first looked at: most handlers never do. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.abortReason !== undefined) this.controller.abort(this.abortReason);
    }
    return this.controller.signal;
  }

  /** What it means that its time is over. */
  get timedOut(): HandlerOutcome {
    return { type: 'retry', error: this.timeoutError };
  }

  abort(reason: Error): void {
    if (this.abortReason !== undefined) return;
    this.abortReason = reason;
    this.controller?.abort(reason);
  }

  timeOut(error: Error): void {
    this.timeoutError = error;
    this.abort(error);
    this.onTimeout(null);
  }

  /** @throws MqLeaseLostError */
  heartbeat(): void {
    const { topic, partition, group } = this.lease.terms;
    if (!this.lease.isTrusted) throw new MqLeaseLostError({ topic, partition, group });
    if (this.limitMs !== 0) this.deadline = this.clock.monotonic() + this.limitMs;
  }
}
