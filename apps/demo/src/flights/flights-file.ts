import { readFile } from 'node:fs/promises';
import type { Flight } from './flight.js';

const FILE = new URL('../../data/flights-20k.csv', import.meta.url);

/** All flights of the file, in order of time. */
export async function readFlights(): Promise<Flight[]> {
  const [, ...lines] = (await readFile(FILE, 'utf8')).trimEnd().split('\n');
  return lines.map((line) => {
    const [date, delay, distance, origin, destination] = line.split(',') as [string, string, string, string, string];
    return { date, delay: Number(delay), distance: Number(distance), origin, destination };
  });
}
