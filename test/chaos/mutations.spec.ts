import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Mutation } from '../torture/mutations/mutations.js';
import type { Report } from '../torture/report/report.js';
import { describeWithServer } from '../support/redis-server.js';

/** Each with faults that bring it to light, and the invariant that must be seen to break. */
const CASES: readonly (readonly [Mutation, { faults: string; rate: number; breaks: RegExp }])[] = [
  ['fencing', { faults: 'stop-consumer', rate: 300, breaks: /^I3 nothing is started under a lease/ }],
  ['ledger', { faults: 'cut-read', rate: 200, breaks: /^I1 every stored message was handled/ }],
  ['atomic-retry', { faults: 'full-redis', rate: 200, breaks: /^I1 every stored message was handled/ }],
  [
    'take-over-order',
    { faults: 'kill-consumer,stop-consumer', rate: 400, breaks: /^I2 messages of a key are started/ },
  ],
  ['run-twice', { faults: 'cut-send', rate: 200, breaks: /^I1 a message is stored once/ }],
  ['reader-deadline', { faults: 'black-hole', rate: 200, breaks: /^I6 / }],
];
const SECONDS = 20;
const TIMEOUT_MS = 300_000;

describeWithServer('torture without a protection', () => {
  const folder = mkdtempSync(join(tmpdir(), 'mq-mutations-'));
  const json = join(folder, 'report.json');

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each(CASES)(
    'fails without %s',
    async (mutation, { faults, rate, breaks }) => {
      const args = ['--mutation', mutation, '--faults', faults, '--rate', rate, '--seconds', SECONDS, '--json', json];
      const code = await torture(args.map(String));
      const report = JSON.parse(readFileSync(json, 'utf8')) as Report;
      rmSync(report.records, { recursive: true, force: true });
      expect(code).toBe(1);
      expect(report.violations.map(({ rule }) => rule)).toContainEqual(expect.stringMatching(breaks));
    },
    TIMEOUT_MS,
  );
});

/** Runs the driver; resolves with its exit code. */
function torture(args: readonly string[]): Promise<number | undefined> {
  const flags = ['--conditions=@redis-streams-mq/source', '--import', '@swc-node/register/esm-register'];
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [...flags, 'test/torture/main.ts', ...args], () =>
      resolve(child.exitCode ?? undefined),
    );
  });
}
