import type { Urls } from '../environment.js';

/** One server, or several that belong together. */
export interface RunningServer {
  readonly urls: Urls;
  readonly pids: readonly number[];
  /** Takes away all data, so that every round begins alike. */
  empty(): Promise<void>;
  stop(): Promise<void>;
}

/** A contender whose server is not there, and why. */
export class MissingServerError extends Error {}
