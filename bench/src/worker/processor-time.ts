import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

let ticksPerSecond: number | undefined;

/** Processor time of other processes in microseconds, in steps of some milliseconds; `undefined` where the system does not tell. */
export function processorTimeUs(pids: readonly number[]): number | undefined {
  if (process.platform !== 'linux') return undefined;
  ticksPerSecond ??= Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));
  let ticks = 0;
  for (const pid of pids) {
    // The name in parentheses may hold blanks: count from its end. Fields 14 and 15 are user and system time.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return (ticks / ticksPerSecond) * 1e6;
}
