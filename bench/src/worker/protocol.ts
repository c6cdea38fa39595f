import type { Durability, Urls } from '../environment.js';
import type { Figures } from '../scenario.js';

/** First argument of the process. */
export interface WorkerSettings {
  readonly scenario: string;
  readonly entry: string;
  readonly urls: Urls;
  readonly serverPids: readonly number[];
  readonly durability: Durability;
  readonly quick: boolean;
  /** File for a CPU profile of what is timed. */
  readonly profile?: string;
}

export interface RunRound {
  readonly type: 'round';
  readonly isWarmUp: boolean;
}

export type FromWorker =
  | { readonly type: 'ready' }
  | { readonly type: 'figures'; readonly figures: Figures }
  | { readonly type: 'failed'; readonly error: string };
