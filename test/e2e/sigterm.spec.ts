import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Injectable } from '@nestjs/common';
import { MqProducer, RedisStreamsMqModule, StreamHandler } from 'nestjs-redis-streams-mq';
import { queueOptions, TestApps } from '../support/nest-app.js';
import { describeWithServer, startRedis, uniqueName, type TestRedis } from '../support/redis-server.js';
import { waitFor } from '../support/wait-for.js';

const root = join(__dirname, '../..');
const LEASE_MS = 3_000;

let redis: TestRedis;
const apps = new TestApps();
/** Loading takes its time: both begin before the first test. */
const programs = new Map<string, Program>();
beforeAll(async () => {
  redis = await startRedis();
  for (const way of ['none', 'hooks']) programs.set(way, run(uniqueName('topic'), way));
});
afterEach(() => apps.closeAll());
afterAll(async () => {
  for (const { child } of programs.values()) child.kill('SIGKILL');
  await redis.stop();
});

interface Program {
  readonly child: ChildProcess;
  readonly topic: string;
  readonly lines: string[];
}

const options = () =>
  queueOptions(redis, {
    defaultPartitionCount: 1,
    leaseTtlSeconds: LEASE_MS / 1_000,
    renewIntervalSec: 0.5,
    rebalanceIntervalSec: 0.5,
  });

/** Runs test/support/programs/sigterm.ts; `lines` grows with what it says. */
function run(topic: string, way: string): Program {
  const program = join(root, 'test/support/programs/sigterm.ts');
  const flags = ['--conditions=@redis-streams-mq/source', '--import', '@swc-node/register/esm-register'];
  const child = spawn(process.execPath, [...flags, program, JSON.stringify(options()), topic, way], { cwd: root });
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text: Buffer) => lines.push(...text.toString().trim().split('\n')));
  }
  return { child, topic, lines };
}

describeWithServer('NEST-08 SIGTERM', () => {
  it.each([
    ['without shutdown hooks costs its partitions no more than a lease', 'none', 0, LEASE_MS + 1_000],
    ['with them hands its partitions over at once, and Nest alone listens to the signal', 'hooks', 1, 1_500],
  ] as const)(
    'NEST-08 %s',
    async (_what, way, listeners, longestMs) => {
      const { child, topic, lines } = programs.get(way)!;
      await waitFor(() => lines.some((line) => line.startsWith('listeners ')), { timeoutMs: 40_000 });
      expect(lines).toContain(`listeners ${listeners}`);
      const handled: number[] = [];
      @Injectable()
      class Heir {
        @StreamHandler(topic, 'g')
        handle(payload: number): void {
          handled.push(payload);
        }
      }
      const sender = await apps.context({ imports: [RedisStreamsMqModule.forRoot(options())] });
      const producer = sender.get(MqProducer);
      await producer.send(topic, 0);
      await waitFor(() => lines.includes('handled 0'));
      await apps.context({ imports: [RedisStreamsMqModule.forRoot(options())], providers: [Heir] });

      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      const since = performance.now();
      await producer.send(topic, 1);
      await waitFor(() => handled.includes(1));
      expect(performance.now() - since).toBeLessThan(longestMs);
      expect((await exited)[1]).toBe('SIGTERM');
      expect(lines.filter((line) => line.includes('ERROR'))).toEqual([]);
    },
    60_000,
  );

  it('NEST-08 the README says what the hooks are for', () => {
    const readme = readFileSync(join(root, 'README.md'), 'utf8');
    expect(readme).toMatch(/Call `app\.enableShutdownHooks\(\)`\. Without it SIGTERM kills the process/);
    expect(readme).toContain('NestFactory.create(AppModule).then((app) => app.enableShutdownHooks()');
  });
});
