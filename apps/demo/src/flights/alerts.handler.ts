import { Injectable } from '@nestjs/common';
import { DeadLetter, StreamHandler, type StreamContext } from 'nestjs-redis-streams-mq';
import { CallJournal, rowOf } from '../ipc/call-journal.js';
import { ResultStore } from '../ipc/result-store.js';
import { ALERTS_GROUP, FLIGHTS_TOPIC, LATE_MINUTES, delayOf, delayOrTextOf, type FlightMessage } from './flight.js';

/** The first attempt of every message with such a row number fails. */
export const FAILS_EVERY = 97;

/** Reports flights that are more than two hours late. */
@Injectable()
export class AlertsHandler {
  private isFixed = false;

  constructor(
    private readonly journal: CallJournal,
    private readonly results: ResultStore,
  ) {}

  @StreamHandler(FLIGHTS_TOPIC, ALERTS_GROUP)
  onFlight(flight: FlightMessage, ctx: StreamContext): Promise<void> {
    return this.journal.record(ctx, () => this.alertIfLate(flight, ctx));
  }

  /** Stands for a new version of this handler: it can read a delay with a unit, and takes a missing one for "not late". */
  deployFix(): void {
    this.isFixed = true;
  }

  private async alertIfLate(flight: FlightMessage, ctx: StreamContext): Promise<void> {
    // An ordinary error: the message comes again after the back-off.
    if (ctx.attempt === 1 && rowOf(ctx) % FAILS_EVERY === 0) throw new Error('the alert service did not answer');

    const delay = this.isFixed ? (delayOrTextOf(flight) ?? 0) : delayOf(flight);
    // Trying again would not help: straight to the dead-letter queue.
    if (delay === undefined) throw new DeadLetter(`the delay is not a number: ${JSON.stringify(flight.delay)}`);

    if (delay > LATE_MINUTES) await this.results.add(ctx, flight.origin, delay);
  }
}
