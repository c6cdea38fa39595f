import { check } from '../support/chaos/soak-checker.js';
import { describeRun } from '../support/chaos/soak-report.js';
import { keepEvidence, soak } from '../support/chaos/soak-run.js';
import { describeWithServer } from '../support/redis-server.js';

const seconds = Number(process.env.MQ_SOAK_SECONDS ?? 60);
const seed = process.env.MQ_SOAK_SEED ?? String(Math.floor(Math.random() * 1e6));

describeWithServer(`soak with seed ${seed}`, () => {
  it(
    'loses, reorders and doubles nothing and recovers by itself, whatever happens to processes, network and Redis',
    async () => {
      const run = await soak(seed, seconds);
      const violations = check(run);
      process.stdout.write(describeRun(run, violations));
      if (violations.length > 0 || process.env.MQ_SOAK_KEEP) keepEvidence(run, violations);
      else run.forget();
      // The report above has more of them.
      expect(violations.slice(0, 3)).toEqual([]);
    },
    (seconds + 300) * 1_000,
  );
});
