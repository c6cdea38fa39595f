import { LATE_MINUTES, type Flight, type FlightMessage } from './flight.js';

/** What senders do to a delay: the unit in the value, nothing in it, or no such field. */
const SPOILERS: readonly ((flight: Flight) => FlightMessage)[] = [
  (flight) => ({ ...flight, delay: `${flight.delay} minutes` }),
  (flight) => ({ ...flight, delay: null }),
  // JSON leaves out what is undefined.
  (flight) => ({ ...flight, delay: undefined }),
];

/** The flights, and after `count` of the late ones, evenly chosen, a copy whose delay is spoiled. */
export function mixInMalformed(flights: readonly Flight[], count: number): FlightMessage[] {
  const late = flights.filter((flight) => flight.delay > LATE_MINUTES);
  const spoilers = new Map<Flight, (flight: Flight) => FlightMessage>();
  for (let i = 0; i < count; i++) {
    spoilers.set(late[Math.floor((i * late.length) / count)]!, SPOILERS[i % SPOILERS.length]!);
  }
  return flights.flatMap((flight) => {
    const spoil = spoilers.get(flight);
    return spoil ? [flight, spoil(flight)] : [flight];
  });
}
