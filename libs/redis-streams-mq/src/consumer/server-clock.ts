import type { Clock } from '../core/clock.js';

/** The server's clock as seen from here: replies that carry the server's time correct it. For ages and expiry, never for leases. */
export class ServerClock {
  private offsetMs = 0;

  constructor(private readonly clock: Clock) {}

  /** `sentAt` is this process' wall clock when the request left. */
  observe(serverNow: number, sentAt: number): void {
    this.offsetMs = serverNow - (sentAt + this.clock.now()) / 2;
  }

  readonly now = (): number => this.clock.now() + this.offsetMs;
}
