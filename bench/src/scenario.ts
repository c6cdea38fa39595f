import type { ContenderName, Consumption, ConsumeOptions, Handle, Producer, Topic } from './contenders/contender.js';
import type { Durability, Urls } from './environment.js';
import type { Message, PayloadSize } from './payloads.js';

/** One column of a scenario: who does it, and with what settings. The first entry is the one that is judged. */
export interface Entry {
  readonly name: string;
  readonly contender: ContenderName;
  /** Less than 1 for those so slow that the same number of messages would take too long. */
  readonly share?: number;
  readonly settings?: Readonly<Record<string, unknown>>;
  /** What the scenario does differently for it. */
  readonly variant?: string;
  /** Left out of quick runs. */
  readonly fullOnly?: boolean;
}

/** What one entry measured in one round, by name. */
export type Figures = Readonly<Record<string, number>>;

/** One line of the result. */
export interface Row {
  readonly name: string;
  readonly figure: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  readonly checks?: readonly Check[];
  /** Its ratios are recorded, and `--assert` holds later runs against them. */
  readonly guarded?: boolean;
}

/** What a check may look at: medians, and medians of the ratios of each round (above 1: the first entry is better). */
export interface RowResult {
  readonly medians: Readonly<Record<string, number>>;
  readonly ratios: Readonly<Record<string, number>>;
}

export interface Check {
  readonly text: string;
  /** `undefined` where an entry that it needs did not take part. */
  met(result: RowResult): boolean | undefined;
}

export interface Scenario {
  /** Its own name, and the first part of the names of its rows. */
  readonly name: string;
  /** What is done and measured, in a sentence for the report. */
  readonly description: string;
  readonly server: 'standalone' | 'cluster';
  /** Part of `--quick`. */
  readonly inQuick: boolean;
  readonly entries: readonly Entry[];
  readonly rows: readonly Row[];
  /** Rounds that count, where the usual number is not right. */
  readonly rounds?: number;
  /** Rounds before that, which do not count. @defaultValue 1 */
  readonly warmUps?: number;
  /** Append-only file, where the scenario is about it. */
  readonly durability?: Durability;
  readonly timeoutMs?: number;
  measure(trial: Trial): Promise<Figures>;
}

export interface TopicSpec {
  /** @defaultValue 4 */
  readonly partitions?: number;
  /** @defaultValue 1 */
  readonly groups?: number;
  /** Whether a name will do; any does by default. */
  readonly suits?: (name: string) => Promise<boolean>;
}

/** One round of one entry, in a process of its own: what a scenario may use. */
export interface Trial {
  readonly entry: Entry;
  readonly quick: boolean;
  readonly isWarmUp: boolean;
  /** How many messages this entry handles where the scenario says `full`, or `quick` in a quick run. */
  count(full: number, quick: number): number;
  messages(count: number, size?: PayloadSize): Message[];
  /** A topic nobody has used. */
  topic(spec?: TopicSpec): Promise<Topic>;
  producer(topic: Topic): Promise<Producer>;
  /** Sends them all, not timed, and closes its connection. */
  fill(topic: Topic, messages: readonly Message[]): Promise<void>;
  consume(topic: Topic, handle: Handle, options?: ConsumeOptions): Promise<Consumption>;
  stopwatch(): Stopwatch;
  /** Addresses of the servers, for what no contender does. */
  readonly urls: Urls;
}

/** Wall clock, and processor time of this process and of the servers. */
export interface Stopwatch {
  /** `rate` (per second), `clientUs`, `serverUs` and `cpuUs` (processor time for each of `count`) since it was started. */
  stop(count: number): Figures;
}
