import { openSync, readFileSync, writeSync } from 'node:fs';

/** Milliseconds on a clock that all processes of this machine share and that nobody can set. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** Of one message: its key, and its number among the messages of that key. */
export interface MessageName {
  readonly key: string;
  readonly seq: number;
}

/** `timed out`: the engine had given the call up before it ended. */
export type Outcome = 'success' | 'failed' | 'rejected' | 'aborted' | 'timed out';

/** What a process writes down at once, before it goes on. `at` is on the clock of `monotonicMs`. */
export type TortureRecord = { readonly at: number } & (
  | ({ readonly type: 'sending'; readonly eventId: string } & MessageName)
  | ({
      readonly type: 'accepted';
      readonly eventId: string;
      readonly partition: number;
      readonly id: string | null;
    } & MessageName)
  | ({ readonly type: 'refused'; readonly eventId: string; readonly code: string; readonly why: string } & MessageName)
  | ({
      readonly type: 'started';
      /** Numbers the calls of one process. */
      readonly call: number;
      readonly topic: string;
      readonly group: string;
      readonly partition: number;
      readonly id: string;
      readonly eventId: string;
      readonly attempt: number;
      readonly epoch: number;
    } & MessageName)
  | { readonly type: 'ended'; readonly call: number; readonly outcome: Outcome }
  | {
      readonly type: 'lease';
      readonly change: 'acquired' | 'released' | 'lost';
      readonly group: string;
      readonly partition: number;
      readonly epoch: number;
      readonly why: string;
    }
  | { readonly type: 'engine'; readonly event: string; readonly detail: string }
  | { readonly type: 'crash'; readonly detail: string }
  /** The process did not run for so long: it was stopped, or the machine had no time for it. */
  | { readonly type: 'stall'; readonly ms: number }
);

/** What came from where: `process` is `consumer-1#2` for the second life of `consumer-1`. */
export type Witnessed<R extends TortureRecord = TortureRecord> = R & { readonly process: string };

export type RecordOf<T extends TortureRecord['type']> = Extract<TortureRecord, { type: T }>;

type Unstamped<R> = R extends unknown ? Omit<R, 'at'> : never;

/** Appends to a file with one write each, so that a process that is killed leaves all it has written. */
export class RecordFile {
  private readonly file: number;

  constructor(path: string) {
    this.file = openSync(path, 'a');
  }

  write(record: Unstamped<TortureRecord>): void {
    writeSync(this.file, `${JSON.stringify({ at: monotonicMs(), ...record })}\n`);
  }
}

/** All whole lines of a file. */
export function readRecords(path: string, process: string): Witnessed[] {
  const lines = readFileSync(path, 'utf8').split('\n');
  // What follows the last end of line was cut off by a kill, or is nothing.
  return lines.slice(0, -1).map((line) => ({ ...(JSON.parse(line) as TortureRecord), process }));
}

const LOOK_MS = 100;
const STALL_MS = 100;

/** Calls when this process could not run for a while; ends when the process does, or by the function returned. */
export function watchStalls(report: (ms: number) => void): () => void {
  let last = monotonicMs();
  const timer = setInterval(() => {
    const now = monotonicMs();
    const ms = now - last - LOOK_MS;
    last = now;
    if (ms > STALL_MS) report(ms);
  }, LOOK_MS).unref();
  return () => clearInterval(timer);
}
