import { check, checkEqual, type Check } from '../report/checks.js';
import { formatTable } from '../report/table.js';
import type { Stage } from '../scenario.js';
import { ALERTS_GROUP, DELAY_STATS_GROUP, FLIGHTS_TOPIC, LATE_MINUTES } from './flight.js';

export interface ExpectedReplay {
  readonly malformed: number;
  readonly total: number;
  /** Late flights, with those whose delay only the repaired handler can read. */
  readonly late: number;
}

/** Shows the dead letters, repairs the handler that rejected them, replays them, and shows that none is left. */
export async function replayDeadLetters(stage: Stage, expected: ExpectedReplay): Promise<Check[]> {
  const { deadLetters, calls } = stage;
  const { items } = await deadLetters.list(FLIGHTS_TOPIC, { group: ALERTS_GROUP, limit: 3 });
  const sizeBefore = await deadLetters.size(FLIGHTS_TOPIC);
  stage.print(
    formatTable(
      [{ title: 'dead letters' }, { title: 'group' }, { title: 'key' }, { title: 'reason' }, { title: 'error' }],
      items.map(({ id, group, key, reason, error }) => [id, group, key ?? '', reason, error?.message ?? '']),
    ),
  );

  const statsCallsBefore = calls.callCount(DELAY_STATS_GROUP);
  stage.print(
    `Repairing the handler of "${ALERTS_GROUP}" in both processes, and replaying ${sizeBefore} dead letters to it.`,
  );
  await stage.deployFix();
  const { replayed } = await deadLetters.replayAll(FLIGHTS_TOPIC, { group: ALERTS_GROUP });
  await stage.until('the replayed messages to be handled', () => calls.handledCount(ALERTS_GROUP) === expected.total);

  const sizeAfter = await deadLetters.size(FLIGHTS_TOPIC);
  const left = await deadLetters.list(FLIGHTS_TOPIC);
  stage.print(`Replayed ${replayed}; dead letters left: ${sizeAfter}.`);
  return [
    checkEqual('malformed rows dead-lettered', sizeBefore, expected.malformed),
    checkEqual('dead letters replayed', replayed, expected.malformed),
    check('the dead-letter queue is empty', sizeAfter === 0 && left.items.length === 0, `found ${sizeAfter} in it`),
    checkEqual(
      `messages that ${ALERTS_GROUP} has handled after the replay`,
      calls.handledCount(ALERTS_GROUP),
      expected.total,
    ),
    checkEqual(
      `flights more than ${LATE_MINUTES} minutes late after the replay`,
      stage.results(ALERTS_GROUP).count,
      expected.late,
    ),
    checkEqual(`replays that reached ${DELAY_STATS_GROUP}`, calls.callCount(DELAY_STATS_GROUP) - statsCallsBefore, 0),
  ];
}
