import type { ConsumerWorkload } from '../ipc/ipc-messages.js';
import { check, checkEqual, type Check } from '../report/checks.js';
import type { GroupNotes } from '../report/group-table.js';
import { differences } from '../report/key-totals.js';
import { formatCount } from '../report/table.js';
import type { Row, Scenario, Stage } from '../scenario.js';
import { FAILS_EVERY } from './alerts.handler.js';
import { replayDeadLetters } from './dead-letter-replay.js';
import { formatBusiestOrigins, totalsPerOrigin } from './expected-totals.js';
import {
  ALERTS_GROUP,
  DELAY_STATS_GROUP,
  FLIGHTS_TOPIC,
  LATE_MINUTES,
  delayOrTextOf,
  type Flight,
  type FlightMessage,
} from './flight.js';
import { readFlights } from './flights-file.js';
import { mixInMalformed } from './malformed-flights.js';

const MALFORMED = 25;

/** 20,000 flights and a few malformed ones, handled by two groups. */
export class FlightsScenario implements Scenario {
  readonly topic = FLIGHTS_TOPIC;
  readonly groups = [DELAY_STATS_GROUP, ALERTS_GROUP];
  readonly workload: ConsumerWorkload = { kind: 'flights' };
  readonly total: number;
  readonly introduction: string;
  readonly notes: Record<string, GroupNotes> = {
    [DELAY_STATS_GROUP]: { handled: `${MALFORMED} malformed rows are passed over` },
    [ALERTS_GROUP]: {
      retried: `the first attempt of every ${FAILS_EVERY}th message fails on purpose`,
      dead: 'malformed rows: rejected, no retry',
    },
  };
  private readonly messages: readonly FlightMessage[];

  private constructor(private readonly flights: readonly Flight[]) {
    this.messages = mixInMalformed(flights, MALFORMED);
    this.total = this.messages.length;
    this.introduction = [
      `Publishing ${formatCount(flights.length)} US domestic flights of early 2001, and ${MALFORMED} rows with a malformed delay,`,
      `to the topic "${FLIGHTS_TOPIC}": 4 partitions, the origin airport is the key, in order of time.`,
      'Two processes handle them in two groups:',
      `  ${DELAY_STATS_GROUP}  count, sum and maximum of the delay per origin`,
      `  ${ALERTS_GROUP}       flights more than ${LATE_MINUTES} minutes late; fails now and then, and rejects malformed rows`,
    ].join('\n');
  }

  static async open(): Promise<FlightsScenario> {
    return new FlightsScenario(await readFlights());
  }

  *rows(): Generator<Row> {
    for (const flight of this.messages) yield { key: flight.origin, payload: flight };
  }

  async conclude(stage: Stage): Promise<Check[]> {
    const expected = totalsPerOrigin(this.flights);
    stage.print(formatBusiestOrigins(expected, stage.results(DELAY_STATS_GROUP).byKey));
    const late = this.flights.filter(({ delay }) => delay > LATE_MINUTES);
    // Rows are counted from 0, so row 0 is one of them.
    const failing = Math.ceil(this.total / FAILS_EVERY);
    const wrongOrigins = differences(expected, stage.results(DELAY_STATS_GROUP).byKey);
    const checks = [
      check(
        `count, sum and maximum of the delay equal a direct computation: ${expected.size} origins`,
        wrongOrigins.length === 0,
        `found ${wrongOrigins.length} that differ, among them ${wrongOrigins.slice(0, 3).join('; ')}`,
      ),
      checkEqual(`flights more than ${LATE_MINUTES} minutes late`, stage.results(ALERTS_GROUP).count, late.length),
      checkEqual('messages retried after a failure', stage.calls.retriedRows(ALERTS_GROUP).size, failing),
      checkEqual(`failures that reached ${DELAY_STATS_GROUP}`, stage.calls.retriedRows(DELAY_STATS_GROUP).size, 0),
    ];
    const lateWithText = this.messages.filter((message) => (delayOrTextOf(message) ?? 0) > LATE_MINUTES).length;
    return [
      ...checks,
      ...(await replayDeadLetters(stage, { malformed: MALFORMED, total: this.total, late: lateWithText })),
    ];
  }
}
