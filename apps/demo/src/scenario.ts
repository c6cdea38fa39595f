import type { DeadLetterQueue } from 'nestjs-redis-streams-mq';
import type { ConsumerWorkload } from './ipc/ipc-messages.js';
import type { Check } from './report/checks.js';
import type { CallLog } from './report/call-log.js';
import type { GroupNotes } from './report/group-table.js';
import type { KeyTotals } from './report/key-totals.js';

/** One message to publish. */
export interface Row {
  readonly key: string | null;
  readonly payload: unknown;
}

/** What to publish, who handles it, and what must be true afterwards. */
export interface Scenario {
  readonly topic: string;
  readonly groups: readonly string[];
  readonly workload: ConsumerWorkload;
  readonly total: number;
  /** Printed before the run. */
  readonly introduction: string;
  /** Explanations beside the figures of a group. */
  readonly notes: Readonly<Record<string, GroupNotes>>;
  /** In the order in which they are to be published. */
  rows(): Iterable<Row> | AsyncIterable<Row>;
  /** Runs when every message is handled or dead, and the tables are printed. */
  conclude(stage: Stage): Promise<Check[]>;
}

/** What a scenario can see and do once the messages are through. */
export interface Stage {
  readonly calls: CallLog;
  /** What the handlers of a group have stored. */
  results(group: string): KeyTotals;
  readonly deadLetters: DeadLetterQueue;
  /** Resolves when every consumer process runs the repaired handler. */
  deployFix(): Promise<void>;
  /** Resolves when `condition` holds. @throws when nothing moves any more. */
  until(what: string, condition: () => boolean | Promise<boolean>): Promise<void>;
  print(text: string): void;
}
