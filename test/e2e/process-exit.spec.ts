import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { startRedis, type TestRedis } from '../support/redis-server.js';

const root = join(__dirname, '../..');
let redis: TestRedis;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());

/** Runs test/support/programs/exit.ts, and resolves with how long it lived after it had closed, in ms. */
async function lifeAfterClosing(url: string, way: string): Promise<number> {
  const program = join(root, 'test/support/programs/exit.ts');
  const flags = ['--conditions=@redis-streams-mq/source', '--import', '@swc-node/register/esm-register'];
  const child = spawn(process.execPath, [...flags, program, url, way], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let errors = '';
  let closedAt = Number.NaN;
  child.stderr.on('data', (text: Buffer) => (errors += text.toString()));
  child.stdout.on('data', () => (closedAt = performance.now()));
  const code = await new Promise((resolve) => child.once('exit', resolve));
  if (code !== 0) throw new Error(`ended with ${String(code)}: ${errors}`);
  return performance.now() - closedAt;
}

describe('NEST-06 the process ends by itself within a second after the application has closed', () => {
  it.each(['after a while', 'twice', 'while it connects', 'never initialised', 'failing provider'])(
    '%s',
    async (way) => {
      expect(await lifeAfterClosing(redis.url, way)).toBeLessThan(1_000);
    },
  );

  it('CONN-20 with a client of its own, which still works then', async () => {
    expect(await lifeAfterClosing(redis.url, 'a shared client')).toBeLessThan(1_000);
  });

  it('with Redis away', async () => {
    expect(await lifeAfterClosing('redis://127.0.0.1:1', 'after a while')).toBeLessThan(1_000);
  });
});
