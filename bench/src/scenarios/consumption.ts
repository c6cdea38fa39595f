import type { ConsumeOptions, Consumption, Topic } from '../contenders/contender.js';
import type { Payload } from '../payloads.js';
import type { Figures, Stopwatch, Trial } from '../scenario.js';

/** What is before has to do with starting. */
const SKIPPED_PART = 0.05;
const DEADLINE_MS = 120_000;

export interface Consumed {
  readonly topic: Topic;
  readonly count: number;
  readonly options?: ConsumeOptions;
  /** The clock starts after this part of the messages. */
  readonly skippedPart?: number;
  /** Called for each message; one that throws is a failure and is not counted. */
  readonly handle?: (payload: Payload, attempt: number) => void;
  /** Each message is counted and then fails. */
  readonly failsAll?: boolean;
  /** Stops consuming at the end, and not at the end of the round. */
  readonly closes?: boolean;
}

/** Consumes a backlog of `count` (in each group) and times it from shortly after the first message to the last. */
export async function timeConsumption(
  trial: Trial,
  { topic, count, options, handle, skippedPart = SKIPPED_PART, failsAll = false, closes = false }: Consumed,
): Promise<Figures> {
  const all = count * topic.groups;
  const skipped = Math.floor(all * skippedPart);
  let handled = 0;
  let watch: Stopwatch | undefined;
  let consuming: Promise<Consumption> | undefined;
  let figures: Figures = {};
  const done = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`${handled} of ${all} messages within ${DEADLINE_MS} ms`)),
      DEADLINE_MS,
    );
    const onMessage = (payload: Payload, attempt: number): void => {
      handle?.(payload, attempt);
      handled++;
      if (handled === skipped + 1) watch = trial.stopwatch();
      if (handled === all) {
        figures = watch!.stop(all - skipped - 1);
        clearTimeout(timer);
        resolve();
      }
      if (failsAll) throw new Error('fails');
    };
    consuming = trial.consume(topic, onMessage, options);
    consuming.catch(reject);
  });
  await done;
  if (closes) await (await consuming!).close();
  return figures;
}
