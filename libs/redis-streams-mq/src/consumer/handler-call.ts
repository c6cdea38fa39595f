import { MqLeaseLostError } from '../core/errors.js';

/** One call of a handler, for one message or a batch, while it runs: its signal, and until when it may run. */
export class HandlerCall {
  /** Why it was told to stop, if it was. */
  abortReason: Error | undefined;
  /** Its time is over. */
  timeoutError: Error | undefined;
  onTimeout: () => void = () => undefined;
  /** On the monotonic clock; `Infinity` means no limit. */
  deadline: number;
  private controller: AbortController | undefined;

  constructor(
    readonly startedAt: number,
    private readonly limitMs: number,
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

  abort(reason: Error): void {
    if (this.abortReason !== undefined) return;
    this.abortReason = reason;
    this.controller?.abort(reason);
  }

  timeOut(error: Error): void {
    this.timeoutError = error;
    this.abort(error);
    this.onTimeout();
  }

  heartbeat(now: number, isTrusted: boolean, place: Readonly<Record<string, unknown>>): void {
    if (!isTrusted) throw new MqLeaseLostError(place);
    if (this.limitMs !== 0) this.deadline = now + this.limitMs;
  }
}
