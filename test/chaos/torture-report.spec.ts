import { check } from '../torture/checker/check.js';
import { OWNER, Story, takeover } from '../torture/checker/story.js';
import { parseCommand } from '../torture/options.js';
import { describeRun } from '../torture/report/describe.js';
import { type Report, reportOf } from '../torture/report/report.js';

function reportOn({ evidence }: Story): Report {
  const command = parseCommand(['--seed', '7']);
  if (command.do !== 'torture') throw new Error('no run');
  const { options } = command;
  return reportOf({ ...evidence, options, drainedInMs: 0, consumersKnown: 2, folder: '' }, check(evidence));
}

describe('the report of torture', () => {
  it('puts down to a fault what was in flight, came twice and paused because of it', () => {
    const { faults, totals } = reportOn(takeover());
    expect(faults).toEqual([
      {
        fault: 'stop-consumer',
        times: 1,
        metNobody: 0,
        // Message 3 alone had been accepted and not settled.
        inFlight: 1,
        lost: 0,
        duplicated: 1,
        outOfOrder: 0,
        longestPauseMs: expect.any(Number),
      },
    ]);
    expect(totals).toMatchObject({
      lost: 0,
      duplicated: 1,
      unexplainedDuplicates: 0,
      besideANewOwner: 1,
      violations: 0,
    });
  });

  it('counts what was lost and out of order, near the faults of that time alone', () => {
    const story = new Story(9);
    story.fault('script-flush', 'redis', 1_500, 1_600);
    story.fault('client-kill', 'redis', 7_500, 7_600);
    story.stored.splice(1, 1);
    story.unhandle(8);
    story.handle(9, 9_000);
    story.handle(8, 9_100);
    const { faults, totals } = reportOn(story);
    expect(faults.map(({ fault, lost, outOfOrder }) => [fault, lost, outOfOrder])).toEqual([
      ['client-kill', 0, 1],
      ['script-flush', 1, 0],
    ]);
    expect(totals).toMatchObject({ lost: 1, outOfOrder: 1 });
  });

  it('is a table for people, with what broke and how to run it again', () => {
    const story = new Story(2);
    story.fault('cut-read', OWNER, 500, 600);
    story.stored.pop();
    const text = describeRun(reportOn(story));
    expect(text).toMatch(/\| fault +\| times \| in flight \| lost \| duplicated \| out of order \| longest pause \|/);
    expect(text).toMatch(/\| cut-read +\| +1 \|/);
    expect(text).toContain('I1 2.0 s k#2 was accepted as 0/2-0 and is not in the streams');
    expect(text).toContain('again: npm run torture -- --redis standalone --seconds 60 --seed 7');
  });
});
