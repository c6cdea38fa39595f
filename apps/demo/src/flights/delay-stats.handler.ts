import { Injectable } from '@nestjs/common';
import { StreamHandler, type StreamContext } from 'nestjs-redis-streams-mq';
import { CallJournal } from '../ipc/call-journal.js';
import { ResultStore } from '../ipc/result-store.js';
import { DELAY_STATS_GROUP, FLIGHTS_TOPIC, delayOf, type FlightMessage } from './flight.js';

/** Keeps count, sum and maximum of the delay per origin airport. */
@Injectable()
export class DelayStatsHandler {
  constructor(
    private readonly journal: CallJournal,
    private readonly results: ResultStore,
  ) {}

  @StreamHandler(FLIGHTS_TOPIC, DELAY_STATS_GROUP)
  onFlight(flight: FlightMessage, ctx: StreamContext): Promise<void> {
    return this.journal.record(ctx, () => this.addToStatistics(flight, ctx));
  }

  private async addToStatistics(flight: FlightMessage, ctx: StreamContext): Promise<void> {
    const delay = delayOf(flight);
    // A statistic can do without a row that has no delay; returning means that it is handled.
    if (delay === undefined) return;
    await this.results.add(ctx, flight.origin, delay);
  }
}
