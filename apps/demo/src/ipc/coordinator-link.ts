import { Injectable } from '@nestjs/common';
import type { FromConsumer, HandlerCall, StoredResult } from './ipc-messages.js';

/** Figures may come late; what a handler stores may not. */
const REPORT_EVERY_MS = 10;

/** A consumer process' line to the coordinator; what is recorded close together travels as one message. */
@Injectable()
export class CoordinatorLink {
  private calls: HandlerCall[] = [];
  private results: StoredResult[] = [];
  private flushing: Promise<void> | undefined;
  private reportTimer: NodeJS.Timeout | undefined;

  send(message: FromConsumer): void {
    process.send?.(message);
  }

  /** Resolves when the result has left this process: a crash after that loses nothing. */
  store(result: StoredResult): Promise<void> {
    this.results.push(result);
    return this.flush();
  }

  report(call: HandlerCall): void {
    this.calls.push(call);
    // It fails only when the coordinator is gone; then nobody counts, and 'disconnect' ends this process.
    this.reportTimer ??= setTimeout(() => void this.flush().catch(() => undefined), REPORT_EVERY_MS);
  }

  async close(): Promise<void> {
    if (!process.connected) return;
    await this.flush();
    process.disconnect();
  }

  private flush(): Promise<void> {
    this.flushing ??= new Promise<void>((resolve, reject) => {
      setImmediate(() => {
        const message: FromConsumer = { type: 'records', calls: this.calls, results: this.results };
        this.calls = [];
        this.results = [];
        this.flushing = undefined;
        clearTimeout(this.reportTimer);
        this.reportTimer = undefined;
        process.send?.(message, (error: Error | null) => (error ? reject(error) : resolve()));
      });
    });
    return this.flushing;
  }
}
