import { systemClock } from '../../libs/redis-streams-mq/src/core/clock.js';
import { MqEvents } from '../../libs/redis-streams-mq/src/core/events.js';
import type { ClusterSample } from '../../libs/redis-streams-mq/src/metrics/cluster-sampler.js';
import { Reporter } from '../../libs/redis-streams-mq/src/metrics/reporter.js';
import { Connection } from '../../libs/redis-streams-mq/src/redis/connection.js';
import { useMq } from '../support/mq-fixture.js';
import { describeWithServer } from '../support/redis-server.js';
import { uniqueName } from '../support/unique-name.js';
import { waitFor } from '../support/wait-for.js';

const mq = useMq();
const NONE: ClusterSample = { readings: {}, leftOut: 0 };

let reporterKey: string;
let connection: Connection;
beforeEach(async () => {
  reporterKey = uniqueName('reporter');
  connection = new Connection('control', mq.redis.client(), systemClock);
  await waitFor(() => connection.isReady);
});

const isHeld = async (): Promise<boolean> => (await mq.client.exists(reporterKey)) === 1;

/** Its lease lasts longer than any test. */
function make(sample: () => Promise<ClusterSample> = () => Promise.resolve(NONE)): Reporter {
  const times = { leaseTtlMs: 600_000, renewIntervalMs: 100_000, intervalMs: 20 };
  const events = new MqEvents();
  return new Reporter({
    ...times,
    connection,
    reporterKey,
    token: 'a',
    clock: systemClock,
    events,
    random: () => 0,
    sample,
  });
}

describeWithServer('a reporter that is stopped gives up its lease', () => {
  it.each([
    ['fails', 'ERR no'],
    ['may not be taken', "NOPERM User a has no permissions to run the 'sscan' command"],
  ])('also when its last sample %s', async (_what, message) => {
    let samples = 0;
    const reporter = make(() => {
      samples++;
      return Promise.reject(Object.assign(new Error(message), { name: 'ReplyError' }));
    });
    reporter.start();
    await waitFor(() => samples > 0);
    await reporter.stop();
    expect(await isHeld()).toBe(false);
  });

  it('also when it is asked for and not answered yet', async () => {
    const reporter = make();
    mq.redis.pause();
    reporter.start();
    await new Promise(setImmediate);
    const stopped = reporter.stop();
    mq.redis.resume();
    await stopped;
    await connection.send('PING');
    expect(await isHeld()).toBe(false);
  });

  it('and takes it from nobody', async () => {
    await mq.client.set(reporterKey, 'another');
    const reporter = make();
    reporter.start();
    await new Promise(setImmediate);
    await reporter.stop();
    expect(await mq.client.get(reporterKey)).toBe('another');
  });
});
