/** A flight as the file has it. */
export interface Flight {
  /** Local time, `YYYY/MM/DD HH:MM`. */
  readonly date: string;
  /** Minutes; negative is early. */
  readonly delay: number;
  /** Miles. */
  readonly distance: number;
  readonly origin: string;
  readonly destination: string;
}

/** A flight as it arrives: some senders get the delay wrong. */
export type FlightMessage = Omit<Flight, 'delay'> & { readonly delay?: unknown };

export const FLIGHTS_TOPIC = 'flights';
export const DELAY_STATS_GROUP = 'delay-stats';
export const ALERTS_GROUP = 'alerts';

/** A flight is reported when it is later than this. */
export const LATE_MINUTES = 120;

/** The delay where it is a number, as it should be. */
export function delayOf(flight: FlightMessage): number | undefined {
  return typeof flight.delay === 'number' ? flight.delay : undefined;
}

/** The delay where it is a number or a text that begins with one, such as "135 minutes". */
export function delayOrTextOf(flight: FlightMessage): number | undefined {
  if (typeof flight.delay !== 'string') return delayOf(flight);
  const minutes = Number.parseInt(flight.delay, 10);
  return Number.isNaN(minutes) ? undefined : minutes;
}
