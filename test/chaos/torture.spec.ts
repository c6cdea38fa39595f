import { check } from '../torture/checker/check.js';
import { parseCommand } from '../torture/options.js';
import { describeRun } from '../torture/report/describe.js';
import { reportOf } from '../torture/report/report.js';
import { forgetEvidence, keepEvidence, torture } from '../torture/run.js';
import { describeWithServer } from '../support/redis-server.js';

const SECONDS = 60;

describeWithServer('torture', () => {
  it(
    'loses, reorders and doubles nothing and recovers by itself, whatever happens to processes, network and Redis',
    async () => {
      const command = parseCommand(['--seconds', String(SECONDS)]);
      if (command.do !== 'torture') throw new Error('no run');
      const run = await torture(command.options);
      const violations = check(run);
      process.stdout.write(describeRun(reportOf(run, violations)));
      if (violations.length > 0) {
        keepEvidence(run, violations);
        process.stdout.write(`records and evidence: ${run.folder}\n`);
      } else {
        forgetEvidence(run);
      }
      // The report above has more of them.
      expect(violations.slice(0, 3)).toEqual([]);
    },
    (SECONDS + 300) * 1_000,
  );
});
