import type { DeadLetterQueue } from 'nestjs-redis-streams-mq';
import type { ConsumerProcesses } from './ipc/consumer-processes.js';
import type { Publisher } from './publisher.js';
import type { CallLog } from './report/call-log.js';
import { check, checkEqual, type Check } from './report/checks.js';
import { formatGroupTable } from './report/group-table.js';
import type { KeyTotals } from './report/key-totals.js';
import { ProgressBar } from './report/progress-bar.js';
import type { ResultTables } from './report/result-tables.js';
import { formatCount } from './report/table.js';
import { RunError } from './run-error.js';
import type { Scenario, Stage } from './scenario.js';
import { waitUntil } from './wait-until.js';

const REDRAW_MS = 100;

export interface DemoRunDeps {
  readonly scenario: Scenario;
  readonly calls: CallLog;
  readonly results: ResultTables;
  readonly consumers: ConsumerProcesses;
  readonly publisher: Publisher;
  readonly deadLetters: DeadLetterQueue;
  readonly interrupt: AbortSignal;
}

/** One run: publish, wait until everything is handled or dead, print the tables, check. */
export class DemoRun implements Stage {
  constructor(private readonly deps: DemoRunDeps) {}

  get calls(): CallLog {
    return this.deps.calls;
  }

  get deadLetters(): DeadLetterQueue {
    return this.deps.deadLetters;
  }

  async execute(): Promise<Check[]> {
    try {
      await this.publishAndHandle();
    } catch (error) {
      // What did happen helps to see why it stopped.
      if (error instanceof RunError) this.printTables((group) => this.rejectedCount(group));
      throw error;
    }
    const { scenario } = this.deps;
    const deadCounts = new Map<string, number>();
    for (const group of scenario.groups) deadCounts.set(group, await this.deadCount(group));
    this.printTables((group) => deadCounts.get(group) ?? 0);
    const checks = this.generalChecks(deadCounts);
    return [...checks, ...(await scenario.conclude(this))];
  }

  results(group: string): KeyTotals {
    return this.deps.results.of(group);
  }

  deployFix(): Promise<void> {
    return this.deps.consumers.deployFix();
  }

  until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
    const { scenario, calls, consumers, interrupt } = this.deps;
    return waitUntil({
      what,
      condition,
      progress: () => scenario.groups.reduce((sum, group) => sum + calls.callCount(group), 0),
      assertPossible: () => consumers.assertRunning(),
      signal: interrupt,
    });
  }

  print(text: string): void {
    console.log(`${text}\n`);
  }

  private async publishAndHandle(): Promise<void> {
    const { scenario, calls, publisher, interrupt } = this.deps;
    const bar = new ProgressBar(process.stdout);
    const redraw = setInterval(() => this.redraw(bar), REDRAW_MS);
    try {
      await publisher.publish(scenario, interrupt);
      for (const group of scenario.groups) {
        await this.until(`group ${group} to handle everything`, () => calls.settledCount(group) >= calls.sentCount);
      }
      // A rejected message reaches the dead-letter queue a moment after its handler has thrown.
      for (const group of scenario.groups) {
        const rejected = this.rejectedCount(group);
        await this.until(`the dead letters of ${group}`, async () => (await this.deadCount(group)) >= rejected);
      }
      this.redraw(bar);
    } finally {
      clearInterval(redraw);
      bar.end();
    }
  }

  private redraw(bar: ProgressBar): void {
    const { scenario, calls } = this.deps;
    const settled = scenario.groups.map((group) => calls.settledCount(group));
    const note = scenario.groups.map((group, i) => `${group} ${formatCount(settled[i]!)}`).join('  ');
    const done = settled.reduce((sum, count) => sum + count, 0);
    bar.update(done, scenario.total * scenario.groups.length, `published ${formatCount(calls.sentCount)}  ${note}`);
  }

  private deadCount(group: string): Promise<number> {
    return this.deps.deadLetters.size(this.deps.scenario.topic, { group });
  }

  private rejectedCount(group: string): number {
    return this.calls.settledCount(group) - this.calls.handledCount(group);
  }

  private printTables(deadOf: (group: string) => number): void {
    const { scenario, calls } = this.deps;
    console.log();
    for (const group of scenario.groups) {
      const [published, dead, figures] = [calls.sentCount, deadOf(group), calls.figures(group)];
      this.print(formatGroupTable({ group, published, dead, figures, notes: scenario.notes[group] ?? {} }));
    }
  }

  private generalChecks(deadCounts: ReadonlyMap<string, number>): Check[] {
    const { scenario, calls, publisher } = this.deps;
    const perGroup = scenario.groups.flatMap((group) => [
      checkEqual(
        `${group}: handled and dead together are what was published`,
        calls.handledCount(group) + (deadCounts.get(group) ?? 0),
        calls.sentCount,
      ),
      checkEqual(`${group}: keys out of order`, calls.figures(group).keysOutOfOrder, 0),
    ]);
    return [
      check(
        `messages published: ${scenario.total}`,
        calls.sentCount === scenario.total,
        `found ${calls.sentCount}; ${publisher.failures.slice(0, 3).join('; ')}`,
      ),
      ...perGroup,
    ];
  }
}
