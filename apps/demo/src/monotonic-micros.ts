/** Microseconds on a clock that all processes of one machine share and that nothing sets back. */
export function monotonicMicros(): number {
  return Number(process.hrtime.bigint() / 1000n);
}
